"""The headline of a report: at most three sentences about measured and tested figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

from workflow_src.evaluation.report.evidence import Evidence
from workflow_src.evaluation.report.lines import Group, Line

# Reasons that a sentence names.
MOST_REASONS = 3


def summary(table: Sequence[Group], evidence: Evidence) -> list[str]:
    """First the best trade of quality and speed by the rule of non-inferiority, then the number of beaten
    autoregressive rows, then what refinement gains."""
    lines = [line for group in table for line in group.lines]
    return [*_trade(lines, evidence), *_refined(table, lines, evidence)]


def _trade(lines: Sequence[Line], evidence: Evidence) -> list[str]:
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
    usable = [line for line in candidates if not evidence.why_inconclusive(line)]
    reasons = _reasons(rivals, evidence) or ([] if usable else _reasons(candidates, evidence))
    if not timed or reasons or not evidence.pairs:
        return [_best_of_both(candidates, rivals, evidence, reasons)]
    beaten = [any(evidence.as_good(line, rival) for line in _faster(usable, rival)) for rival in rivals]
    unknown = [any(evidence.cannot_tell(line, rival) for line in _faster(usable, rival)) for rival in rivals]
    untold = sum(is_unknown and not is_beaten for is_unknown, is_beaten in zip(unknown, beaten, strict=True))
    return [
        _best_trade(usable, rivals, evidence) or _best_of_both(usable, rivals, evidence),
        beaten_words(sum(beaten), untold, len(rivals)),
    ]


def beaten_words(beaten: int, untold: int, rivals: int) -> str:
    """How many of the autoregressive rows that were timed have a faster one that is as good; of `untold` further ones
    the test set cannot tell."""
    return (
        "Timed autoregressive rows with a faster non-autoregressive one that is shown to be as good on the same kind "
        f"of engine: {beaten} of {rivals} (this test set cannot tell: {untold})."
    )


def _reasons(lines: Sequence[Line], evidence: Evidence) -> list[str]:
    return list(dict.fromkeys(filter(None, map(evidence.why_inconclusive, lines))))


def _best_trade(usable: Sequence[Line], rivals: Sequence[Line], evidence: Evidence) -> str:
    """The fastest row that is as good as every autoregressive one and faster than the best of them, or else the largest
    gain in speed at equal quality; empty without either."""
    as_good = [
        (line, best)
        for line in usable
        if (best := _best_peer(line, rivals))
        and line in _faster(usable, best)
        and all(evidence.as_good(line, rival) for rival in rivals)
    ]
    if as_good:
        line, best = min(as_good, key=lambda pair: (pair[0].milliseconds, -pair[0].goodness))
        role = "the fastest non-autoregressive row as good as every autoregressive one"
        return _sentence(role, line, "beside the best of these,", best, evidence)
    equal = [
        (line, rival)
        for line in usable
        if (rival := line.rival) and line in _faster(usable, rival) and evidence.as_good(line, rival)
    ]
    if not equal:
        return ""
    line, rival = max(equal, key=lambda pair: (pair[1].milliseconds / pair[0].milliseconds, pair[0].goodness))
    gain = f"{rival.milliseconds / line.milliseconds:.1f} times as fast as"
    return _sentence("the largest gain at equal quality", line, gain, rival, evidence)


def _best_of_both(
    candidates: Sequence[Line], rivals: Sequence[Line], evidence: Evidence, reasons: Sequence[str] = ()
) -> str:
    """The best row of both sorts by the table, and whether one is shown to be as good, or why nothing is concluded."""
    pairs = [(line, best) for line in candidates if (best := _best_peer(line, rivals))]
    pairs = pairs or [(line, max(rivals, key=lambda rival: rival.goodness)) for line in candidates]
    line, rival = max(pairs, key=lambda pair: pair[0].goodness)
    relation = "beside"
    if not reasons and evidence.pairs and not _reasons([line, rival], evidence):
        relation = "neither shown to be as good as nor to be lower than"
        if evidence.as_good(line, rival):
            relation = "as good as"
        elif evidence.lower(line, rival):
            relation = "lower than"
    relation += " the best autoregressive one,"
    return _sentence("the best non-autoregressive row", line, relation, rival, evidence, reasons)


def _sentence(
    role: str, line: Line, relation: str, rival: Line, evidence: Evidence, reasons: Sequence[str] = ()
) -> str:
    """A line and what it is, its relation to another one, both with their figures, and the interval of their difference
    or why nothing follows."""
    kind = line.decode.engine.kind
    engines = f"With {line.decode.engine.kind_words}" if kind == rival.decode.engine.kind else "On different engines"
    interval = evidence.interval_words(line, rival)
    difference = f"; difference {interval}" if interval and not reasons else ""
    more = f", and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
    nothing = f"; nothing is concluded: {', '.join(reasons[:MOST_REASONS])}{more}" if reasons else ""
    return f"{engines}, {role} is {_shown(line)}, {relation} {_shown(rival)}{difference}{nothing}."


def _best_peer(line: Line, rivals: Sequence[Line]) -> Line | None:
    """The autoregressive row on the same kind of engine with the best quality; of equal ones, the fastest."""
    peers = [rival for rival in rivals if rival.decode.engine.kind == line.decode.engine.kind]
    return max(peers, key=lambda rival: (rival.goodness, -(rival.figures["latency_ms"] or math.inf)), default=None)


def _faster(lines: Sequence[Line], rival: Line) -> list[Line]:
    """Those that are faster than a rival on the same kind of engine."""
    peers = [line for line in lines if line.decode.engine.kind == rival.decode.engine.kind]
    return [line for line in peers if line.milliseconds < rival.milliseconds]


def _refined(table: Sequence[Group], lines: Sequence[Line], evidence: Evidence) -> list[str]:
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
    if not others or _reasons([best, *others], evidence):
        return []
    return [f"Refined: {_shown(best)}, beside {' and '.join(map(_shown, others))}."]


def _preference(line: Line) -> tuple[bool, int, float]:
    """A sorting key: trained refiners before refinement without one, in the order of their families; then the most
    steps."""
    search, value = line.decode.search, line.decode.value
    return search.control is None, line.decode.system.family.order, -(value or 0)


def _timed(line: Line) -> bool:
    return line.figures["latency_ms"] is not None


def _shown(line: Line) -> str:
    """A line with its figures that decide and its time."""
    figures = " with ".join(
        f"{metric.factor * value:.1f} {metric.unit and f'{metric.unit} '}{metric.title}"
        for metric, value in line.deciding
    )
    return f"“{line.system}”, {line.label} ({figures}{f' in {line.milliseconds:.3g} ms' if _timed(line) else ''})"
