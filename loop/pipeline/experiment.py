"""Running an experiment: every arm under every seed, each a lineage, equal work of all done once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from loop.core.experiment import Arm, Experiment
from loop.core.generation import Generation
from loop.core.pair import Pair
from loop.core.plan import Plan
from loop.pipeline.arms import Standard, arm_plan, numbers
from loop.pipeline.generation import plant, run_generation
from loop.pipeline.parts import Loop

Staged = Callable[[str, Plan], Loop]
Held = Callable[[str], AbstractContextManager[None]]


def run_experiment(
    experiment: Experiment, plan: Plan, staged: Staged, first: Callable[[int], Pair], held: Held
) -> None:
    """Grow what is not grown yet, seed by seed; kill it anywhere and call it again to resume.

    ``staged`` gives the loop of a lineage under a plan, ``first`` the pair that a seed's
    lineages begin with, ``held`` the lease of a lineage. Lineages go on whatever the gate
    says, so that every arm has all its generations; its verdict is recorded as always.
    """
    for seed in experiment.seeds:
        seeded = plan.revise(seed=seed)
        standard: Standard | None = None
        for arm in sorted(experiment.arms, key=lambda arm: arm is not Arm.ITERATED):
            family = experiment.family(arm, seed)
            with held(family):
                grown = _grow(experiment, arm, seeded, family, staged, first, standard)
            if arm is Arm.ITERATED:
                standard = Standard(grown)


def _grow(
    experiment: Experiment,
    arm: Arm,
    plan: Plan,
    family: str,
    staged: Staged,
    first: Callable[[int], Pair],
    standard: Standard | None,
) -> tuple[Generation, ...]:
    loop = staged(family, plan)
    parent = plant(loop, first(plan.seed), plan.seed)
    grown = []
    for number in numbers(arm, experiment.generations):
        mine = arm_plan(arm, plan, number, experiment.generations, standard)
        loop.progress.stage("arm", f"{arm} seed {plan.seed}: generation {number} of {experiment.generations}")
        parent = run_generation(staged(family, mine), parent, mine, forced=True)
        grown.append(parent)
    return tuple(grown)
