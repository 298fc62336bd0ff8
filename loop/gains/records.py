"""Records of experiments: made from generations and their scorecards, joined, and read as scorecards again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loop.core.contract import Half
from loop.core.errors import UserError
from loop.core.experiment import Arm
from loop.core.experiment_record import ExamCase, ExperimentRecord, GenerationRecord, LineageRecord, Sheet
from loop.core.generation import Exam, Generation
from loop.core.noun import digest_of
from loop.core.score import CaseScore, Scorecard

Lineages = Mapping[Arm, Mapping[int, Sequence[Generation]]]
Cards = Callable[[str], Scorecard]


def record_of(name: str, lineages: Lineages, cards: Cards, contracts: Mapping[str, str]) -> ExperimentRecord:
    """The record of each arm's generations by seed, the root first; lineages without a successor are left out.

    ``cards`` loads a scorecard by digest, ``contracts`` are versions by digest. Plans and
    packages are the caller's to add.
    """
    lists: dict[str, tuple[ExamCase, ...]] = {}

    def sheet(digest: str | None) -> Sheet:
        assert digest is not None
        card = cards(digest)
        key = digest_of([(row.task.digest, row.sample) for row in card.scores])
        if key not in lists:
            lists[key] = tuple(ExamCase(task=row.task, sample=row.sample) for row in card.scores)
        return Sheet(contract=card.contract, cases=key, scores=tuple(row.score for row in card.scores))

    def grown(generation: Generation) -> GenerationRecord:
        passed = all(rule.passed for rule in generation.decision.rules)
        made = sheet(_exam(generation).scorecard)
        return GenerationRecord(number=generation.number, sheet=made, learning=generation.learning, passed=passed)

    made = tuple(
        LineageRecord(
            arm=arm,
            seed=seed,
            base=lineage[0].pair.base.digest,
            shared="",
            plan="",
            root=sheet(_exam(lineage[1]).parent_scorecard),
            generations=tuple(map(grown, lineage[1:])),
        )
        for arm, seeds in lineages.items()
        for seed, lineage in seeds.items()
        if len(lineage) > 1
    )
    met = {sheet.contract for line in made for sheet in line.sheets}
    named = {digest: version for digest, version in contracts.items() if digest in met}
    return ExperimentRecord(name=name, contracts=named, cases=lists, lineages=made)


def cards_of(record: ExperimentRecord, lineage: LineageRecord) -> tuple[Scorecard, ...]:
    """A lineage's sealed scorecards, generation 0's first: case scores alone, without verdicts or episodes."""
    return tuple(
        Scorecard(
            contract=sheet.contract,
            pair="",
            half=Half.SEALED,
            scores=tuple(
                CaseScore(episode="", task=case.task, sample=case.sample, score=score, passed=None)
                for case, score in zip(record.cases[sheet.cases], sheet.scores, strict=True)
            ),
        )
        for sheet in lineage.sheets
    )


def join(records: Mapping[str, ExperimentRecord]) -> ExperimentRecord:
    """One record of several, by the name of what each was read from; the first gives its name.

    UserError when they differ in contract, base or plan beside the seed, and for an arm and
    seed that two hold with different figures.
    """
    lines: dict[tuple[Arm, int], tuple[str, LineageRecord]] = {}
    contracts = {digest: name for record in records.values() for digest, name in record.contracts.items()}
    for source, line in ((source, line) for source, record in records.items() for line in record.lineages):
        for other, known in lines.values():
            if unlike := _unlike(known, line, contracts):
                raise UserError(
                    f"the lineages of {' and '.join(dict.fromkeys((other, source)))} do not join: {unlike}; join "
                    "exports of one experiment, which differ in their seeds alone"
                )
        other, known = lines.setdefault((line.arm, line.seed), (source, line))
        if known.digest != line.digest:
            raise UserError(
                f"{other} and {source} both hold arm {line.arm} with seed {line.seed}, with different figures: "
                "leave one of them out"
            )
    cases = {key: cases for record in records.values() for key, cases in record.cases.items()}
    name = next(iter(records.values())).name
    return ExperimentRecord(
        name=name, contracts=contracts, cases=cases, lineages=tuple(line for _, line in lines.values())
    )


def _unlike(one: LineageRecord, other: LineageRecord, contracts: Mapping[str, str]) -> str | None:
    """What keeps two lineages from standing in one experiment, or None."""
    if one.contract != other.contract:
        versions = [contracts.get(line.contract, line.contract[:12]) for line in (one, other)]
        return f"their contracts are {versions[0]} and {versions[1]}"
    if one.base != other.base:
        return f"their bases are {one.base[:12]} and {other.base[:12]}"
    if one.shared != other.shared or (one.arm is other.arm and one.plan != other.plan):
        return f"arm {one.arm} with seed {one.seed} and arm {other.arm} with seed {other.seed} had different plans"
    return None


def _exam(generation: Generation) -> Exam:
    assert generation.exam is not None
    return generation.exam
