"""The summary of a table in at most three short points."""

from __future__ import annotations

import math

from workflow_src.evaluation.report.evidence import Evidence
from workflow_src.evaluation.report.page import in_words
from workflow_src.evaluation.report.tables import Group, Line


def summary(table: list[Group], evidence: Evidence) -> list[str]:
    """Points of one or two sentences about measured and tested figures.

    First the best trade of quality and speed, then the number of beaten autoregressive rows, then the gain of
    refinement.
    """
    lines = [line for group in table for line in group.lines]
    return [*_trade(lines, evidence), *_refined(table, lines, evidence)]


def _trade(lines: list[Line], evidence: Evidence) -> list[str]:
    """What the table shows about the trade of quality and speed, and what may be concluded from it.

    Rows are compared that were timed on the same kind of engine; where there are none, all rows.
    """
    rivals = [line for line in lines if line.decode.system.family.autoregressive]
    candidates = [line for line in lines if not line.decode.system.family.autoregressive]
    timed_rivals, timed_candidates = ([line for line in some if _timed(line)] for some in (rivals, candidates))
    if not rivals or not candidates:
        return []
    if not timed_rivals or not timed_candidates:
        return [_best_of_both(candidates, rivals, evidence)]
    usable = [line for line in timed_candidates if not evidence.why_inconclusive(line)]
    reasons = [reason for line in timed_rivals if (reason := evidence.why_inconclusive(line))]
    if not usable and not reasons:
        reasons = [reason for line in timed_candidates if (reason := evidence.why_inconclusive(line))]
    if reasons or not evidence.pairs:
        facts = [_best_of_both(timed_candidates, timed_rivals, evidence)]
        distinct = list(dict.fromkeys(reasons))
        return [*facts, f"Nothing is concluded about equal quality: {_listed(distinct)}."] if reasons else facts
    return [_best_trade(usable, timed_rivals, evidence), *_beaten(usable, timed_rivals, evidence)]


def _timed(line: Line) -> bool:
    return line.figures["latency_ms"] is not None


def _beaten(usable: list[Line], rivals: list[Line], evidence: Evidence) -> list[str]:
    """How many of the autoregressive rows that were timed have a faster one that is as good, and of how many the test
    set cannot tell it."""

    def faster(rival: Line) -> list[Line]:
        return [line for line in usable if _comparable(line, rival) and _faster(line, rival)]

    beaten = [any(evidence.as_good(line, rival) for line in faster(rival)) for rival in rivals]
    unknown = [any(evidence.cannot_tell(line, rival) for line in faster(rival)) for rival in rivals]
    untold = sum(is_unknown and not is_beaten for is_unknown, is_beaten in zip(unknown, beaten, strict=True))
    return [beaten_words(sum(beaten), untold, len(rivals))]


def beaten_words(beaten: int, untold: int, rivals: int) -> str:
    """How many of the autoregressive rows that were timed have a faster one that is as good; of `untold` further ones
    the test set cannot tell."""
    text = (
        f"Of {in_words(rivals)} autoregressive rows that were timed, {in_words(beaten) if beaten else 'none'} "
        f"{'has' if beaten < 2 else 'have'} a faster non-autoregressive row that is shown to be as good on the same "
        "kind of engine"
    )
    return f"{text}; of {in_words(untold)} this test set cannot tell." if untold else f"{text}."


def _best_trade(usable: list[Line], rivals: list[Line], evidence: Evidence) -> str:
    """A sentence about the fastest row that is as good as every autoregressive one and faster than the best of them, or
    else about the largest gain in speed at equal quality, or else about the best rows of both sorts."""
    as_good = [
        (line, best)
        for line in usable
        if (best := _best_peer(line, rivals)) and _faster(line, best) and all(evidence.as_good(line, r) for r in rivals)
    ]
    if as_good:
        chosen, best = min(as_good, key=lambda pair: (pair[0].milliseconds, -pair[0].goodness))
        return (
            "The fastest non-autoregressive row as good as every autoregressive one, with "
            f"{chosen.decode.engine.kind_words}: {_beside(chosen, best, evidence)}."
        )
    equal = [
        (line, rival)
        for line in usable
        if (rival := line.rival) and _faster(line, rival) and evidence.as_good(line, rival)
    ]
    if equal:
        chosen, rival = max(equal, key=lambda pair: (pair[1].milliseconds / pair[0].milliseconds, pair[0].goodness))
        return (
            f"The largest gain at equal quality, with {chosen.decode.engine.kind_words}: "
            f"{_beside(chosen, rival, evidence)}; {rival.milliseconds / chosen.milliseconds:.1f} times as fast."
        )
    return _best_of_both(usable, rivals, evidence)


def _best_of_both(candidates: list[Line], rivals: list[Line], evidence: Evidence) -> str:
    """The best row of both sorts by the table: their distance in the main metric, and whether the test set can tell
    that the candidate is as good."""
    pairs = [(line, best) for line in candidates if (best := _best_peer(line, rivals))]
    if not pairs:
        pairs = [(line, max(rivals, key=lambda rival: rival.goodness)) for line in candidates]
    line, rival = max(pairs, key=lambda pair: pair[0].goodness)
    gap = rival.goodness - line.goodness
    distance = f"{abs(gap):.1f} {line.main.title} {'above' if gap >= 0 else 'below'}"
    engines = f"With {line.decode.engine.kind_words}" if _comparable(line, rival) else "On different engines"
    text = (
        f"{engines}, the best autoregressive row, {_named(rival)} ({_figures(rival)}{_in_time(rival)}), is {distance} "
        f"the best non-autoregressive one, {_named(line)} ({_figures(line)}{_in_time(line)})"
    )
    words = evidence.interval_words(line, rival)
    conclusive = not evidence.why_inconclusive(line) and not evidence.why_inconclusive(rival)
    if words and conclusive and evidence.cannot_tell(line, rival):
        text += (
            f". This test set of {evidence.sentences:,} sentences cannot tell whether the latter is as good: their "
            f"difference lies {words}"
        )
    return f"{text}."


def _best_peer(line: Line, rivals: list[Line]) -> Line | None:
    """The autoregressive row on the same kind of engine with the best quality; of equal ones, the fastest."""
    peers = [rival for rival in rivals if _comparable(line, rival)]
    return max(peers, key=lambda rival: (rival.goodness, -(rival.figures["latency_ms"] or math.inf)), default=None)


def _refined(table: list[Group], lines: list[Line], evidence: Evidence) -> list[str]:
    """The gain of the refinement with the most steps over its start, and its difference from the reference row."""
    refined = [line for line in lines if line.decode.search.traceable and line.decode.plain]
    if not refined:
        return []
    # Named by rule, not by its figures: choosing the best on test would flatter it.
    best = min(refined, key=_preference)
    group = next(group for group in table if best in group.lines)
    start = next((line for line in group.lines if line.decode.search.name == best.decode.search.baseline), None)
    teacher = next((line for line in lines if line.decode.reference), None)
    if any(line and evidence.why_inconclusive(line) for line in (best, start, teacher)):
        return []
    text = f"Refined by {_steps_words(best)}: {_figures(best)}"
    if start:
        gain = best.quality - start.quality
        relation = "more" if gain >= 0 else "less"
        text += f", {abs(gain):.1f} {best.main.title} {relation} than the {start.decode.search.title}"
    if teacher:
        gap = teacher.quality - best.quality
        difference = f"{abs(gap):.1f} {'less' if gap >= 0 else 'more'} than {teacher.decode.search.title} search"
        text += f" and {difference}" if start else f", {difference}"
        if speedup := best.figures["speedup"]:
            text += f", in {1 / speedup:.2g} of its time" if speedup >= 1 else f", in {1 / speedup:.1f} times its time"
    return [f"{text}."]


def _comparable(line: Line, other: Line) -> bool:
    return line.decode.engine.kind == other.decode.engine.kind


def _faster(line: Line, other: Line) -> bool:
    return line.milliseconds < other.milliseconds


def _beside(line: Line, other: Line, evidence: Evidence) -> str:
    """Two lines with their figures, times and the interval of their difference, in words."""
    words = evidence.interval_words(line, other)
    return (
        f"{_named(line)}, {_figures(line)} in {_milliseconds(line)} a sentence, beside {_named(other)}, "
        f"{_figures(other)} in {_milliseconds(other)}" + (f" (difference {words})" if words else "")
    )


def _listed(reasons: list[str]) -> str:
    """At most three reasons."""
    further = f", and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + further


def _named(line: Line) -> str:
    return f"“{line.system}”, {line.label}"


def _in_time(line: Line) -> str:
    """Its time after its figures; empty where it was not timed."""
    return f" in {_milliseconds(line)}" if _timed(line) else ""


def _milliseconds(line: Line) -> str:
    return f"{line.milliseconds:.3g} ms"


def _preference(line: Line) -> tuple[bool, int, float]:
    """A sorting key: trained refiners before refinement without one, in the order of their families; then the most
    steps."""
    search, value = line.decode.search, line.decode.value
    return search.control is None, line.decode.system.family.order, -(value or 0)


def _steps_words(line: Line) -> str:
    """A search with the value of its series: `score with four steps`."""
    search, value = line.decode.search, line.decode.value
    if search.series is None or value is None:
        return search.title
    counted = search.series.replace("_", " ")
    number = in_words(int(value)) if value == int(value) else f"{value:g}"
    return f"{search.title} with {number} {counted.removesuffix('s') if value == 1 else counted}"


def _figures(line: Line) -> str:
    """The main metric of a line, and others that decide."""
    main, *other_figures = (
        f"{metric.factor * value:.1f} {metric.unit and f'{metric.unit} '}{metric.title}"
        for metric, value in line.deciding
    )
    return f"{main} with {' and '.join(other_figures)}" if other_figures else main
