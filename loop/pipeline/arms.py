"""Control arms: what each lets change, on the budget that the iterated arm spent (GAINS.md, Arms)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loop.core.budget import Budget
from loop.core.experiment import Arm
from loop.core.generation import Generation
from loop.core.noun import seed_from
from loop.core.plan import Allowance, Plan, Spec
from loop.core.stage import Stage

# An arm with an allowance tries candidates until it is spent; this only bounds the search.
MANY_ROUNDS = 10_000
KEEP = Spec(use="keep")


@dataclass(frozen=True)
class Standard:
    """What the iterated arm spent on learning, generation by generation, to be matched by the others."""

    generations: tuple[Generation, ...]

    def collected(self, first: int, last: int) -> int:
        """Generated tokens of collecting, generations first..last."""
        return sum(self._stage(number, Stage.COLLECT).generated_tokens for number in range(first, last + 1))

    def generated(self, first: int, last: int) -> int:
        """Generated tokens of collecting and trials."""
        return sum(self._of(number).learning.generated_tokens for number in range(first, last + 1))

    def trained(self, first: int, last: int) -> int:
        """Trained tokens."""
        return sum(self._of(number).learning.trained_tokens for number in range(first, last + 1))

    def _of(self, number: int) -> Generation:
        return next(generation for generation in self.generations if generation.number == number)

    def _stage(self, number: int, stage: Stage) -> Budget:
        return self._of(number).stages.get(stage.value, Budget())


def arm_plan(arm: Arm, plan: Plan, number: int, last: int, standard: Standard | None) -> Plan:
    """The plan by which an arm grows generation ``number`` (1..last; one_shot has only one).

    Without a standard each arm spends what its own plan comes to. Raises KeyError for an
    arm that this function does not know.
    """
    made = _MADE[arm](plan, number, last, standard)
    return made.revise(arm=arm.value)


def numbers(arm: Arm, generations: int) -> Sequence[int]:
    """The generations that an arm grows: the one-shot arm does all at once."""
    return (1,) if arm is Arm.ONE_SHOT else range(1, generations + 1)


def own_plan(plan: Plan) -> Plan:
    """An arm's plan without its seed and what the standard of that seed gave it to spend: equal under every seed."""
    tokens = None if plan.examine.best_of_tokens is None else 1
    examine = plan.examine.revise(best_of_tokens=tokens)
    return plan.revise(seed=0, allowance=Allowance(), weights=True, examine=examine)


def shared_plan(plan: Plan) -> Plan:
    """A plan of any arm without its seed and all that arms change in it: equal for every arm of an experiment."""
    return own_plan(plan).revise(
        arm="",
        shuffle=False,
        explorer=KEEP,
        collect=plan.collect.revise(tasks={}, rounds=1, routes=0),
        curate=plan.curate.revise(max_rows=0),
        examine=plan.examine.revise(best_of_tokens=None, temperature=0.0, diversity_tasks=0),
    )


def _iterated(plan: Plan, number: int, last: int, standard: Standard | None) -> Plan:
    return plan


def _one_shot(plan: Plan, number: int, last: int, standard: Standard | None) -> Plan:
    """All generations' tasks, rows, trials and training at once.

    Trials go on until the allowance is spent: the iterated arm tries its incumbent in every
    generation, this one only once, so as many rounds would come to fewer trials.
    """
    made = plan.revise(
        collect=plan.collect.revise(rounds=plan.collect.rounds * last),
        curate=plan.curate.revise(max_rows=plan.curate.max_rows * last),
    )
    if standard is None:
        return made
    collect, generated = standard.collected(1, last), standard.generated(1, last)
    return _learning(made, collect, standard.trained(1, last)).revise(
        explorer=plan.explorer if plan.explorer == KEEP else _searching(plan),
        allowance=Allowance(collect=collect, explore=generated, train=standard.trained(1, last) or None),
    )


def _weights_only(plan: Plan, number: int, last: int, standard: Standard | None) -> Plan:
    made = plan.revise(explorer=KEEP)
    if standard is None:
        return made
    return _learning(made, standard.generated(number, number), standard.trained(number, number))


def _learning(plan: Plan, collect: int, train: int) -> Plan:
    """The plan on these allowances; where nothing was trained, nothing is."""
    return plan.revise(weights=train > 0, allowance=Allowance(collect=collect, train=train or None))


def _harness_only(plan: Plan, number: int, last: int, standard: Standard | None) -> Plan:
    if standard is None:
        return plan.revise(weights=False)
    total = standard.generated(number, number) + standard.trained(number, number)
    return plan.revise(weights=False, explorer=_searching(plan), allowance=Allowance(explore=total))


def _searching(plan: Plan) -> Spec:
    """The plan's explorer with more rounds than any allowance covers."""
    return plan.explorer.revise(options=plan.explorer.options | {"rounds": MANY_ROUNDS})


def _best_of_k(plan: Plan, number: int, last: int, standard: Standard | None) -> Plan:
    tokens = plan.examine.best_of_tokens
    if standard is not None:
        tokens = standard.generated(1, number) + standard.trained(1, number)
    return _idle(plan).revise(examine=plan.examine.revise(best_of_tokens=tokens or 1, diversity_tasks=0))


def _null(plan: Plan, number: int, last: int, standard: Standard | None) -> Plan:
    """Sampled answers, and other luck in each generation: greedy ones of equal pairs cannot differ."""
    examine = plan.examine.revise(temperature=plan.collect.temperature, diversity_tasks=0)
    return _idle(plan).revise(examine=examine, seed=seed_from("null", plan.seed, number))


def _sham(plan: Plan, number: int, last: int, standard: Standard | None) -> Plan:
    return _weights_only(plan, number, last, standard).revise(shuffle=True)


def _idle(plan: Plan) -> Plan:
    """Nothing is collected, so nothing is learned."""
    return plan.revise(explorer=KEEP, weights=False, collect=plan.collect.revise(tasks={}, routes=0))


_MADE: dict[Arm, Callable[[Plan, int, int, Standard | None], Plan]] = {
    Arm.ITERATED: _iterated,
    Arm.ONE_SHOT: _one_shot,
    Arm.WEIGHTS_ONLY: _weights_only,
    Arm.HARNESS_ONLY: _harness_only,
    Arm.BEST_OF_K: _best_of_k,
    Arm.NULL: _null,
    Arm.SHAM: _sham,
}
