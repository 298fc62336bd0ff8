"""What a tracker shows of a generation: flat names to figures, parameters and tags.

Units are those of the nouns: scores and gains 0..100 points, rates and coverage in
[0, 1], losses in nats, seconds, bytes, tokens. An interval ``x`` is three figures:
``x``, ``x.low`` and ``x.high``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from loop.core.budget import Budget
from loop.core.gate import Interval, Standing
from loop.core.generation import Exam, Generation
from loop.core.noun import digest_of
from loop.ports import Trained

Figures = dict[str, float]
Texts = dict[str, str]

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.\-/: ]")


def generation_figures(generation: Generation, scores: Mapping[str, Any]) -> Figures:
    """Every figure of a generation's exam, decision and budget.

    ``scores`` may hold ``stage_seconds`` (stage to seconds), ``budgets`` (stage to Budget)
    and ``diversity`` (name to figure); what is absent is not shown.
    """
    figures: Figures = {"promoted": float(generation.decision.standing is not Standing.REJECTED)}
    if generation.exam is not None:
        figures |= _exam_figures(generation.exam)
    figures |= _named("diversity", dict(scores.get("diversity") or {}))
    figures |= _named("stage_seconds", dict(scores.get("stage_seconds") or {}))
    figures |= _budget_figures("budget", generation.budget)
    for stage, budget in dict(scores.get("budgets") or {}).items():
        figures |= _budget_figures(f"budget_of/{stage}", budget)
    for rule in generation.decision.rules:
        figures |= _named(f"gate/{rule.name}", rule.figures) | {f"gate/{rule.name}/passed": float(rule.passed)}
    return clean(figures)


def generation_parameters(generation: Generation) -> Texts:
    """What the generation was made with: base, harness, contract, seed and LoRA shapes."""
    pair = generation.pair
    parameters = {
        "number": str(generation.number),
        "family": generation.family,
        "arm": generation.arm,
        "seed": str(generation.seed),
        "base": pair.base.id,
        "base_digest": pair.base.weights_digest,
        "harness": pair.harness.name,
        "harness_digest": pair.harness.digest,
    }
    for adapter in pair.adapters:
        parameters |= {
            f"{adapter.label}.rank": str(adapter.rank),
            f"{adapter.label}.alpha": f"{adapter.alpha:g}",
            f"{adapter.label}.adapter": adapter.digest,
        }
    return parameters


def generation_tags(generation: Generation, parent: Generation | None) -> Texts:
    """The lineage, so that a run can be found by digest and read without the store."""
    decision, exam = generation.decision, generation.exam
    tags = {
        "macaron.kind": "generation",
        "macaron.digest": generation.digest,
        "macaron.family": generation.family,
        "macaron.number": str(generation.number),
        "macaron.arm": generation.arm,
        "macaron.standing": decision.standing.value,
        "macaron.reasons": " ".join(decision.reasons),
        "macaron.forced": str(decision.forced).lower(),
        "macaron.parent": generation.parent or "",
        "macaron.parent_number": str(parent.number) if parent else "",
        "macaron.plan": generation.plan or "",
        "macaron.contract": exam.contract if exam else "",
        "macaron.scorecard": exam.scorecard if exam else "",
        "macaron.alarms": " ".join(exam.alarms) if exam else "",
        "mlflow.note.content": generation_note(generation, parent),
    }
    return {name: text for name, text in tags.items() if text}


def generation_note(generation: Generation, parent: Generation | None) -> str:
    """A few lines of Markdown: who, from whom, and why it was promoted or not."""
    came = f"grown from {parent.number} (`{parent.short}`)" if parent else "the root of its lineage"
    lines = [f"Generation {generation.number} of **{generation.family}**, {came}: {generation.decision.standing}."]
    lines += [
        f"- {'passed' if rule.passed else '**failed**'} {rule.name}: {rule.text}" for rule in generation.decision.rules
    ]
    return "\n".join(lines)


def specialist_figures(trained: Trained) -> Figures:
    """What training one specialist cost and did, without its curve."""
    return clean(
        {
            "rows": float(len(trained.rows_trained)),
            "steps_planned": float(trained.steps_planned),
            "steps_done": float(trained.steps_done),
            "trained_tokens": float(trained.trained_tokens),
            "response_tokens": float(trained.response_tokens),
            "tokens_per_second": trained.tokens_per_second,
            "peak_bytes": float(trained.peak_bytes),
            "wall_seconds": trained.budget.wall_seconds,
        }
    )


def specialist_curves(trained: Trained) -> dict[str, tuple[float, ...]]:
    """The curves by name; value n (from 0) belongs to optimiser step n + 1."""
    curve = trained.curve
    return {"loss": curve.losses, "learning_rate": curve.learning_rates, "grad_norm": curve.grad_norms}


def specialist_parameters(trained: Trained) -> Texts:
    """The LoRA shape and the peak learning rate."""
    adapter = trained.adapter
    return {
        "label": adapter.label,
        "role": adapter.role,
        "rank": str(adapter.rank),
        "alpha": f"{adapter.alpha:g}",
        "dropout": f"{adapter.dropout:g}",
        "targets": ",".join(adapter.targets),
        "dtype": adapter.dtype,
        "stored_values": str(adapter.stored_values),
        "learning_rate": f"{max(trained.curve.learning_rates, default=0.0):g}",
    }


def specialist_tags(trained: Trained, generation: Generation) -> Texts:
    """The revision, what it was trained from, and the generation it belongs to."""
    return {
        "macaron.kind": "specialist",
        "macaron.digest": trained.adapter.digest,
        "macaron.label": trained.adapter.label,
        "macaron.parent": trained.adapter.parent or "",
        "macaron.blob": trained.adapter.blob,
        "macaron.generation": generation.digest,
        "macaron.family": generation.family,
        "macaron.number": str(generation.number),
    }


def clean(figures: Mapping[str, float | None]) -> Figures:
    """Only finite figures, under names that MLflow takes; undecided is absent and not zero."""
    return {
        _NOT_IN_A_NAME.sub("_", name): float(value)
        for name, value in figures.items()
        if value is not None and math.isfinite(value)
    }


def content_digest(*parts: Any) -> str:
    """One digest of all that is to be shown, to tell an unchanged run from an outdated one."""
    return digest_of(list(parts))


def _exam_figures(exam: Exam) -> Figures:
    scalars = {
        "score": exam.score,
        "score_unscored_zero": exam.score_unscored_zero,
        "coverage": exam.coverage,
        "cases": float(exam.cases),
    }
    figures = {name: value for name, value in scalars.items() if value is not None}
    figures |= _named("axiom", exam.axioms) | _named("group", exam.groups) | _named("environment", exam.environments)
    figures |= _named("pass_rate", exam.pass_rates) | _named("diversity", exam.diversity)
    figures |= _interval("score", exam.score_interval, point=exam.score is None)
    figures |= _interval("gain", exam.gain) | _interval("gain_unscored_zero", exam.gain_unscored_zero)
    for name, interval in exam.environment_gains.items():
        figures |= _interval(f"environment_gain/{name}", interval)
    for name, interval in exam.axiom_gains.items():
        figures |= _interval(f"axiom_gain/{name}", interval)
    return figures


def _interval(name: str, interval: Interval | None, *, point: bool = True) -> Figures:
    if interval is None:
        return {}
    ends = {f"{name}.low": interval.low, f"{name}.high": interval.high}
    return {name: interval.point, **ends} if point else ends


def _budget_figures(prefix: str, budget: Budget) -> Figures:
    return {f"{prefix}/{name}": float(value) for name, value in budget.figures.items()}


def _named(prefix: str, figures: Mapping[str, float | None]) -> Figures:
    return {f"{prefix}/{name}": float(value) for name, value in figures.items() if value is not None}
