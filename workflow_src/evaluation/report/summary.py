"""The headline of a report: facts about measured and tested figures, as a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from workflow_src.evaluation.document import Caption, GroupRow, Table, table_of
from workflow_src.evaluation.report.evidence import Evidence, Group, Line
from workflow_src.evaluation.report.markdown import signed
from workflow_src.evaluation.report.tables import digits, row_words
from workflow_src.spec import Metric

# Reasons that a note names.
MOST_REASONS = 3


@dataclasses.dataclass(frozen=True)
class Fact:
    """Lines beside each other: the first one is what the title says. With corrected intervals of the difference of the
    first two in points, and what else is known."""

    title: str
    lines: tuple[Line, ...]
    intervals: Mapping[Metric, tuple[float, float]] = dataclasses.field(default_factory=dict)
    note: str = ""


def summary(table: Sequence[Group], evidence: Evidence) -> list[Fact]:
    """First the best trade of quality and speed by the rule of non-inferiority, with the number of beaten
    autoregressive rows, then what refinement gains."""
    lines = [line for group in table for line in group.lines]
    return [*_trade(lines, evidence), *_refined(table, lines, evidence)]


def block(facts: Sequence[Fact]) -> Table:
    """The facts as a table, with the figures that decide and milliseconds a sentence."""
    metrics = dict.fromkeys(metric for fact in facts for line in fact.lines for metric, _ in line.deciding)
    entries: list[GroupRow | dict[str, str]] = []
    for fact in facts:
        entries.append(GroupRow(fact.title))
        for line in fact.lines:
            figures = dict(line.deciding)
            shown = {m.head: f"{m.factor * figures[m]:.1f}" if m in figures else "" for m in metrics}
            latency = line.figures["latency_ms"]
            entries.append({"": row_words(line.decode), **shown, "ms": "" if latency is None else digits(latency)})
        if fact.intervals:
            ends = {m.head: ", ".join(signed(end, 1) for end in fact.intervals.get(m, ())) for m in metrics}
            entries.append({"": "difference", **{head: text and f"[{text}]" for head, text in ends.items()}, "ms": ""})
    note = (
        "The paired interval of the first row less the second, for all compared rows of the main table together, in "
        "each metric"
    )
    several = any(line.seeds > 1 for fact in facts for line in fact.lines)
    note += "; of several seeds, from the lowest end to the highest." if several else "."
    notes = {"Difference": note if any(fact.intervals for fact in facts) else ""}
    return table_of(entries, ("",), caption=Caption(" ".join(fact.note for fact in facts if fact.note), notes))


def _trade(lines: Sequence[Line], evidence: Evidence) -> list[Fact]:
    """What the table shows about the trade of quality and speed, and what may be concluded from it.

    Rows are compared that were timed on the same kind of engine; where there are none, all rows.
    """
    rivals, candidates = ([line for line in lines if line.decode.autoregressive == kind] for kind in (True, False))
    if not rivals or not candidates:
        return []
    timed_rivals, timed_candidates = ([line for line in some if _timed(line)] for some in (rivals, candidates))
    timed = bool(timed_rivals and timed_candidates)
    if timed:
        rivals, candidates = timed_rivals, timed_candidates
    unfit = {kind: evidence.why_unfit(peers) for kind, peers in _by_kind(rivals).items()}
    judged = [rival for rival in rivals if not unfit[rival.decode.engine.kind]]
    usable = [line for line in candidates if not evidence.too_bad(line)]
    reasons = _distinct([*unfit.values(), *([] if usable else map(evidence.too_bad, candidates))])
    if not judged or not usable:
        return [_best_of_both(candidates, rivals, evidence, reasons)]
    left_out = (
        f"Nothing is concluded about the other {len(rivals) - len(judged)}: {_listed(reasons)}." if reasons else ""
    )
    if not timed or not evidence.pairs:
        best = _best_of_both(usable, judged, evidence)
        return [dataclasses.replace(best, note=" ".join(filter(None, [best.note, left_out])))]
    beaten = [any(evidence.as_good(line, rival) for line in _faster(usable, rival)) for rival in judged]
    unknown = [any(evidence.cannot_tell(line, rival) for line in _faster(usable, rival)) for rival in judged]
    untold = sum(is_unknown and not is_beaten for is_unknown, is_beaten in zip(unknown, beaten, strict=True))
    all_rivals = "every compared autoregressive one" if left_out else "every autoregressive one"
    best = _best_trade(usable, judged, evidence, all_rivals) or _best_of_both(usable, judged, evidence)
    notes = [best.note, beaten_words(sum(beaten), untold, len(judged)), left_out]
    return [dataclasses.replace(best, note=" ".join(filter(None, notes)))]


def _by_kind(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Lines by the kind of their engine."""
    by_kind: dict[str, list[Line]] = {}
    for line in lines:
        by_kind.setdefault(line.decode.engine.kind, []).append(line)
    return by_kind


def beaten_words(beaten: int, untold: int, rivals: int) -> str:
    """How many of the autoregressive rows that were timed have a faster one that is as good; of `untold` further ones
    the test set cannot tell."""
    return (
        "Timed autoregressive rows with a faster non-autoregressive one that is shown to be as good on the same kind "
        f"of engine: {beaten} of {rivals} (this test set cannot tell: {untold})."
    )


def _listed(reasons: Sequence[str]) -> str:
    """The first of some reasons, and the number of the others."""
    more = f", and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    return f"{', '.join(reasons[:MOST_REASONS])}{more}"


def _distinct(reasons: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(filter(None, reasons)))


def _best_trade(usable: Sequence[Line], rivals: Sequence[Line], evidence: Evidence, all_rivals: str) -> Fact | None:
    """The fastest row that is as good as every autoregressive one and faster than the best of them, or else the largest
    gain in speed at equal quality; None without either."""
    as_good = [
        (line, best)
        for line in usable
        if (best := _best_peer(line, rivals))
        and line in _faster(usable, best)
        and all(evidence.as_good(line, rival) for rival in rivals)
    ]
    if as_good:
        line, best = min(as_good, key=lambda pair: (pair[0].milliseconds, -pair[0].goodness))
        return _compared(f"the fastest row as good as {all_rivals}", line, best, evidence)
    equal = [
        (line, rival)
        for line in usable
        if (rival := line.rival)
        and line in _faster(usable, rival)
        and evidence.as_good(line, rival)
        and evidence.as_good(rival, line)
    ]
    if not equal:
        return None
    line, rival = max(equal, key=lambda pair: (pair[1].milliseconds / pair[0].milliseconds, pair[0].goodness))
    gain = f"the largest gain at equal quality, {rival.milliseconds / line.milliseconds:.1f} times as fast"
    return _compared(gain, line, rival, evidence)


def _best_of_both(
    candidates: Sequence[Line], rivals: Sequence[Line], evidence: Evidence, reasons: Sequence[str] = ()
) -> Fact:
    """The best row of both sorts by the table, and whether one is shown to be as good, or why nothing is concluded."""
    pairs = [(line, best) for line in candidates if (best := _best_peer(line, rivals))]
    pairs = pairs or [(line, max(rivals, key=lambda rival: rival.goodness)) for line in candidates]
    line, rival = max(pairs, key=lambda pair: pair[0].goodness)
    relation = "beside"
    if not reasons and evidence.pairs:
        if evidence.as_good(line, rival):
            relation = "as good as"
        elif learning := evidence.still_learning(line):
            reasons = [learning]
        elif evidence.lower(line, rival):
            relation = "lower than"
        else:
            relation = "not shown to be as good as, nor lower than,"
    title = f"the best non-autoregressive row, {relation} the best autoregressive one"
    fact = _compared(title, line, rival, evidence)
    if not reasons:
        return fact
    note = f"Nothing is concluded: {_listed(reasons)}."
    if any(map(evidence.still_learning, (line, rival))):
        note += " Raise training.max_steps of such a system."
    return dataclasses.replace(fact, intervals={}, note=note)


def _compared(role: str, line: Line, rival: Line, evidence: Evidence) -> Fact:
    """A line and what it is beside another one."""
    kind = line.decode.engine.kind
    engines = f"With {line.decode.engine.kind_words}" if kind == rival.decode.engine.kind else "On different engines"
    return Fact(f"{engines}, {role}", (line, rival), evidence.intervals(line, rival))


def _best_peer(line: Line, rivals: Sequence[Line]) -> Line | None:
    """The autoregressive row on the same kind of engine with the best quality; of equal ones, the fastest."""
    peers = [rival for rival in rivals if rival.decode.engine.kind == line.decode.engine.kind]
    return max(peers, key=lambda rival: (rival.goodness, -(rival.figures["latency_ms"] or math.inf)), default=None)


def _faster(lines: Sequence[Line], rival: Line) -> list[Line]:
    """Those that are faster than a rival on the same kind of engine."""
    peers = [line for line in lines if line.decode.engine.kind == rival.decode.engine.kind]
    return [line for line in peers if line.milliseconds < rival.milliseconds]


def _refined(table: Sequence[Group], lines: Sequence[Line], evidence: Evidence) -> list[Fact]:
    """The refinement with the most steps beside its start and the reference row."""
    refined = [line for line in lines if line.decode.search.traceable and line.decode.plain]
    if not refined:
        return []
    # Named by rule, not by its figures: choosing the best on test would flatter it.
    best = min(refined, key=_preference)
    group = next(group for group in table if best in group.lines)
    start = next((line for line in group.lines if line.decode.search.name == best.decode.search.baseline), None)
    reference = next((line for line in lines if line.decode.reference), None)
    others = [line for line in (start, reference) if line]
    if not others or any(evidence.too_bad(line) or evidence.still_learning(line) for line in (best, *others)):
        return []
    return [Fact("Refined with the most steps", (best, *others))]


def _preference(line: Line) -> tuple[bool, int, float]:
    """A sorting key: trained refiners before refinement without one, in the order of their families; then the most
    steps."""
    search, value = line.decode.search, line.decode.value
    return search.control is None, line.decode.system.family.order, -(value or 0)


def _timed(line: Line) -> bool:
    return line.figures["latency_ms"] is not None
