"""Reads contracts/ and harnesses/ into nouns, and keeps published contract versions as they were."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from loop.core.contract import Contract
from loop.core.episode import Split
from loop.core.errors import UserError
from loop.core.noun import Noun, digest_of
from loop.core.pair import Harness, Prompt
from loop.core.routing import RouteBank

CONTRACTS = "contracts"
HARNESSES = "harnesses"
ROUTING = "routing"
LOCK = "LOCK.toml"

_VERSION = re.compile(r"v[1-9][0-9]*(?:-[a-z0-9]+)*")
_VERSION_LINE = re.compile(r"""(?m)^version\s*=\s*(?:"[^"\n]*"|'[^'\n]*')""")

_LOCK_HEAD = """\
# Published contract versions: the digest of each folder and of each of its files (SHA-256).
# Written by `macaron-loop contract publish`; a changed file no longer matches and is refused,
# because scores under an edited contract could not be compared with earlier ones.
"""


class Lock(Noun):
    """One published version: the folder's digest, and each file's by its path in the folder."""

    folder: str
    files: dict[str, str]


def default_root() -> Path:
    """The folder that holds contracts/ and harnesses/: a source checkout, or what the wheel carries.

    UserError when neither is there.
    """
    package = Path(__file__).resolve().parent
    candidates = (package.parent, package / "data", Path(sys.prefix) / "share" / "macaron-loop")
    for candidate in candidates:
        if (candidate / CONTRACTS).is_dir() and (candidate / HARNESSES).is_dir():
            return candidate
    raise UserError(
        f"No folder with {CONTRACTS}/ and {HARNESSES}/ was found beside the package or in its data; "
        "install the wheel again, or name the contract and the harness in macaron.toml."
    )


def load_contract(root: Path, version: str = "v1") -> Contract:
    """The contract ``root/contracts/<version>``; its identity is the hash over all of its files.

    UserError for a missing version, malformed TOML, an unknown field or a wrong value
    (with file and place), and for a published version whose files changed.
    """
    folder = _version_folder(root, version)
    hashes = _hashes(folder)
    _check_lock(f"Contract {version}", published(root).get(version), hashes)
    main = folder / "contract.toml"
    content = _read(main)
    scenarios = [_read(path) for path in sorted(folder.glob("scenarios/*.toml"))]
    banks = [_read(path) for path in sorted(folder.glob("banks/*.toml"))]
    if not scenarios or not banks:
        raise UserError(f"{_named(folder)} has no scenarios/*.toml or no banks/*.toml; a contract has both.")
    places = {"scenarios": sorted(folder.glob("scenarios/*.toml")), "banks": sorted(folder.glob("banks/*.toml"))}
    document = {**content, "folder_digest": _folder_digest(hashes), "scenarios": scenarios, "banks": banks}
    try:
        contract = Contract.model_validate(document)
    except ValidationError as error:
        raise UserError(_sentence(error, main, places)) from error
    if contract.version != version:
        raise UserError(
            f"{_named(main)} says version = {contract.version!r}, but its folder is {version!r}; make them the same."
        )
    return contract


def published(root: Path) -> dict[str, Lock]:
    """The published versions in ``root/contracts/LOCK.toml``; empty when there is none."""
    return _locks(root / CONTRACTS / LOCK)


def _locks(path: Path) -> dict[str, Lock]:
    if not path.exists():
        return {}
    try:
        return {version: Lock.model_validate(entry) for version, entry in _read(path).items()}
    except ValidationError as error:
        raise UserError(_sentence(error, path, {})) from error


def publish(root: Path, version: str, problems: Callable[[Contract], Sequence[str]]) -> Lock:
    """Write the version into LOCK.toml when ``problems`` (the checks' own exam) finds none.

    Publishing an unchanged version again does nothing. UserError when its files changed
    since it was published, or when there are problems.
    """
    contract = load_contract(root, version)
    known = published(root)
    if version in known:
        return known[version]
    found = problems(contract)
    if found:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise UserError(
            f"Contract {version} is not published, {len(found)} checks err: {'; '.join(found[:3])}{more}; "
            f"see `macaron-loop contract verify` and correct them."
        )
    lock = Lock(folder=contract.folder_digest, files=_hashes(_version_folder(root, version)))
    path = root / CONTRACTS / LOCK
    scratch = path.with_suffix(".tmp")
    scratch.write_text(_lock_text(known | {version: lock}), encoding="utf-8")
    scratch.replace(path)
    return lock


def draft(root: Path, version: str, source: str) -> Contract:
    """Copy ``root/contracts/<source>`` to a new version, which stays a draft until it is published.

    It appears whole or not at all. UserError for an ill-formed or a taken name, for a source
    that is missing or was changed, and where the folder cannot be written (a wheel's data).
    """
    if not _VERSION.fullmatch(version):
        raise UserError(f"{version!r} is no name of a contract version; expected v and a number, like v2 or v2-strict.")
    load_contract(root, source)
    folder = root / CONTRACTS / version
    if folder.exists() or folder.is_symlink() or version in published(root):
        raise UserError(f"{_named(folder)} is taken already; edit that draft, or choose another name.")
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".draft-") as scratch:
            copy = Path(scratch) / version
            shutil.copytree(root / CONTRACTS / source, copy, ignore=shutil.ignore_patterns(".*"))
            _rename_version(copy / "contract.toml", version)
            copy.rename(folder)
    except OSError as error:
        raise UserError(
            f"{_named(folder)} cannot be written ({error.strerror}): an installed package keeps its contracts as they "
            "are; make new versions in a source checkout, and install from there."
        ) from error
    return load_contract(root, version)


def load_routing(root: Path, split: Split, version: str = "v1") -> RouteBank:
    """The routing bank ``root/contracts/routing/<version>/<split>.toml``, which no generation can edit.

    UserError for a missing file, malformed TOML, a wrong value, and for files that are not
    those of its LOCK.toml.
    """
    folder = root / CONTRACTS / ROUTING / version
    digest = routing_digest(root, version)
    path = folder / f"{split.value}.toml"
    try:
        return RouteBank.model_validate({**_read(path), "digest_of_folder": digest})
    except ValidationError as error:
        raise UserError(_sentence(error, path, {})) from error


def routing_digest(root: Path, version: str = "v1") -> str:
    """The digest of a routing bank's folder, checked against its lock; UserError when it was changed."""
    hashes = _hashes(root / CONTRACTS / ROUTING / version)
    _check_lock(f"Routing bank {version}", _locks(root / CONTRACTS / ROUTING / LOCK).get(version), hashes)
    return _folder_digest(hashes)


def _rename_version(main: Path, version: str) -> None:
    text, changed = _VERSION_LINE.subn(f'version = "{version}"', main.read_text(encoding="utf-8"))
    if changed != 1:
        raise UserError(f"{_named(main)} sets version on {changed} lines, expected one; write it once, as in v1.")
    main.write_text(text, encoding="utf-8")


def load_harness(path: Path) -> Harness:
    """The harness document of a folder (``harness.toml`` in it) or of a file, with its prompt files.

    UserError for a missing file, malformed TOML, an unknown field or a wrong value.
    """
    main = path / "harness.toml" if path.is_dir() else path
    content = _read(main)
    named = content.get("prompts", [])
    if not isinstance(named, list) or not all(isinstance(item, str) for item in named):
        raise UserError(f'{_named(main)}: prompts is a list of files, like ["prompts/L0.toml"].')
    files = [_inside(main, item) for item in named]
    prompts = [_prompt(file) for file in files]
    try:
        return Harness.model_validate({**content, "prompts": prompts})
    except ValidationError as error:
        raise UserError(_sentence(error, main, {"prompts": files})) from error


def load_prompt(file: Path) -> Prompt:
    """A prompt file as a harness names them, read alone; UserError as for a harness."""
    try:
        return Prompt.model_validate(_prompt(file))
    except ValidationError as error:
        raise UserError(_sentence(error, file, {})) from error


def harness_names(root: Path) -> tuple[str, ...]:
    """The harnesses under ``root/harnesses``, sorted."""
    return tuple(sorted(path.parent.name for path in (root / HARNESSES).glob("*/harness.toml")))


def contract_versions(root: Path) -> tuple[str, ...]:
    """The contract versions under ``root/contracts``, sorted."""
    return tuple(sorted(path.parent.name for path in (root / CONTRACTS).glob("*/contract.toml")))


def _prompt(file: Path) -> dict[str, Any]:
    """A prompt file; an exemplar is a list of messages, or a table with ``messages``."""
    content = _read(file)
    exemplars = content.get("exemplars", [])
    if isinstance(exemplars, list):
        plain = [
            item["messages"] if isinstance(item, dict) and set(item) == {"messages"} else item for item in exemplars
        ]
        content = {**content, "exemplars": plain} if exemplars else content
    return content


def _inside(main: Path, item: str) -> Path:
    """A file the harness names, which must lie in the harness's own folder."""
    folder = main.parent.resolve()
    file = (folder / item).resolve()
    if not file.is_relative_to(folder):
        raise UserError(f"{_named(main)} names {item!r}, which is outside its folder; put the file in it.")
    return file


def _version_folder(root: Path, version: str) -> Path:
    folder = root / CONTRACTS / version
    if not (folder / "contract.toml").is_file():
        known = ", ".join(contract_versions(root)) or "none"
        raise UserError(f"No contract version {version!r} under {_named(root / CONTRACTS)}; there is: {known}.")
    return folder


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 by path for every file of the folder but hidden ones (editors and systems leave those)."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    visible = (path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(visible)
    }


def _folder_digest(hashes: dict[str, str]) -> str:
    return digest_of(sorted(hashes.items()))


def _check_lock(what: str, lock: Lock | None, hashes: dict[str, str]) -> None:
    if lock is None or (lock.files == hashes and lock.folder == _folder_digest(hashes)):
        return
    changed = [
        f"{name} ({'missing' if name not in hashes else 'new' if name not in lock.files else 'edited'})"
        for name in sorted(lock.files.keys() | hashes.keys())
        if lock.files.get(name) != hashes.get(name)
    ]
    found = ", ".join(changed) or f"{LOCK} itself"
    raise UserError(
        f"{what} is published and may not change, but differs from {LOCK}: {found}; restore the files, "
        f"or copy the folder to a new version and publish that."
    )


def _lock_text(locks: dict[str, Lock]) -> str:
    parts = [_LOCK_HEAD]
    for version, lock in sorted(locks.items()):
        lines = [f'[{version}]\nfolder = "{lock.folder}"\n\n[{version}.files]']
        lines.extend(f'"{name}" = "{digest}"' for name, digest in sorted(lock.files.items()))
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{_named(path)} does not exist; restore it or correct the name.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{_named(path)} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{_named(path)} is not valid TOML: {error}; correct that line.") from error


def _sentence(error: ValidationError, main: Path, parts: dict[str, list[Path]]) -> str:
    """The first validation error as one sentence: file, line, place, what was expected, what was found."""
    first = error.errors()[0]
    place = [item for item in first["loc"] if not (isinstance(item, str) and item.startswith("function-"))]
    path = main
    if len(place) >= 2 and place[0] in parts and isinstance(place[1], int):
        path = parts[str(place[0])][place[1]]
        place = place[2:]
    field = next((str(item) for item in reversed(place) if isinstance(item, str)), "")
    line = _line_of(path, field)
    where = f"{_named(path)}{f', line {line}' if line else ''}"
    more = f" ({error.error_count() - 1} more errors after it)" if error.error_count() > 1 else ""
    return f"{where}: {_reason(first, _dotted(place))}; correct it{more}."


def _reason(first: ErrorDetails, place: str) -> str:
    if first["type"] == "extra_forbidden":
        return f"unknown field {place!r}"
    if first["type"] == "missing":
        return f"the field {place!r} is missing"
    told = first["msg"].removeprefix("Value error, ")
    told = told[:1].lower() + told[1:]
    if not place:
        return told
    shown = repr(first["input"])
    found = f", found {shown}" if len(shown) <= 60 else ""
    return f"{place}: {told}{found}"


def _dotted(place: Sequence[int | str]) -> str:
    """A place as people count: ``criteria[2].check.margin``, from 1."""
    text = ""
    for item in place:
        text += f"[{item + 1}]" if isinstance(item, int) else f".{item}"
    return text.lstrip(".")


def _line_of(path: Path, field: str) -> int | None:
    """The line a field is set in, when only one line of the file can be meant."""
    pattern = re.compile(rf"(?:^|[{{,\s])[\"']?{re.escape(field)}[\"']?\s*=")
    lines = path.read_text(encoding="utf-8").splitlines() if field and path.is_file() else []
    hits = [number for number, text in enumerate(lines, start=1) if pattern.search(text)]
    return hits[0] if len(hits) == 1 else None


def _named(path: Path) -> str:
    """A path as it is shown: from the current folder where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
