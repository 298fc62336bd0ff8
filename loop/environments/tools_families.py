"""The intents of the tool tasks as data: train and holdout families, their wordings and word pools."""

from __future__ import annotations

from loop.core.episode import Split
from loop.core.noun import Noun


class Link(Noun):
    """How ``argument`` is had from another tool's result; ``phrase`` says it in the request."""

    argument: str
    tool: str
    phrase: str


class Fault(Noun):
    """How the intent is refused: ``offer`` names the answer's field that holds a way out.

    The offered value replaces ``argument``. ``dead_end`` is the error without a way out.
    """

    argument: str
    error: str
    offer: str
    dead_end: str


class Family(Noun):
    """One intent: the tool that serves it, its wordings, how it chains and how it fails.

    ``clauses`` hold ``{argument}`` places; ``spoken`` says a literal in words (default: the
    value itself); ``asked`` is the result's field that the user wants to hear.
    """

    tool: str
    split: Split
    clauses: tuple[str, ...]
    spoken: dict[str, str] = {}
    asked: str = ""
    link: Link
    fault: Fault


_ORDER = {"order": "order {}"}

_TRAIN = (
    Family(
        tool="add_event",
        split=Split.TRAIN,
        clauses=("add the event '{title}' on {day} at {hour}", "add '{title}' on {day} at {hour}"),
        link=Link(argument="hour", tool="opening_hour", phrase="the hour when the {shop} opens"),
        fault=Fault(argument="hour", error="busy", offer="free_hour", dead_end="day is full"),
    ),
    Family(
        tool="find_phone",
        split=Split.TRAIN,
        clauses=("find the phone of {name}", "find the phone number of {name}"),
        asked="phone",
        link=Link(argument="name", tool="order_owner", phrase="the owner of order {order}"),
        fault=Fault(argument="name", error="unknown name", offer="did_you_mean", dead_end="unknown name"),
    ),
    Family(
        tool="send_text",
        split=Split.TRAIN,
        clauses=(
            "send the text '{text}' to {phone}",
            "send '{text}' as a text to {phone}",
        ),
        link=Link(argument="phone", tool="find_phone", phrase="the phone of {name}"),
        fault=Fault(argument="phone", error="wrong number", offer="new_number", dead_end="number blocked"),
    ),
    Family(
        tool="order_status",
        split=Split.TRAIN,
        clauses=("check the status of {order}", "get the status of {order}"),
        spoken=_ORDER,
        asked="status",
        link=Link(argument="order", tool="last_order", phrase="the last order of {name}"),
        fault=Fault(argument="order", error="unknown order", offer="did_you_mean", dead_end="unknown order"),
    ),
    Family(
        tool="place_order",
        split=Split.TRAIN,
        clauses=("order {count} of {item}", "place an order for {count} of {item}"),
        link=Link(argument="item", tool="order_item", phrase="the item in order {order}"),
        fault=Fault(argument="count", error="too many", offer="most", dead_end="out of stock"),
    ),
    Family(
        tool="convert_length",
        split=Split.TRAIN,
        clauses=("convert {km} km to miles", "convert a length of {km} km to miles"),
        asked="miles",
        link=Link(argument="km", tool="distance_to", phrase="the distance to the {shop} in"),
        fault=Fault(argument="km", error="too large", offer="most", dead_end="service is down"),
    ),
    Family(
        tool="get_price",
        split=Split.TRAIN,
        clauses=("get the price of {item}", "find the price of {item}"),
        spoken={"item": "the {}"},
        asked="euros",
        link=Link(argument="item", tool="order_item", phrase="the item in order {order}"),
        fault=Fault(argument="item", error="unknown item", offer="did_you_mean", dead_end="unknown item"),
    ),
    Family(
        tool="set_alarm",
        split=Split.TRAIN,
        clauses=("set an alarm on {day} at {hour}", "set the alarm for {day} at {hour}"),
        link=Link(argument="hour", tool="event_hour", phrase="the hour of the {title}"),
        fault=Fault(argument="hour", error="busy", offer="free_hour", dead_end="alarm is broken"),
    ),
    Family(
        tool="convert_money",
        split=Split.TRAIN,
        clauses=("convert {euros} euros to dollars", "change {euros} euros to dollars"),
        asked="dollars",
        link=Link(argument="euros", tool="get_price", phrase="the price of the {item} in"),
        fault=Fault(argument="euros", error="too large", offer="most", dead_end="service is down"),
    ),
)

_HOLDOUT = (
    Family(
        tool="move_event",
        split=Split.HOLDOUT,
        clauses=("move '{title}' to {day} at {hour}", "move the event '{title}' to {day} at {hour}"),
        link=Link(argument="hour", tool="train_hour", phrase="the hour of the train to {city}"),
        fault=Fault(argument="hour", error="busy", offer="free_hour", dead_end="day is full"),
    ),
    Family(
        tool="cancel_event",
        split=Split.HOLDOUT,
        clauses=("cancel {title}", "cancel {title} in my calendar"),
        spoken={"title": "the {}"},
        link=Link(argument="title", tool="next_event", phrase="the next event with {name}"),
        fault=Fault(argument="title", error="unknown title", offer="did_you_mean", dead_end="unknown title"),
    ),
    Family(
        tool="find_email",
        split=Split.HOLDOUT,
        clauses=("look up the email of {name}", "find the email address of {name}"),
        asked="email",
        link=Link(argument="name", tool="event_host", phrase="the host of the {title}"),
        fault=Fault(argument="name", error="unknown name", offer="did_you_mean", dead_end="unknown name"),
    ),
    Family(
        tool="send_email",
        split=Split.HOLDOUT,
        clauses=(
            "send the email '{text}' to {email}",
            "mail '{text}' to {email}",
        ),
        link=Link(argument="email", tool="find_email", phrase="the email of {name}"),
        fault=Fault(argument="email", error="wrong address", offer="new_address", dead_end="mailbox is full"),
    ),
    Family(
        tool="cancel_order",
        split=Split.HOLDOUT,
        clauses=("cancel {order}", "stop and cancel {order}"),
        spoken=_ORDER,
        link=Link(argument="order", tool="find_order", phrase="the order for the {item}"),
        fault=Fault(argument="order", error="unknown order", offer="did_you_mean", dead_end="already delivered"),
    ),
    Family(
        tool="get_stock",
        split=Split.HOLDOUT,
        clauses=("look up the stock of {item}", "count the stock of {item}"),
        spoken={"item": "the {}"},
        asked="stock",
        link=Link(argument="item", tool="wish_of", phrase="the item that {name} wishes for"),
        fault=Fault(argument="item", error="unknown item", offer="did_you_mean", dead_end="unknown item"),
    ),
    Family(
        tool="convert_weight",
        split=Split.HOLDOUT,
        clauses=("turn {kg} kg into pounds", "express {kg} kg in pounds"),
        asked="pounds",
        link=Link(argument="kg", tool="item_weight", phrase="the weight of the {item} in"),
        fault=Fault(argument="kg", error="too large", offer="most", dead_end="service is down"),
    ),
    Family(
        tool="set_reminder",
        split=Split.HOLDOUT,
        clauses=("set the reminder '{text}' for {day}", "remind me with '{text}' on {day}"),
        link=Link(argument="day", tool="delivery_day", phrase="the day when order {order} arrives"),
        fault=Fault(argument="day", error="day is over", offer="next_day", dead_end="list is full"),
    ),
    Family(
        tool="convert_time",
        split=Split.HOLDOUT,
        clauses=("turn {hours} hours into minutes", "express {hours} hours in minutes"),
        asked="minutes",
        link=Link(argument="hours", tool="event_length", phrase="the length of the {title} in"),
        fault=Fault(argument="hours", error="too large", offer="most", dead_end="service is down"),
    ),
)

FAMILIES: dict[Split, tuple[Family, ...]] = {Split.TRAIN: _TRAIN, Split.HOLDOUT: _HOLDOUT}


class Wording(Noun):
    """How clauses become requests; ``{a}`` and ``{b}`` are clauses, ``second`` is a second request.

    ``condition`` is the constraint of the highest level, over the answer of ``check``.
    """

    single: tuple[str, ...]
    second: tuple[str, ...]
    fallback: str
    check: str
    condition: str


WORDINGS: dict[Split, Wording] = {
    Split.TRAIN: Wording(
        single=("{a}.", "please {a}.", "can you {a}?", "I want you to {a}."),
        second=("then {a}.", "also {a}.", "now {a}."),
        fallback=" If that fails, take what is offered.",
        check="get_price",
        condition="get the price of the {item}. If it is under {limit}, {a}. If not, {b}.",
    ),
    Split.HOLDOUT: Wording(
        single=("{a}, please.", "could you {a}?", "I need you to {a}.", "kindly {a}."),
        second=("after that, {a}.", "next, {a}.", "and {a}, please."),
        fallback=" Should it not work, use the proposal.",
        check="get_stock",
        condition="look up the stock of the {item}. With fewer than {limit}, {a}. Otherwise, {b}.",
    ),
}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(" | ")) if " | " in text else tuple(text.split())


POOLS: dict[Split, dict[str, tuple[str, ...]]] = {
    Split.TRAIN: {
        "name": _words(
            "Anna Ben Clara David Emma Frank Grace Henry Irene Jack Kate Leo Maria Nick Olga Paul Rosa Sam Tina Victor "
            "Adam Bob Carol Dan Eva Fred Gina Hugo Iris James Kim Luke Mary Noah Pam Rita Steve Tom Wanda Alice Peter"
        ),
        "title": _words(
            "dentist lunch yoga haircut dinner interview training picnic meeting concert doctor swimming chess brunch "
            "lecture seminar golf football surgery review"
        ),
        "item": _words(
            "lamp chair mug hose clock scarf table pan pot coat shelf box glass pump radio desk spoon ladder tent "
            "drill guitar fan rug shirt"
        ),
        "text": _words(
            "hello | thanks | good luck | call me | I am late | see you soon | well done | please wait | "
            "good morning | on my way"
        ),
        "shop": _words(
            "bakery bank library gym market pharmacy museum school cinema station hotel harbor park zoo theater clinic "
            "office church cafe pool stadium castle garage farm bridge airport"
        ),
        "day": _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        "status": _words("packed shipped delivered waiting returned lost"),
    },
    Split.HOLDOUT: {
        "name": _words(
            "Alan Bella Carl Diana Eric Fiona Gary Helen Ivan Julia Karl Laura Mark Nora Oscar Petra Ralph Sara Tim "
            "Wendy Aaron Betty Colin Donna Ellen Felix Gloria Harry Jane Kevin Linda Martin Nancy Oliver Rachel Simon "
            "Susan Walter"
        ),
        "title": _words(
            "workshop breakfast tennis massage checkup party exam rehearsal barbecue wedding festival class hike "
            "ballet reunion auction debate parade rugby opera"
        ),
        "item": _words(
            "mat sofa bottle bag vase candle hat book ring bowl knife boots frame kit towel pillow kettle bike tablet "
            "wallet mirror broom jacket stove"
        ),
        "text": _words(
            "bye | sorry | well played | come home | I am here | talk later | good night | be careful | "
            "good job | at the door"
        ),
        "city": _words(
            "Rome Oslo Madrid Vienna Dublin Prague Paris Berlin London Lisbon Athens Warsaw Zurich Geneva Milan Munich "
            "Boston Chicago Dallas Denver Seattle Toronto Sydney Tokyo Delhi Cairo"
        ),
        "day": _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        "domain": _words("mail.com post.net inbox.org"),
    },
}
