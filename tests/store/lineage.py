"""Small nouns to fill a store with."""

from __future__ import annotations

from loop.core.base import Base
from loop.core.contract import Axiom, Bank, Contract, Half, ScoringRule
from loop.core.episode import Episode, EpisodeShard, Failure, Record, Split, Task, ToolCall, Turn
from loop.core.gate import Decision, Interval, Standing
from loop.core.generation import Exam, Generation
from loop.core.pair import Adapter, Harness, Pair, Prompt, Routing
from loop.core.plan import CollectPlan, ExaminePlan, Plan, Spec
from loop.core.score import CaseScore, ScoreShard, Verdict
from loop.core.training_set import Row, TrainingProfile, TrainingSet

FAMILY = "main"
BASE = Base(id="tiny", family="tiny", weights_digest="ab" * 32, context_length=64, parameters=10)


def adapter(blob: str = "fresh", label: str = "L0", owner: str = "local", parent: str | None = None) -> Adapter:
    return Adapter(
        label=label,
        role="talks",
        owner=owner,
        base_digest=BASE.weights_digest,
        rank=4,
        alpha=8,
        targets=("q_proj",),
        stored_values=32,
        blob=blob,
        parent=parent,
    )


def harness(name: str = "seed") -> Harness:
    return Harness(
        schema_version=1,
        name=name,
        prompts=(Prompt(label="L0", role="talks", system="Be kind."),),
        routing=Routing(prompt="Who?", labels=("L0",), fallback="L0"),
        policies={"z": 1, "a": [1.5, None, {"y": 1e20, "b": -0.0}]},
    )


def pair(*adapters: Adapter) -> Pair:
    return Pair(base=BASE, adapters=adapters or (adapter(),), harness=harness())


def root(family: str = FAMILY) -> Generation:
    return Generation(number=0, family=family, seed=1, pair=pair(), decision=Decision(standing=Standing.ROOT))


def plan(seed: int = 1, samples: int = 2) -> Plan:
    return Plan(
        seed=seed,
        contract="c" * 64,
        engine=Spec(use="scripted"),
        environments=(Spec(use="tools"),),
        collect=CollectPlan(tasks={"tools": 3, "coding": 1}, samples=samples),
        profile=TrainingProfile(name="p", rank=4, alpha=8, targets=("q",), learning_rate=1e-3, batch_rows=2),
        examine=ExaminePlan(tasks={"tools": 3}),
    )


def exam(score: float = 61.5) -> Exam:
    return Exam(
        contract="c" * 64,
        scorecard="5" * 64,
        score=score,
        score_unscored_zero=score - 1,
        coverage=0.9,
        cases=10,
        environments={"tools": 60.0, "coding": 63.0},
        gain=Interval(point=4.25, low=1.0, high=7.0, n=10, clusters=4),
    )


def child(
    parent: Generation,
    blob: str = "trained",
    standing: Standing = Standing.PROMOTED,
    the_plan: Plan | None = None,
) -> Generation:
    before = parent.pair.adapters[0]
    return Generation(
        number=parent.number + 1,
        family=parent.family,
        seed=1,
        pair=pair(adapter(blob, parent=before.digest)),
        parent=parent.digest,
        plan=(the_plan or plan()).digest,
        exam=exam(),
        decision=Decision(standing=standing),
    )


def task(index: int = 0, split: Split = Split.TRAIN, environment: str = "tools") -> Task:
    return Task(environment=environment, case=f"calendar/{index % 2}", split=split, seed=2**62 + index, level=1)


def episode(index: int = 0, split: Split = Split.TRAIN, broken: bool = False) -> Episode:
    reply = Turn(
        role="assistant",
        content=f"réponse {index} \x00 fin",
        label="L0",
        adapter="ad" * 32,
        prompt_ids=(1, 2, 3),
        token_ids=(4, 5, 49_151),
        logprobs=(-0.1, -1 / 3, -1e-300),
        finish="stop",
    )
    calls = (ToolCall(turn=1, name="add", arguments={"z": 1, "a": 2.0}, ok=True, result={"sum": 3}),)
    return Episode(
        task=task(index, split),
        pair="9" * 64,
        sample=index,
        seed=2**63 - 1 - index,
        turns=(Turn(role="user", content="hi"), reply),
        record=Record(slots={"who": "Ann", "count": 2}, world={"b": [1, None], "a": {}}, calls=calls),
        failure=Failure(boundary="engine", message="boom") if broken else None,
        seconds=1.5,
    )


def shard(start: int = 0, count: int = 3) -> EpisodeShard:
    return EpisodeShard(episodes=tuple(episode(index) for index in range(start, start + count)))


def scores(episodes: EpisodeShard, half: Half = Half.VISIBLE) -> ScoreShard:
    """Even episodes hold both criteria; odd ones breach ``polite`` and leave ``short`` undecided."""
    rows = []
    for index, found in enumerate(episodes.episodes):
        good = index % 2 == 0
        verdicts = (
            Verdict(criterion="polite", axiom="care", half=half, value=1.0 if good else 0.0, evidence="a\x00b"),
            Verdict(criterion="short", axiom="form", half=half, value=0.8 if good else None),
        )
        row = CaseScore(
            episode=found.digest,
            task=found.task,
            sample=found.sample,
            score=90.0 if good else 0.0,
            passed=good,
            axioms={"care": 1.0 if good else 0.0},
            verdicts=verdicts,
        )
        rows.append(row)
    return ScoreShard(contract="c" * 64, half=half, scores=tuple(rows))


def row(found: Episode, turn: int = 0, generation: int = 0, score: float = 90.0) -> Row:
    return Row(
        episode=found.digest,
        task=found.task.digest,
        split=found.task.split,
        environment=found.task.environment,
        case=found.task.case,
        level=1,
        turn=turn,
        generation=generation,
        licence="CC0-1.0",
        score=score,
        prompt_ids=(1, 2, 3),
        response_ids=(4, 5),
        text="réponse",
    )


def training_set(episodes: EpisodeShard, label: str = "L0", generation: int = 0) -> TrainingSet:
    rows = tuple(row(found, generation=generation) for found in episodes.episodes)
    return TrainingSet(label=label, rows=rows, dropped={"failed": 2, "duplicate": 1})


def contract() -> Contract:
    return Contract(
        version="v1",
        title="test",
        folder_digest="f" * 64,
        rule=ScoringRule(axioms_weight=0.7, balance_weight=0.3, living_need=0.5, living_process=0.5),
        axioms=(
            Axiom(
                id="care",
                name="Care",
                holds="is kind",
                breached="is not",
                name_provenance="this-project",
                definition_provenance="this-project",
            ),
        ),
        scenarios=(),
        banks=(Bank(split=Split.TRAIN, personas=(), pools={}),),
    )
