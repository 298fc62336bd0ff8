"""Entry points to plug-ins: a name and options from a settings file become one frozen object.

Built-in parts are registered exactly like anybody else's (``[project.entry-points]`` in
pyproject.toml), so the documented path is the one that every run takes. Only the entry
point that is named gets imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from pydantic import ValidationError

from loop.core.errors import UserError
from loop.core.noun import Noun
from loop.core.plan import Spec
from loop.ports import Curator, Engine, Environment, Executor, Explorer, Judge, Trainer


class Group(StrEnum):
    """The kinds of plug-in; the entry-point group is ``macaron_loop.<value>``."""

    ENGINES = "engines"
    ENVIRONMENTS = "environments"
    JUDGES = "judges"
    EXPLORERS = "explorers"
    CURATORS = "curators"
    TRAINERS = "trainers"
    EXECUTORS = "executors"

    @property
    def one(self) -> str:
        """The singular, for messages."""
        return self.value.removesuffix("s")


def names(group: Group | str) -> tuple[str, ...]:
    """The installed plug-ins of a group, sorted; nothing is imported."""
    return tuple(sorted({point.name for point in _points(Group(group))}))


def load(group: Group | str, name: str) -> type[Noun]:
    """The class behind a name; UserError when it is unknown, ambiguous or does not import."""
    group = Group(group)
    points = [point for point in _points(group) if point.name == name]
    if not points:
        raise UserError(_unknown(f"{group.one} named {name!r}", name, names(group)))
    targets = sorted({point.value for point in points})
    if len(targets) > 1:
        raise UserError(
            f"{group.one} {name!r} is registered more than once ({', '.join(targets)}); uninstall all but one."
        )
    try:
        loaded = points[0].load()
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{group.one} {name!r} ({targets[0]}) does not import: {error}; install what it needs, then try again."
        ) from error
    if not (isinstance(loaded, type) and issubclass(loaded, Noun)):
        raise UserError(
            f"{group.one} {name!r} ({targets[0]}) is no plug-in: expected a class derived from loop.core.noun.Noun."
        )
    return loaded


def build(group: Group | str, spec: Spec) -> Any:
    """The frozen plug-in of a spec; UserError naming the bad name or option.

    The result implements the Protocol of its group; the typed functions below say which.
    """
    group = Group(group)
    kind = load(group, spec.use)
    try:
        return kind(**spec.options)
    except ValidationError as error:
        # The cause would show the value to whoever prints it.
        raise UserError(_bad_option(f"{group.one} {spec.use!r}", kind, error)) from None


def engine(spec: Spec) -> Engine:
    """The engine of a spec."""
    return cast(Engine, build(Group.ENGINES, spec))


def environment(spec: Spec) -> Environment:
    """The environment of a spec."""
    return cast(Environment, build(Group.ENVIRONMENTS, spec))


def judge(spec: Spec) -> Judge:
    """The judge of a spec."""
    return cast(Judge, build(Group.JUDGES, spec))


def explorer(spec: Spec) -> Explorer:
    """The explorer of a spec."""
    return cast(Explorer, build(Group.EXPLORERS, spec))


def curator(spec: Spec) -> Curator:
    """The curator of a spec."""
    return cast(Curator, build(Group.CURATORS, spec))


def trainer(spec: Spec) -> Trainer:
    """The trainer of a spec."""
    return cast(Trainer, build(Group.TRAINERS, spec))


def executor(spec: Spec) -> Executor:
    """The executor of a spec."""
    return cast(Executor, build(Group.EXECUTORS, spec))


def _points(group: Group) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"macaron_loop.{group.value}"))


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    """'There is no ... ; did you mean ...?', with the whole list."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    listed = f"known: {', '.join(known)}" if known else "none is installed"
    return f"There is no {what}; {hint}({listed})."


def _bad_option(what: str, kind: type[Noun], error: ValidationError) -> str:
    """One sentence about the first option that does not fit, by its key: any value may be a secret."""
    first = error.errors()[0]
    option = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown(f"option {option!r} of {what}", option, tuple(kind.model_fields))
    if first["type"] == "missing":
        return f"Option {option!r} of {what} is missing; give it under options."
    subject = f"Option {option!r} of {what}" if option else f"The options of {what}"
    return f"{subject} cannot be used: {first['msg']}."
