"""The families of the coding ladder: three to train on and three that only the exam meets.

The holdout's families have other domains, names, operations and wordings than the train
families; what carries over is the skill (a request in words becomes one short function).
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from loop.core.episode import Split
from loop.environments.coding_exercise import Arguments, Constrained, Family, Guarded, Part

WORDS = ("cat", "Tree", "red", "Hat", "apple", "Blue", "sea", "dog", "sunny", "Day", "river", "old", "map", "green")
PHRASES = ("Go", "home", "ice", "Warm", "tea", "lemon", "New", "York", "paper", "elm", "see", "Ten", "bees", "stone")
LARGEST = 99


def _two_numbers(low: int, high: int, random: Random, wide: bool) -> Arguments:
    """Two whole numbers, the second never 0; ``wide`` ones may be negative."""
    if wide:
        low, high = -40, LARGEST
    return random.randint(low, high), random.choice([number for number in range(low, high) if number])


def _numbers(random: Random, wide: bool) -> Arguments:
    return _two_numbers(1, 15, random, wide)


def _amounts(random: Random, wide: bool) -> Arguments:
    return _two_numbers(16, 40, random, wide)


def _second_is_zero(random: Random) -> Arguments:
    return random.randint(1, LARGEST), 0


def _some_items(low: int, high: int, random: Random, wide: bool) -> Arguments:
    """A list of two to four whole numbers; ``wide`` ones are longer and may be negative."""
    if wide:
        return ([random.randint(-20, LARGEST) for _ in range(random.randint(2, 7))],)
    return ([random.randint(low, high) for _ in range(random.randint(2, 4))],)


def _items(random: Random, wide: bool) -> Arguments:
    return _some_items(1, 15, random, wide)


def _readings(random: Random, wide: bool) -> Arguments:
    return _some_items(20, 60, random, wide)


def _no_items(random: Random) -> Arguments:
    return ([],)


def _text(pool: tuple[str, ...], random: Random, wide: bool) -> Arguments:
    """One or two words; ``wide`` texts have up to four and may end otherwise."""
    if not wide:
        return (" ".join(random.sample(pool, random.randint(1, 2))),)
    return (" ".join(random.choice(pool) for _ in range(random.randint(1, 4))) + random.choice(("", "s", "e", "x")),)


def _words(random: Random, wide: bool) -> Arguments:
    return _text(WORDS, random, wide)


def _phrases(random: Random, wide: bool) -> Arguments:
    return _text(PHRASES, random, wide)


def _no_text(random: Random) -> Arguments:
    return ("",)


def _distance(v: SimpleNamespace) -> int:
    return int(abs(v.a - v.b))


def _without_spaces(v: SimpleNamespace) -> str:
    return str(v.s).replace(" ", "")


def _underlined(v: SimpleNamespace) -> str:
    return str(v.t).replace(" ", "_")


def _guard(words: str, source: str, value: Any, when: Part) -> Guarded:
    return Guarded(Part(words, source, value), when)


TRAIN_FRAMES = (
    "{term}",
    "{yes} if {test}, else {no}",
    "let c be {first}\n# {second}",
    "{term}, or {k} if {when}",
    "{k} if {when}\n# else let c be {first}\n# {second}\n# do not use {banned}",
)
HOLDOUT_FRAMES = (
    "{term}",
    "when {test}: {yes}, otherwise: {no}",
    "take {first} as c, then give {second}",
    "give {term}; {k} when {when}",
    "when {when} give {k}; otherwise take {first} as c, then give {second} ({banned} is not allowed)",
)

B_IS_ZERO = Part("b is 0", "b == 0", lambda v: v.b == 0)
NUMBERS = Family(
    name="numbers",
    names=("a", "b"),
    draw=_numbers,
    edge=_second_is_zero,
    frames=TRAIN_FRAMES,
    terms=(
        Part("a times {k} plus b", "a * {k} + b", lambda v: v.a * v.k + v.b),
        Part("a plus b minus {k}", "a + b - {k}", lambda v: v.a + v.b - v.k),
        Part("a times b plus {k}", "a * b + {k}", lambda v: v.a * v.b + v.k),
        Part("a minus b plus {k}", "a - b + {k}", lambda v: v.a - v.b + v.k),
        Part("b times {k} minus a", "b * {k} - a", lambda v: v.b * v.k - v.a),
    ),
    doubles=(
        Part("a times {k} plus b minus {j}", "a * {k} + b - {j}", lambda v: v.a * v.k + v.b - v.j),
        Part("a times b minus {k} plus a", "a * b - {k} + a", lambda v: v.a * v.b - v.k + v.a),
        Part("{k} times sum of a and b", "{k} * (a + b)", lambda v: v.k * (v.a + v.b)),
        Part("max of a and b, plus {k}", "max(a, b) + {k}", lambda v: max(v.a, v.b) + v.k),
    ),
    tests=(
        Part("a is greater than b", "a > b", lambda v: v.a > v.b),
        Part("b is less than {j}", "b < {j}", lambda v: v.b < v.j),
        Part("a is greater than {j}", "a > {j}", lambda v: v.a > v.j),
    ),
    firsts=(
        Part("a times {k}", "a * {k}", lambda v: v.a * v.k),
        Part("a minus b", "a - b", lambda v: v.a - v.b),
        Part("max of a and b", "max(a, b)", lambda v: max(v.a, v.b)),
    ),
    seconds=(
        Part("c times c plus b", "c * c + b", lambda v: v.c * v.c + v.b),
        Part("c plus a minus {j}", "c + a - {j}", lambda v: v.c + v.a - v.j),
        Part("c times b", "c * b", lambda v: v.c * v.b),
        Part("{j} times c minus a", "{j} * c - a", lambda v: v.j * v.c - v.a),
    ),
    guarded=(
        _guard("a divided by b, rounded down", "a // b", lambda v: v.a // v.b, B_IS_ZERO),
        _guard("sum of a and b, divided by b, rounded down", "(a + b) // b", lambda v: v.a // v.b + 1, B_IS_ZERO),
        _guard("{j} times a divided by b, rounded down", "{j} * a // b", lambda v: v.j * v.a // v.b, B_IS_ZERO),
    ),
    constrained=(
        Constrained(_guard("max of a and b", "a if a > b else b", lambda v: max(v.a, v.b), B_IS_ZERO), "max"),
        Constrained(_guard("distance of a and b", "a - b if a > b else b - a", _distance, B_IS_ZERO), "abs"),
    ),
)

XS_IS_EMPTY = Part("xs is empty", "not xs", lambda v: not v.xs)
LISTS = Family(
    name="lists",
    names=("xs",),
    draw=_items,
    edge=_no_items,
    frames=TRAIN_FRAMES,
    terms=(
        Part("sum of xs plus {k}", "sum(xs) + {k}", lambda v: sum(v.xs) + v.k),
        Part("max of xs minus {k}", "max(xs) - {k}", lambda v: max(v.xs) - v.k),
        Part("len of xs times {k}", "len(xs) * {k}", lambda v: len(v.xs) * v.k),
        Part("first of xs plus {k}", "xs[0] + {k}", lambda v: v.xs[0] + v.k),
        Part("max of xs", "max(xs)", lambda v: max(v.xs)),
    ),
    doubles=(
        Part("each x in xs plus {k}", "[x + {k} for x in xs]", lambda v: [x + v.k for x in v.xs]),
        Part("sum of xs plus len of xs", "sum(xs) + len(xs)", lambda v: sum(v.xs) + len(v.xs)),
        Part("first of xs times {k} minus {j}", "xs[0] * {k} - {j}", lambda v: v.xs[0] * v.k - v.j),
        Part("each x in xs greater than {k}", "[x for x in xs if x > {k}]", lambda v: [x for x in v.xs if x > v.k]),
        Part("max of xs plus first of xs", "max(xs) + xs[0]", lambda v: max(v.xs) + v.xs[0]),
    ),
    tests=(
        Part("first of xs is greater than {j}", "xs[0] > {j}", lambda v: v.xs[0] > v.j),
        Part("len of xs is greater than 2", "len(xs) > 2", lambda v: len(v.xs) > 2),
    ),
    firsts=(
        Part("max of xs", "max(xs)", lambda v: max(v.xs)),
        Part("sum of xs", "sum(xs)", lambda v: sum(v.xs)),
        Part("first of xs", "xs[0]", lambda v: v.xs[0]),
    ),
    seconds=(
        Part("c minus each x in xs", "[c - x for x in xs]", lambda v: [v.c - x for x in v.xs]),
        Part("c times {j} plus first of xs", "c * {j} + xs[0]", lambda v: v.c * v.j + v.xs[0]),
        Part("c times len of xs", "c * len(xs)", lambda v: v.c * len(v.xs)),
    ),
    guarded=(
        _guard("max of xs plus {j}", "max(xs) + {j}", lambda v: max(v.xs) + v.j, XS_IS_EMPTY),
        _guard("first of xs times {j}", "xs[0] * {j}", lambda v: v.xs[0] * v.j, XS_IS_EMPTY),
        _guard("average of xs, rounded down", "sum(xs) // len(xs)", lambda v: sum(v.xs) // len(v.xs), XS_IS_EMPTY),
    ),
    constrained=(
        Constrained(_guard("max of xs", "sorted(xs)[-1]", lambda v: max(v.xs), XS_IS_EMPTY), "max"),
        Constrained(_guard("len of xs", "sum(1 for x in xs)", lambda v: len(v.xs), XS_IS_EMPTY), "len"),
    ),
)

S_IS_EMPTY = Part("s is empty", "not s", lambda v: not v.s)
TEXT = Family(
    name="text",
    names=("s",),
    draw=_words,
    edge=_no_text,
    frames=TRAIN_FRAMES,
    terms=(
        Part("upper case of s", "s.upper()", lambda v: v.s.upper()),
        Part("s plus '!'", "s + '!'", lambda v: f"{v.s}!"),
        Part("s times {k}", "s * {k}", lambda v: v.s * v.k),
        Part("first letter of s times {k}", "s[0] * {k}", lambda v: v.s[0] * v.k),
        Part("'#' plus s", "'#' + s", lambda v: f"#{v.s}"),
    ),
    doubles=(
        Part("upper case of s plus '!'", "s.upper() + '!'", lambda v: f"{v.s.upper()}!"),
        Part("upper case of s times {k}", "s.upper() * {k}", lambda v: v.s.upper() * v.k),
        Part("'#' plus s plus '!'", "'#' + s + '!'", lambda v: f"#{v.s}!"),
        Part("s plus '-' plus s", "s + '-' + s", lambda v: f"{v.s}-{v.s}"),
        Part("len of s times {k}", "len(s) * {k}", lambda v: len(v.s) * v.k),
        Part("first letter of s plus upper case of s", "s[0] + s.upper()", lambda v: v.s[0] + v.s.upper()),
    ),
    tests=(
        Part("len of s is greater than 4", "len(s) > 4", lambda v: len(v.s) > 4),
        Part("'e' is in s", "'e' in s", lambda v: "e" in v.s),
    ),
    firsts=(
        Part("upper case of s", "s.upper()", lambda v: v.s.upper()),
        Part("s plus s", "s + s", lambda v: v.s + v.s),
        Part("first letter of s", "s[0]", lambda v: v.s[0]),
    ),
    seconds=(
        Part("c plus '-' plus s", "c + '-' + s", lambda v: f"{v.c}-{v.s}"),
        Part("c times {j}", "c * {j}", lambda v: v.c * v.j),
        Part("s plus c", "s + c", lambda v: v.s + v.c),
    ),
    guarded=(
        _guard("the first letter of upper case of s", "s[0].upper()", lambda v: v.s[0].upper(), S_IS_EMPTY),
        _guard("first letter of s times {j}", "s[0] * {j}", lambda v: v.s[0] * v.j, S_IS_EMPTY),
    ),
    constrained=(
        Constrained(_guard("s without spaces", "''.join(s.split(' '))", _without_spaces, S_IS_EMPTY), "replace"),
        Constrained(_guard("first letter of s", "next(iter(s))", lambda v: v.s[0], S_IS_EMPTY), "s[0]"),
    ),
)

Q_IS_ZERO = Part("q is zero", "q == 0", lambda v: v.q == 0)
AMOUNTS = Family(
    name="amounts",
    names=("p", "q"),
    draw=_amounts,
    edge=_second_is_zero,
    frames=HOLDOUT_FRAMES,
    terms=(
        Part("p squared minus {k}", "p * p - {k}", lambda v: v.p**2 - v.k),
        Part("twice p plus q", "2 * p + q", lambda v: 2 * v.p + v.q),
        Part("min of p and q", "min(p, q)", lambda v: min(v.p, v.q)),
        Part("product of p and q, minus {k}", "p * q - {k}", lambda v: v.p * v.q - v.k),
        Part("remainder of p by {k}", "p % {k}", lambda v: v.p % v.k),
    ),
    doubles=(
        Part("min of p and q, squared", "min(p, q) ** 2", lambda v: min(v.p, v.q) ** 2),
        Part("twice p plus q minus {k}", "2 * p + q - {k}", lambda v: 2 * v.p + v.q - v.k),
        Part("p squared plus q squared", "p * p + q * q", lambda v: v.p**2 + v.q**2),
        Part("remainder of p times q by {k}", "p * q % {k}", lambda v: v.p * v.q % v.k),
    ),
    tests=(
        Part("p is even", "p % 2 == 0", lambda v: v.p % 2 == 0),
        Part("q is at least 30", "q >= 30", lambda v: v.q >= 30),
    ),
    firsts=(
        Part("p squared", "p * p", lambda v: v.p**2),
        Part("twice q", "2 * q", lambda v: 2 * v.q),
        Part("min of p and q", "min(p, q)", lambda v: min(v.p, v.q)),
    ),
    seconds=(
        Part("c minus q", "c - q", lambda v: v.c - v.q),
        Part("twice c plus p", "2 * c + p", lambda v: 2 * v.c + v.p),
        Part("remainder of c by 7", "c % 7", lambda v: v.c % 7),
    ),
    guarded=(
        _guard("remainder of p by q", "p % q", lambda v: v.p % v.q, Q_IS_ZERO),
        _guard("p squared over q, rounded down", "p * p // q", lambda v: v.p**2 // v.q, Q_IS_ZERO),
    ),
    constrained=(
        Constrained(_guard("min of p and q", "p if p < q else q", lambda v: min(v.p, v.q), Q_IS_ZERO), "min"),
        Constrained(_guard("p without its sign", "p if p > 0 else -p", lambda v: abs(v.p), Q_IS_ZERO), "abs"),
    ),
)

NUMS_HAS_NOTHING = Part("nums has nothing in it", "len(nums) == 0", lambda v: not v.nums)
READINGS = Family(
    name="readings",
    names=("nums",),
    draw=_readings,
    edge=_no_items,
    frames=HOLDOUT_FRAMES,
    terms=(
        Part("min of nums", "min(nums)", lambda v: min(v.nums)),
        Part("last of nums minus {k}", "nums[-1] - {k}", lambda v: v.nums[-1] - v.k),
        Part("min of nums times {k}", "min(nums) * {k}", lambda v: min(v.nums) * v.k),
        Part("last of nums times {k}", "nums[-1] * {k}", lambda v: v.nums[-1] * v.k),
        Part("sorted nums", "sorted(nums)", lambda v: sorted(v.nums)),
    ),
    doubles=(
        Part("each number in nums squared", "[n * n for n in nums]", lambda v: [n**2 for n in v.nums]),
        Part("even numbers in nums", "[n for n in nums if n % 2 == 0]", lambda v: [n for n in v.nums if not n % 2]),
        Part("last of nums plus min of nums", "nums[-1] + min(nums)", lambda v: v.nums[-1] + min(v.nums)),
        Part("sorted nums without the last", "sorted(nums)[:-1]", lambda v: sorted(v.nums)[:-1]),
    ),
    tests=(
        Part("last of nums is even", "nums[-1] % 2 == 0", lambda v: v.nums[-1] % 2 == 0),
        Part("nums has over 2 numbers", "len(nums) > 2", lambda v: len(v.nums) > 2),
    ),
    firsts=(
        Part("min of nums", "min(nums)", lambda v: min(v.nums)),
        Part("last of nums", "nums[-1]", lambda v: v.nums[-1]),
    ),
    seconds=(
        Part("numbers in nums above c", "[n for n in nums if n > c]", lambda v: [n for n in v.nums if n > v.c]),
        Part("c squared minus {j}", "c * c - {j}", lambda v: v.c**2 - v.j),
        Part("each number in nums minus c", "[n - c for n in nums]", lambda v: [n - v.c for n in v.nums]),
    ),
    guarded=(
        _guard("min of nums minus {j}", "min(nums) - {j}", lambda v: min(v.nums) - v.j, NUMS_HAS_NOTHING),
        _guard("last of nums squared", "nums[-1] ** 2", lambda v: v.nums[-1] ** 2, NUMS_HAS_NOTHING),
    ),
    constrained=(
        Constrained(_guard("min of nums", "sorted(nums)[0]", lambda v: min(v.nums), NUMS_HAS_NOTHING), "min"),
        Constrained(_guard("last of nums", "nums[len(nums) - 1]", lambda v: v.nums[-1], NUMS_HAS_NOTHING), "nums[-1]"),
    ),
)

T_IS_BLANK = Part("t is blank", "t == ''", lambda v: v.t == "")
PHRASES_FAMILY = Family(
    name="phrases",
    names=("t",),
    draw=_phrases,
    edge=_no_text,
    frames=HOLDOUT_FRAMES,
    terms=(
        Part("lower case of t", "t.lower()", lambda v: v.t.lower()),
        Part("t reversed", "t[::-1]", lambda v: v.t[::-1]),
        Part("last letter of t", "t[-1]", lambda v: v.t[-1]),
        Part("t plus '?'", "t + '?'", lambda v: f"{v.t}?"),
    ),
    doubles=(
        Part("lower case of t reversed", "t[::-1].lower()", lambda v: v.t[::-1].lower()),
        Part("number of words in t", "len(t.split())", lambda v: len(v.t.split())),
        Part("'(' plus t plus ')'", "'(' + t + ')'", lambda v: f"({v.t})"),
        Part("last letter of t plus t", "t[-1] + t", lambda v: v.t[-1] + v.t),
        Part("lower case of t without its last letter", "t.lower()[:-1]", lambda v: v.t.lower()[:-1]),
    ),
    tests=(
        Part("t has a space", "' ' in t", lambda v: " " in v.t),
        Part("t ends with 'e'", "t.endswith('e')", lambda v: v.t.endswith("e")),
    ),
    firsts=(
        Part("lower case of t", "t.lower()", lambda v: v.t.lower()),
        Part("t reversed", "t[::-1]", lambda v: v.t[::-1]),
        Part("last letter of t", "t[-1]", lambda v: v.t[-1]),
    ),
    seconds=(
        Part("c plus t", "c + t", lambda v: v.c + v.t),
        Part("c plus '?'", "c + '?'", lambda v: f"{v.c}?"),
        Part("c twice", "c + c", lambda v: v.c * 2),
    ),
    guarded=(
        _guard("the last letter of lower case of t", "t[-1].lower()", lambda v: v.t[-1].lower(), T_IS_BLANK),
        _guard("first word of t", "t.split()[0]", lambda v: v.t.split()[0], T_IS_BLANK),
    ),
    constrained=(
        Constrained(_guard("t with each space as '_'", "'_'.join(t.split(' '))", _underlined, T_IS_BLANK), "replace"),
        Constrained(_guard("last letter of t", "t[len(t) - 1]", lambda v: v.t[-1], T_IS_BLANK), "t[-1]"),
    ),
)

FAMILIES: dict[Split, tuple[Family, ...]] = {
    Split.TRAIN: (NUMBERS, LISTS, TEXT),
    Split.HOLDOUT: (AMOUNTS, READINGS, PHRASES_FAMILY),
}
