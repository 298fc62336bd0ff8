"""Generations as people read them, within 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from loop.core.experiment import Findings
from loop.core.gate import Interval, Standing
from loop.core.generation import Exam, Generation
from loop.core.routing import RoutingExam

COLOURS = {Standing.ROOT: "cyan", Standing.PROMOTED: "green", Standing.REJECTED: "yellow"}


def bounds(found: Interval | None, *, signed: bool = False) -> str:
    """A point with its interval, e.g. ``+6.1 [+2.0, +10.3]``."""
    if found is None:
        return "not measured"
    form = "{:+.1f}" if signed else "{:.1f}"
    return f"{form.format(found.point)} [{form.format(found.low)}, {form.format(found.high)}]"


def standing(generation: Generation) -> Text:
    """The decision in its colour; a forced promotion says so for ever."""
    decision = generation.decision
    text = f"{decision.standing.value}{' (forced)' if decision.forced else ''}"
    return Text(text, style=COLOURS[decision.standing])


def lineage_table(
    generations: tuple[Generation, ...], title: str, exams: Mapping[str, Exam], names: Mapping[str, str]
) -> Table:
    """One row per generation, rejected ones too, with the contract its score is under.

    ``exams`` are by generation digest, ``names`` the contract versions by digest.
    """
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.show_edge, table.pad_edge, table.collapse_padding = False, False, True
    table.add_column("gen", justify="right", no_wrap=True)
    for name in ("digest", "parent"):
        table.add_column(name, no_wrap=True)
    for name in ("decision", "contract", "score 0-100", "gain"):
        table.add_column(name)
    for generation in generations:
        exam = exams.get(generation.digest)
        parent = generation.parent[:7] if generation.parent else "-"
        figures = ("-", "-", "-")
        if exam is not None:
            figures = (contract_name(exam, names), bounds(exam.score_interval), bounds(exam.gain, signed=True))
        table.add_row(str(generation.number), generation.digest[:7], parent, standing(generation), *figures)
    return table


def contract_name(exam: Exam, names: Mapping[str, str]) -> str:
    """The version an exam was under, or the start of its digest when it was not saved here."""
    return names.get(exam.contract, exam.contract[:8])


def print_generation(
    console: Console,
    generation: Generation,
    findings: Findings | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    rescored: Exam | None = None,
) -> None:
    """The one screen at the end of a run (GAINS.md, What must be printed).

    ``findings`` are of the lineage's arms, if any; ``names`` the contract versions by digest;
    ``rescored`` is shown in place of the generation's own exam; the decision stays what it was.
    """
    head = Table.grid(padding=(0, 2))
    head.add_row("generation", Text(f"{generation.number}  {generation.short}", style="bold"))
    head.add_row("parent", (generation.parent or "-")[:12])
    head.add_row("decision", standing(generation))
    exam = rescored or generation.exam
    if exam is None:
        head.add_row("exam", "examined beside its first successor")
        console.print(Panel(head, title="macaron-loop", width=80))
        return
    head.add_row("contract", contract_name(exam, names))
    head.add_row("score", f"{bounds(exam.score_interval)}  ({exam.cases} cases, {1 - exam.coverage:.1%} unscored)")
    head.add_row("gain", f"{bounds(exam.gain, signed=True)}  (95 % interval, paired and clustered)")
    if exam.goodhart is not None:
        head.add_row("Goodhart gap", f"{bounds(exam.goodhart, signed=True)}  (visible less sealed gain)")
    head.add_row("compounding", compounding(findings))
    head.add_row("false promotions", false_promotions(findings))
    parts: list[Table | Text] = [head, _environments(exam), _axioms(exam)]
    parts += [_transplant(exam)] if exam.transplant else []
    parts += [_routing(exam.routing)] if exam.routing else []
    parts += [Text(f"alarm: {alarm}", style="red") for alarm in exam.alarms]
    if rescored is not None and generation.exam is not None:
        parts.append(Text(f"decided under contract {contract_name(generation.exam, names)}:", style="dim"))
    parts += [_rules(generation), _budget(generation), *_hops(generation)]
    console.print(Panel(Group(*parts), title="macaron-loop", width=80))


def compounding(findings: Findings | None) -> str:
    """The iterated arm's last score less the one-shot arm's, or why it is not known."""
    if findings is None or findings.compounding is None:
        return "not measured: arm one_shot absent"
    return f"{bounds(findings.compounding, signed=True)}  (iterated less one_shot)"


def false_promotions(findings: Findings | None) -> str:
    """How often the gate let a control pass, or that no control was grown."""
    found = findings.false_promotions if findings else None
    return f"{found[0]} of {found[1]} null and sham successors" if found else "not measured: arms null and sham absent"


def _transplant(exam: Exam) -> Table:
    table = Table(title="2 x 2 transplant: what the gain is made of", title_justify="left", width=74)
    for name in ("part", "effect"):
        table.add_column(name)
    for part, effect in exam.transplant.items():
        table.add_row(part, bounds(effect, signed=True))
    for part, effect in exam.shapley.items():
        table.add_row(f"Shapley {part}", bounds(effect, signed=True), style="dim")
    return table


def _routing(found: RoutingExam) -> Table:
    table = Table(title=f"routing, {found.child.cases} sealed cases", title_justify="left", width=74)
    for name in ("router", "right, %", "kept, %", "in-distribution, %"):
        table.add_column(name, no_wrap=True)
    for name, report in (("parent", found.parent), ("child", found.child)):
        table.add_row(name, bounds(report.accuracy), f"{report.compliance:.1f}", bounds(report.in_distribution))
    table.add_row("gain", bounds(found.gain, signed=True), "", "", style="dim")
    if found.regret is not None:
        table.add_row("regret, points", bounds(found.regret, signed=True), "", "", style="dim")
    return table


def _environments(exam: Exam) -> Table:
    table = Table(title="sealed holdout by environment", title_justify="left", width=74)
    for name in ("environment", "score", "gain", "passed: parent", "child"):
        table.add_column(name)
    for name, score in exam.environments.items():
        rates = [exam.pass_rates.get(f"{who}/{name}") for who in ("parent", "child")]
        shown = ["-" if rate is None else f"{rate:.1%}" for rate in rates]
        table.add_row(name, f"{score:.1f}", bounds(exam.environment_gains.get(name), signed=True), *shown)
        levels = sorted(key for key in exam.pass_rates if key.startswith(f"child/{name}/"))
        for key in levels:
            level = key.rsplit("/", 1)[1]
            before = exam.pass_rates.get(f"parent/{name}/{level}")
            row = ("-" if before is None else f"{before:.1%}", f"{exam.pass_rates[key]:.1%}")
            table.add_row(f"  level {level}", "", "", *row, style="dim")
    return table


def _axioms(exam: Exam) -> Table:
    table = Table(title="axioms", title_justify="left", width=74)
    for name in ("axiom", "score", "gain"):
        table.add_column(name)
    for axiom, score in exam.axioms.items():
        table.add_row(axiom, f"{score:.1f}", bounds(exam.axiom_gains.get(axiom), signed=True))
    return table


def _rules(generation: Generation) -> Table:
    table = Table.grid(padding=(0, 2))
    for rule in generation.decision.rules:
        mark = Text("pass", style="green") if rule.passed else Text("fail", style="yellow")
        table.add_row("gate", mark, rule.name, rule.text)
    return table


def _hops(generation: Generation) -> list[Table]:
    """The ledger of all conversations that were played; nothing where none was kept."""
    if not generation.budget.hops:
        return []
    table = Table("hop", "count", "fresh prompt", "cached", "generated", "seconds each", title="hops", box=None)
    for hop, found in generation.budget.hops.items():
        fresh = found.prompt_tokens - found.cached_tokens
        counts = (found.hops, fresh, found.cached_tokens, found.generated_tokens)
        table.add_row(hop.value, *(f"{count:,}" for count in counts), f"{found.seconds / found.hops:.2f}")
    return [table]


def _budget(generation: Generation) -> Text:
    spent = generation.budget
    return Text(
        f"budget: {spent.generated_tokens:,} tokens generated, {spent.prompt_tokens:,} prompt, "
        f"{spent.trained_tokens:,} trained, {spent.judge_calls} judge calls, {spent.wall_seconds:.0f} s",
        style="dim",
    )
