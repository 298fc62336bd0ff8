"""The small world behind the tool tasks: its state, its tools, and what each call answers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
from pydantic import JsonValue

from loop.core.noun import Noun

State = dict[str, Any]
Arguments = Mapping[str, JsonValue]
Answer = dict[str, JsonValue]

TABLES = ("contacts", "orders", "items", "shops", "trains", "calendar")
LOGS = ("alarms", "reminders", "sent_texts", "sent_emails")

CONVERSIONS: dict[str, tuple[str, str, float]] = {
    "convert_length": ("km", "miles", 0.621371),
    "convert_money": ("euros", "dollars", 1.1),
    "convert_weight": ("kg", "pounds", 2.204623),
    "convert_time": ("hours", "minutes", 60.0),
}
"""Tool name to the argument's unit, the answer's unit, and the factor between them."""

JSON_TYPES = {
    "day": "string",
    "email": "string",
    "item": "string",
    "name": "string",
    "phone": "string",
    "shop": "string",
    "text": "string",
    "title": "string",
    "city": "string",
    "count": "integer",
    "hour": "integer",
    "order": "integer",
    "km": "number",
    "euros": "number",
    "kg": "number",
    "hours": "number",
}


class Lookup(Noun):
    """A reading tool: row ``key`` of ``table``, answered as ``{field: value}``."""

    table: str
    key: str
    field: str


LOOKUPS: dict[str, Lookup] = {
    "find_phone": Lookup(table="contacts", key="name", field="phone"),
    "last_order": Lookup(table="contacts", key="name", field="order"),
    "order_status": Lookup(table="orders", key="order", field="status"),
    "order_owner": Lookup(table="orders", key="order", field="name"),
    "order_item": Lookup(table="orders", key="order", field="item"),
    "get_price": Lookup(table="items", key="item", field="euros"),
    "distance_to": Lookup(table="shops", key="shop", field="km"),
    "opening_hour": Lookup(table="shops", key="shop", field="hour"),
    "event_hour": Lookup(table="calendar", key="title", field="hour"),
    "find_email": Lookup(table="contacts", key="name", field="email"),
    "next_event": Lookup(table="contacts", key="name", field="title"),
    "wish_of": Lookup(table="contacts", key="name", field="item"),
    "get_stock": Lookup(table="items", key="item", field="stock"),
    "item_weight": Lookup(table="items", key="item", field="kg"),
    "find_order": Lookup(table="items", key="item", field="order"),
    "train_hour": Lookup(table="trains", key="city", field="hour"),
    "event_length": Lookup(table="calendar", key="title", field="hours"),
    "event_host": Lookup(table="calendar", key="title", field="name"),
    "delivery_day": Lookup(table="orders", key="order", field="day"),
}

WRITES: dict[str, tuple[str, ...]] = {
    "add_event": ("title", "day", "hour"),
    "send_text": ("text", "phone"),
    "place_order": ("count", "item"),
    "set_alarm": ("day", "hour"),
    "move_event": ("title", "day", "hour"),
    "cancel_event": ("title",),
    "send_email": ("text", "email"),
    "cancel_order": ("order",),
    "set_reminder": ("text", "day"),
}

PARAMETERS: dict[str, tuple[str, ...]] = {
    **{name: (lookup.key,) for name, lookup in LOOKUPS.items()},
    **WRITES,
    **{name: (source,) for name, (source, _, _) in CONVERSIONS.items()},
}


def template(tool: str) -> str:
    """How a tool is shown to the agent: its call with the arguments left open."""
    return f'{{"tool": "{tool}", ' + ", ".join(f'"{name}": ...' for name in PARAMETERS[tool]) + "}"


def schema(tool: str) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    properties: dict[str, Any] = {}
    for name in PARAMETERS[tool]:
        kind = JSON_TYPES[name]
        bound: dict[str, Any] = {"maxLength": 120} if kind == "string" else {"minimum": 0, "maximum": 1_000_000}
        properties[name] = {"type": kind, **bound}
    return {
        "type": "object",
        "properties": properties,
        "required": list(PARAMETERS[tool]),
        "additionalProperties": False,
    }


_VALIDATORS = {tool: jsonschema.Draft202012Validator(schema(tool)) for tool in PARAMETERS}


def fits(tool: str, arguments: object) -> bool:
    """Whether the arguments satisfy the tool's schema; KeyError for a tool that does not exist."""
    return bool(_VALIDATORS[tool].is_valid(arguments))


def plain(value: JsonValue) -> JsonValue:
    """A value as it is compared and stored: text folded in case and spacing, 3.0 as 3."""
    if isinstance(value, str):
        return " ".join(value.split()).casefold().strip(" .'\"")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def plain_arguments(arguments: Arguments) -> dict[str, JsonValue]:
    """Arguments as they are compared, see ``plain``."""
    return {name: plain(value) for name, value in arguments.items()}


def empty_state() -> State:
    """A world with nothing in it."""
    tables: State = {table: {} for table in TABLES}
    return tables | {log: [] for log in LOGS} | {"refusals": [], "next_order": 1}


def row_key(value: JsonValue) -> str:
    """The key of a table's row for an argument's value."""
    return str(plain(value))


class World:
    """One episode's world: holds its own copy of a state and changes it by tool calls only."""

    def __init__(self, state: State) -> None:
        """Start from a copy of ``state`` (see ``empty_state``)."""
        self.state: State = copy.deepcopy(state)

    def call(self, tool: str, arguments: Arguments) -> Answer:
        """Run one validated call; a failed one answers ``{"error": ...}`` and changes nothing."""
        given = plain_arguments(arguments)
        for refusal in self.state["refusals"]:
            if refusal["tool"] == tool and refusal["arguments"] == given:
                return dict(refusal["answer"])
        if tool in LOOKUPS:
            return self._look_up(LOOKUPS[tool], given)
        if tool in CONVERSIONS:
            return _convert(*CONVERSIONS[tool], given)
        return _HANDLERS[tool](self.state, given)

    def _look_up(self, lookup: Lookup, given: Answer) -> Answer:
        row = self.state[lookup.table].get(row_key(given[lookup.key]), {})
        if lookup.field not in row:
            return {"error": f"unknown {lookup.key}"}
        return {lookup.field: row[lookup.field]}


def failed(answer: Arguments) -> bool:
    """Whether a tool's answer is an error."""
    return "error" in answer


def _convert(source: str, target: str, factor: float, given: Answer) -> Answer:
    value = given[source]
    assert isinstance(value, (int, float))  # the schema has checked it
    return {target: plain(round(value * factor, 1))}


def _log(name: str) -> Callable[[State, Answer], Answer]:
    def write(state: State, given: Answer) -> Answer:
        state[name].append(given)
        return {"ok": True}

    return write


def _add_event(state: State, given: Answer) -> Answer:
    taken = [event for event in state["calendar"].values() if _slot(event) == _slot(given)]
    if taken:
        return {"error": "busy"}
    state["calendar"][row_key(given["title"])] = {"day": given["day"], "hour": given["hour"]}
    return {"ok": True}


def _slot(event: Arguments) -> tuple[JsonValue, JsonValue]:
    return plain(event.get("day")), plain(event.get("hour"))


def _move_event(state: State, given: Answer) -> Answer:
    if row_key(given["title"]) not in state["calendar"]:
        return {"error": "unknown title"}
    return _add_event(state, given)


def _cancel_event(state: State, given: Answer) -> Answer:
    removed = state["calendar"].pop(row_key(given["title"]), None)
    return {"error": "unknown title"} if removed is None else {"ok": True}


def _place_order(state: State, given: Answer) -> Answer:
    number = state["next_order"]
    state["orders"][str(number)] = {**given, "status": "placed"}
    state["next_order"] = number + 1
    return {"ok": True, "order": number}


def _cancel_order(state: State, given: Answer) -> Answer:
    row = state["orders"].get(row_key(given["order"]))
    if row is None:
        return {"error": "unknown order"}
    row["status"] = "cancelled"
    return {"ok": True}


_HANDLERS: dict[str, Callable[[State, Answer], Answer]] = {
    "add_event": _add_event,
    "move_event": _move_event,
    "cancel_event": _cancel_event,
    "place_order": _place_order,
    "cancel_order": _cancel_order,
    "set_alarm": _log("alarms"),
    "set_reminder": _log("reminders"),
    "send_text": _log("sent_texts"),
    "send_email": _log("sent_emails"),
}
