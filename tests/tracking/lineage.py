"""A small lineage by hand: a root, a promoted child and a rejected grandchild."""

from __future__ import annotations

from loop.core.base import Base
from loop.core.budget import Budget
from loop.core.gate import Decision, Interval, Rule, Standing
from loop.core.generation import Exam, Generation
from loop.core.pair import Adapter, Harness, Pair, Prompt, Routing
from loop.core.training_set import Curve
from loop.ports import Trained

BASE = Base(id="tiny", family="tiny", weights_digest="b" * 64, context_length=2048, parameters=1000)
HARNESS = Harness(
    schema_version=1,
    name="seed",
    prompts=(Prompt(label="L0", role="chat", system="Be kind."),),
    routing=Routing(prompt="Which?", labels=("L0",), fallback="L0"),
)


def adapter(blob: str, parent: str | None = None) -> Adapter:
    """A rank-16 adapter of L0."""
    return Adapter(
        label="L0", role="chat", base_digest="b" * 64, rank=16, alpha=32, targets=("q_proj",), stored_values=640,
        blob=blob * 64, parent=parent,
    )  # fmt: skip


def exam(score: float, gain: float) -> Exam:
    """An exam with one axiom, one group and one environment."""
    interval = Interval(point=gain, low=gain - 2.5, high=gain + 2.5, n=40, clusters=8)
    return Exam(
        contract="c" * 64, scorecard="d" * 64, score=score, score_unscored_zero=score - 1, coverage=0.975, cases=40,
        axioms={"honest_counsel": 61.5}, groups={"tool_task": 48.0}, environments={"tools": score},
        pass_rates={"tools": 0.44, "tools/1": 0.7}, gain=interval, gain_unscored_zero=interval,
        environment_gains={"tools": interval}, axiom_gains={"honest_counsel": interval},
    )  # fmt: skip


def lineage() -> tuple[Generation, Generation, Generation]:
    """Generations 0, 1 (promoted) and a rejected 2."""
    root = Generation(
        number=0, family="smol", seed=1, pair=Pair(base=BASE, adapters=(adapter("0"),), harness=HARNESS),
        decision=Decision(standing=Standing.ROOT),
    )  # fmt: skip
    passed = Rule(name="gain", passed=True, text="the gain's interval lies above zero", figures={"low": 1.5})
    child = Generation(
        number=1, family="smol", seed=1, parent=root.digest, plan="e" * 64, exam=exam(44.0, 4.0),
        pair=Pair(base=BASE, adapters=(adapter("1", root.pair.adapters[0].digest),), harness=HARNESS),
        decision=Decision(standing=Standing.PROMOTED, rules=(passed,)),
        budget=Budget(generated_tokens=12_000, trained_tokens=9_000, wall_seconds=321.5),
    )  # fmt: skip
    failed = Rule(name="gain", passed=False, text="the gain's interval [-1.5, 3.5] holds zero", figures={"low": -1.5})
    grandchild = child.revise(
        number=2,
        parent=child.digest,
        exam=exam(45.0, 1.0),
        decision=Decision(standing=Standing.REJECTED, rules=(failed,)),
    )
    return root, child, grandchild


def trained() -> Trained:
    """Three steps of L0."""
    curve = Curve(losses=(2.0, 1.5, 1.25), learning_rates=(1e-4, 2e-4, 0.0), grad_norms=(1.0, 0.9, 0.8))
    return Trained(
        adapter=adapter("1"), curve=curve, steps_planned=3, steps_done=3, trained_tokens=9_000, response_tokens=800,
        rows_trained=("r1", "r2"), budget=Budget(trained_tokens=9_000, wall_seconds=60.0), peak_bytes=2**30,
        tokens_per_second=150.0,
    )  # fmt: skip
