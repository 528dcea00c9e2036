"""What a table shows, in a few sentences."""

from __future__ import annotations

from workflow_src.evaluation.report.page import in_words
from workflow_src.evaluation.report.tables import Group, Line
from workflow_src.evaluation.speed.measured import Reference


def summary(table: list[Group], reference: Reference | None) -> list[str]:
    """What the table shows in a few sentences; only what was measured is said."""
    lines = [line for group in table for line in group.lines]
    references = [line for line in lines if line.decode.reference is not None and line.decode.engine.own]
    named = [line for line in references if reference and line.decode.key == (reference.system, reference.name)]
    teacher = (named or sorted(references, key=lambda line: line.system != "teacher") or [None])[0]
    refined = [line for line in lines if line.decode.search.traceable and line.decode.plain]
    told = _trade(lines)
    if teacher:
        told.append(
            f"{_search_words(teacher).capitalize()} with the autoregressive {teacher.system} ({teacher.label}) reaches "
            f"{_figures(teacher)}."
        )
    if refined:
        # Named by rule, not by its figures: choosing the best on test would flatter it.
        best = min(refined, key=_preference)
        group = next(group for group in table if best in group.lines)
        start = next((line for line in group.lines if line.decode.search.name == best.decode.search.baseline), None)
        if start:
            told.append(f"The {start.decode.search.title} of “{start.system}” alone reaches {_figures(start)}.")
        told.append(f"Refined by {_steps_words(best)}: {_figures(best)}{_gain(best, start)}.")
        told += _against(best, teacher)
    return told


def _trade(lines: list[Line]) -> list[str]:
    """The best trades of quality and speed among the timed rows, and how many autoregressive ones they beat.

    The fastest non-autoregressive row that is at least as good as every autoregressive one, if any, and the one with
    the largest speed-up over the fastest autoregressive row of at least its quality.
    """
    timed = [line for line in lines if line.figures["latency_ms"] is not None]
    rivals = [line for line in timed if line.decode.system.autoregressive]
    others = [line for line in timed if not line.decode.system.autoregressive]
    if not rivals or not others:
        return []
    best = max(rivals, key=lambda line: (line.figures["bleu"], -line.figures["latency_ms"]))
    as_good = [line for line in others if line.figures["bleu"] >= best.figures["bleu"]]
    told = []
    if as_good:
        chosen = min(as_good, key=lambda line: (line.figures["latency_ms"], -line.figures["bleu"]))
        told.append(
            f"The fastest row that is as good as every autoregressive one: {_named(chosen)} reaches {_figures(chosen)} "
            f"in {_milliseconds(chosen)} a sentence. The best autoregressive row ({_named(best)}) reaches "
            f"{_figures(best)} in {_milliseconds(best)}."
        )
    compared = [line for line in others if line.figures["against_fastest"] is not None]
    if compared:
        chosen = max(compared, key=lambda line: (line.figures["against_fastest"], line.figures["bleu"]))
        told.append(
            f"The largest gain at equal quality: {_named(chosen)} reaches {_figures(chosen)} in "
            f"{_milliseconds(chosen)} a sentence, {chosen.figures['against_fastest']:.2f} times as fast as the fastest "
            f"autoregressive row that is at least as good ({chosen.rival})."
        )
    beaten = sum(any(_ahead(line, rival) for line in others) for rival in rivals)
    told.append(
        f"Of {len(rivals)} autoregressive rows that were timed, {beaten} have a non-autoregressive row that is faster "
        "and at least as good."
    )
    return told


def _ahead(line: Line, rival: Line) -> bool:
    ours, theirs = line.figures, rival.figures
    return ours["latency_ms"] < theirs["latency_ms"] and ours["bleu"] >= theirs["bleu"]


def _named(line: Line) -> str:
    return f"“{line.system}”, {line.label}"


def _milliseconds(line: Line) -> str:
    return f"{line.figures['latency_ms']:.3g} ms"


def _preference(line: Line) -> tuple[bool, int, float]:
    """Trained networks before what a model does by itself, in the order of their families; then the most steps."""
    search, value = line.decode.search, line.decode.value
    return search.control is None, line.decode.system.order, -(value or 0)


def _search_words(line: Line) -> str:
    return f"{line.decode.search.title} search"


def _steps_words(line: Line) -> str:
    """A search with the value of its series: `score with four steps`."""
    search, value = line.decode.search, line.decode.value
    if search.series is None or value is None:
        return search.title
    counted = search.series.replace("_", " ")
    number = in_words(int(value)) if value == int(value) else f"{value:g}"
    return f"{search.title} with {number} {counted.removesuffix('s') if value == 1 else counted}"


def _against(best: Line, teacher: Line | None) -> list[str]:
    """Quality and speed against the reference, and against the fastest row that is as good."""
    told = []
    speedup, fairly = best.figures["speedup"], best.figures["against_fastest"]
    if teacher and speedup:
        gap = teacher.figures["bleu"] - best.figures["bleu"]
        where = f"{abs(gap):.1f} BLEU {'below' if gap >= 0 else 'above'} {_search_words(teacher)}"
        pace = f"{speedup:.1f} times as fast" if speedup >= 1 else f"slower than it by a factor of {1 / speedup:.1f}"
        told.append(f"That is {where}, and {pace}, one sentence at a time.")
    if fairly:
        pace = f"{fairly:.2f} times as fast" if fairly >= 1 else f"slower by a factor of {1 / fairly:.2f}"
        told.append(f"Against the fastest autoregressive row that is at least as good ({best.rival}) it is {pace}.")
    return told


def _figures(line: Line) -> str:
    text = f"{line.figures['bleu']:.1f} BLEU"
    if line.figures["validity"] is not None:
        text += f" with {100 * line.figures['validity']:.1f} % valid outputs"
    return text


def _gain(best: Line, start: Line | None) -> str:
    if start is None:
        return ""
    gain = best.figures["bleu"] - start.figures["bleu"]
    return f", {abs(gain):.1f} BLEU {'more' if gain >= 0 else 'less'} than the {start.decode.search.title}"
