"""The chain score -> adapters -> rows -> episodes -> criteria, as a tree in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.tree import Tree

from loop.cli.render import bounds, standing
from loop.store.views import AdapterWhy, WhyView


def print_why(console: Console, view: WhyView, examples: int) -> None:
    """Print the tree; ``examples`` episodes are named under each trained adapter."""
    generation = view.generation
    head = standing(generation)
    tree = Tree(f"generation {generation.number} {generation.short}: {head}")
    exam = generation.exam
    if exam is not None:
        score = tree.add(f"score {bounds(exam.score_interval)}, gain {bounds(exam.gain, signed=True)}")
        for name, gain in exam.environment_gains.items():
            score.add(f"{name}: {exam.environments.get(name, 0):.1f}, gain {bounds(gain, signed=True)}")
    for rule in generation.decision.rules:
        tree.add(f"gate {rule.name}: {'pass' if rule.passed else 'fail'}, {rule.text}")
    for adapter in view.adapters:
        _adapter(tree, adapter, examples)
    for opening in view.openings:
        tree.add(f"holdout opened by {opening.who} at {opening.at}: {opening.why}")
    console.print(tree, highlight=False)


def _adapter(tree: Tree, why: AdapterWhy, examples: int) -> None:
    adapter = why.adapter
    if not why.trained:
        tree.add(f"adapter {adapter.label} {adapter.short}: not trained, as its parent has it")
        return
    branch = tree.add(
        f"adapter {adapter.label} {adapter.short}: {why.rows} rows of {why.episodes} episodes, {why.tokens:,} tokens"
    )
    sources = branch.add("rows from")
    for source in why.sources:
        sources.add(
            f"{source.environment}/{source.case} by generation {source.generation}: "
            f"{source.rows} rows, mean score {source.mean_score:.0f}"
        )
    criteria = branch.add("criteria of those episodes")
    for criterion in why.criteria:
        criteria.add(f"{criterion.criterion} ({criterion.axiom}): held {criterion.held}, breached {criterion.breached}")
    for episode in why.examples[:examples]:
        branch.add(f"episode {episode.episode[:12]} {episode.environment}/{episode.case}, score {episode.score:.0f}")
