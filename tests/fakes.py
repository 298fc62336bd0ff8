"""Public fakes behind the ports, for tests of the loop itself: no model, no sandbox, instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from loop.core.base import Base
from loop.core.budget import Budget
from loop.core.contract import Axiom, Bank, Contract, Half, ScoringRule
from loop.core.conversation import Say
from loop.core.episode import Completion, Episode, Outcome, Record, Request, Split, Task
from loop.core.noun import Noun, seed_from
from loop.core.pair import Adapter, Harness, Message, Pair, Prompt, Routing, Sampling
from loop.core.plan import CollectPlan, CuratePlan, ExaminePlan, GatePlan, Plan, Spec
from loop.core.score import Verdict
from loop.core.training_set import Curve, Fingerprints, Row, TrainingJob, TrainingProfile, TrainingSet
from loop.executors.local import LocalExecutor
from loop.explorers.keep import Keep
from loop.pipeline.parts import Loop
from loop.ports import Attestation, Blobs, Embedder, EngineReport, Follow, Hear, Progress, Rollout, Store, Trained
from loop.tracking.quiet import QuietTracker

BASE = Base(id="fake", family="fake", weights_digest="0" * 64, context_length=128, parameters=1)
CALLS: Counter[str] = Counter()


class ScriptedEngine(Noun):
    """Answers 1 where the adapter has learned or the request's luck is good, else 0.

    ``skill`` is the chance of a right reply per training the adapter has behind it.
    ``breaks`` makes every call raise.
    """

    breaks: bool = False

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        CALLS["generate"] += 1
        if self.breaks:
            raise RuntimeError("the device fell off the bus")
        waiting, tokens = list(requests), 0
        while waiting:
            key, request = waiting.pop(0)
            depth = 0 if request.adapter is None else int(request.adapter.blob.split("-")[1])
            chance = min(0.95, 0.3 + 0.3 * depth)
            right = seed_from("luck", request.seed) / 2**63 < chance
            prompt = tuple(range(3, 3 + len(request.messages)))
            completion = Completion(
                text="1" if right else "0",
                prompt_ids=prompt,
                token_ids=(int(right), 2),
                logprobs=(-0.5, -0.1),
                finish="stop",
            )
            tokens += 2
            waiting.extend(follow(key, completion))
        return EngineReport(generated_tokens=tokens)

    def attest(self, base: Base, blobs: Blobs, adapter: Adapter) -> Attestation:
        return Attestation(
            adapter=adapter.digest,
            blob=adapter.blob,
            modules=1,
            probe_difference=0.0,
            base_difference=0.0 if adapter.parent is None else 1.0,
            ok=True,
            text="fake",
        )

    def render(self, base: Base, blobs: Blobs, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(range(len(messages)))


class AnsweringEngine(ScriptedEngine):
    """Says what ``answer`` makes of each request: the one method that a test's own engine has to give."""

    def answer(self, request: Request) -> str:
        raise NotImplementedError

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        waiting = list(requests)
        while waiting:
            key, request = waiting.pop(0)
            said = Completion(
                text=self.answer(request), prompt_ids=(3,), token_ids=(4, 2), logprobs=(-0.5, -0.1), finish="stop"
            )
            waiting.extend(follow(key, said))
        return EngineReport()


class TwoTurns(Noun):
    """An environment that asks twice and wants a 1 both times; ``broken`` seeds raise."""

    broken_share: float = 0.0
    answered_by: str = "L0"

    @property
    def name(self) -> str:
        return "twice"

    @property
    def label(self) -> str:
        return "L0"

    @property
    def levels(self) -> int:
        return 2

    def tasks(self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]) -> tuple[Task, ...]:
        return tuple(
            Task(
                environment=self.name,
                case=f"{split}-family{index % 20}",
                split=split,
                seed=seed_from(seed, index) % 10**9,
                level=levels[index % len(levels)],
            )
            for index in range(count)
        )

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        if seed_from("broken", task.seed) / 2**63 < self.broken_share:
            raise OSError("no sandbox on this machine")
        first = yield Say(messages=(Message(role="user", content=f"first {task.seed}"),), label=self.answered_by)
        second = yield Say(messages=(Message(role="user", content="again"),), label=self.answered_by)
        return Outcome(record=Record(world={"right": first.text == "1" and second.text == "1"}))

    def text(self, task: Task, contract: Contract) -> str:
        return f"say one, {task.split} {task.seed}"


class RecordJudge(Noun):
    """Reads only the record, as every judge must."""

    @property
    def generation_calls(self) -> None:
        return None

    def within(self, calls: int) -> RecordJudge:
        return self

    def judge(self, contract: Contract, episode: Episode, half: Half) -> tuple[Verdict, ...]:
        value = float(bool(episode.record.world["right"]))
        return (Verdict(criterion="right", axiom="forward_movement", half=half, value=value, evidence="world.right"),)

    def judge_many(self, contract: Contract, episodes: Sequence[Episode], half: Half) -> list[tuple[Verdict, ...]]:
        return [self.judge(contract, episode, half) for episode in episodes]


class AllRows(Noun):
    """A curator that keeps every candidate and every replayed row."""

    def curate(
        self,
        label: str,
        candidates: Sequence[Row],
        replay: Sequence[Row],
        plan: CuratePlan,
        fingerprints: Fingerprints,
        embedder: Embedder,
        seed: int,
    ) -> TrainingSet:
        return TrainingSet(label=label, rows=(*candidates, *replay))

    def fingerprint(self, texts: Sequence[str], embedder: Embedder) -> Fingerprints:
        return Fingerprints(grams=frozenset(seed_from(text) for text in texts))


class CountingTrainer(Noun):
    """Makes an adapter whose blob name counts the trainings behind it."""

    def fresh(
        self, base: Base, blobs: Blobs, label: str, role: str, job_seed: int, profile: TrainingProfile
    ) -> Adapter:
        return _adapter(label, "depth-0", None)

    def train(
        self, job: TrainingJob, parent: Adapter, base: Base, blobs: Blobs, scratch: Path, training_set: TrainingSet
    ) -> Trained:
        CALLS["train"] += 1
        adapter = _adapter(job.label, f"depth-{int(parent.blob.split('-')[1]) + 1}", parent.digest)
        curve = Curve(losses=(1.0,), learning_rates=(0.1,), grad_norms=(1.0,))
        rows = tuple(f"{row.episode}/{row.turn}" for row in training_set.rows)
        tokens = job.profile.tokens or training_set.tokens
        return Trained(
            adapter=adapter,
            curve=curve,
            steps_planned=1,
            steps_done=1,
            trained_tokens=tokens,
            response_tokens=len(rows),
            rows_trained=rows,
            budget=Budget(trained_tokens=tokens),
        )


def _adapter(label: str, blob: str, parent: str | None) -> Adapter:
    return Adapter(
        label=label,
        role="test",
        base_digest=BASE.weights_digest,
        rank=1,
        alpha=1.0,
        targets=("q",),
        stored_values=1,
        blob=blob,
        parent=parent,
    )


class FlatEmbedder:
    """Every text in the same place."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]


class Silence:
    """Progress that shows nothing."""

    def stage(self, name: str, detail: str) -> None: ...

    def advance(self, done: int, total: int, detail: str) -> None: ...

    def finished(self, name: str, detail: str, seconds: float, reused: bool) -> None: ...


def harness() -> Harness:
    prompt = Prompt(label="L0", role="test", system="Say 1.", sampling=Sampling(max_tokens=4))
    return Harness(
        schema_version=1, name="test", prompts=(prompt,), routing=Routing(prompt="", labels=("L0",), fallback="L0")
    )


def pair() -> Pair:
    return Pair(base=BASE, adapters=(_adapter("L0", "depth-0", None),), harness=harness())


def contract() -> Contract:
    axiom = Axiom(
        id="forward_movement",
        name="Forward",
        holds="moves",
        breached="stands",
        name_provenance="macaron-v1",
        definition_provenance="this-project",
    )
    return Contract(
        version="test",
        title="test",
        folder_digest="f" * 64,
        rule=ScoringRule(axioms_weight=0.5, balance_weight=0.5, living_need=0.7, living_process=0.3),
        axioms=(axiom,),
        scenarios=(),
        banks=(Bank(split=Split.TRAIN, personas=(), pools={}), Bank(split=Split.HOLDOUT, personas=(), pools={})),
    )


def plan(**changes: object) -> Plan:
    made = Plan(
        seed=1,
        contract=contract().digest,
        engine=Spec(use="scripted"),
        environments=(Spec(use="twice"),),
        collect=CollectPlan(tasks={"twice": 12}, samples=4, shard_tasks=4),
        profile=TrainingProfile(
            name="test", rank=1, alpha=1.0, targets=("q",), learning_rate=0.1, batch_rows=1, min_rows=1
        ),
        examine=ExaminePlan(tasks={"twice": 40}, shard_tasks=20, diversity_tasks=4, diversity_samples=4),
        gate=GatePlan(draws=300),
    )
    return made.revise(**changes)


def loop(store: Store, blobs: Blobs, scratch: Path, **parts: object) -> Loop:
    """A Loop of fakes around a real store; ``parts`` replace some of them."""
    progress: Progress = Silence()
    made: dict[str, object] = {
        "family": "test",
        "contract": contract(),
        "environments": (TwoTurns(),),
        "engine": ScriptedEngine(),
        "judge": RecordJudge(),
        "embedder": FlatEmbedder(),
        "explorer": Keep(),
        "curator": AllRows(),
        "trainer": CountingTrainer(),
        "executor": LocalExecutor(),
        "store": store,
        "blobs": blobs,
        "tracker": QuietTracker(),
        "progress": progress,
        "scratch": scratch,
    }
    return Loop(**(made | parts))  # type: ignore[arg-type]
