"""Words, example sentences and tables of the report."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import pandas as pd

from workflow_src.evaluation.document import (
    Block,
    Caption,
    Cell,
    Example,
    Fold,
    Line,
    Paragraph,
    marked,
    table_of,
)
from workflow_src.evaluation.labels import words
from workflow_src.evaluation.manifest import Manifest, colour_class
from workflow_src.evaluation.quality.metrics import LEAST_ROUND_TRIP
from workflow_src.evaluation.report.files import Choice, CorpusSummary, Traces
from workflow_src.evaluation.report.results import KEY, means
from workflow_src.registry import main_metric, searches


def language(code: str) -> str:
    """The English name of a language by its ISO 639 code of two or three letters; the code where it has none."""
    # Imported here, because it reads its tables on import.
    from iso639 import Language, LanguageNotFoundError

    for language_of in (Language.from_part1, Language.from_part3, Language.from_part2b):
        try:
            # Without "(macrolanguage)" and the years of a language.
            return re.sub(r" \((macrolanguage|[^)]*\d[^)]*)\)", "", language_of(code).name)
        except LanguageNotFoundError:
            continue
    return code


def examples(traces: Traces | None, manifest: Manifest) -> list[Block]:
    """Example sentences. The start of all searches stands once where it is the same text of the same search."""
    if traces is None or not traces.examples:
        return []
    which = "Words that a step changed are marked." if any(traces.examples[0].searches.values()) else ""
    split = manifest.plan.shown_split
    first = f"Of the first {traces.pool} sentences of {split}, those that change the most. {which}".strip()
    example_blocks: list[Block] = [Paragraph.of(first)]
    followed, declared = traces.searches, searches()
    for example in traces.examples:
        lines = [Line("source", example.source, source=True), Line("reference", example.reference)]
        lines += [Line("teacher", example.teacher)] if example.teacher is not None else []
        lines += [Line(name, text) for name, text in example.beside.items()]
        texts_by_name = {name: texts for name, texts in example.searches.items() if texts}
        kinds = {name: declared.get(followed[name].search) for name in texts_by_name}
        baselines = {kind.baseline if kind else None for kind in kinds.values()}
        texts_at_start = {texts[0] for texts in texts_by_name.values()}
        start = baselines.pop() if len(baselines) == len(texts_at_start) == 1 else None
        if start:
            decode = next((decode for decode in manifest.decodes if decode.search.name == start), None)
            style = colour_class(decode.look.colour) if decode else ""
            lines.append(Line(manifest.title(start), texts_at_start.pop(), first=True, style=style))
        for name, texts in texts_by_name.items():
            kind = kinds[name]
            style = colour_class(manifest.look(followed[name].system, followed[name].search).colour)
            # The number of the first text of the trace.
            first_value = kind.first_value if kind else 0
            lines += _followed(name, texts, first_value, style, shared=start is not None)
        example_blocks.append(Example(tuple(lines)))
    return example_blocks


def _followed(name: str, texts: list[str], first: int, style: str, shared: bool) -> list[Line]:
    """The lines of a search that was followed: its start, number `first`, where that is not `shared`, and its steps, of
    which those without a change that follow each other share one."""
    start = [] if shared else [Line(f"{name} {first}", texts[0], first=True, style=style)]
    steps: list[Line] = []
    pairs = enumerate(itertools.pairwise(texts), first + 1)
    for unchanged, run in itertools.groupby(pairs, key=lambda step: step[1][0] == step[1][1]):
        changes = list(run)
        if unchanged:
            numbers = "–".join(dict.fromkeys(str(number) for number, _ in (changes[0], changes[-1])))
            steps.append(Line(f"{name} {numbers}", "unchanged", first=not steps, style=style, remark=True))
            continue
        for number, (before, after) in changes:
            steps.append(Line(f"{name} {number}", after, marked(before, after), first=not steps, style=style))
    return start + steps


def palette(manifest: Manifest) -> list[dict[str, str]]:
    """Colours of the page: class and the colour on light and on dark paper."""
    return [
        {"class": colour_class(colour), "light": look.light or colour, "dark": look.dark or colour}
        for look in manifest.palette
        if (colour := look.colour)
    ]


def round_trip_words(corpus: CorpusSummary) -> str:
    """BLEU of references that were normalised and put together like outputs; empty where it is not known."""
    figures = ", ".join(f"{bleu:.2f} on {split}" for split, bleu in corpus.round_trip_bleu.items())
    against = "outputs are scored against normalised references"
    return f"{figures}; {against}" if figures and corpus.normalisation.references == "normalised" else figures


def loss_words(corpus: CorpusSummary, split: str) -> str:
    """A sentence for captions where normalisation alone costs more BLEU than it should, else ""."""
    bleu = corpus.round_trip_bleu.get(split, 100.0)
    if bleu >= LEAST_ROUND_TRIP or corpus.normalisation.references == "normalised":
        return ""
    return (
        f"The references themselves, normalised and put together like outputs, have {bleu:.1f} BLEU here: "
        "normalisation costs the rest."
    )


def chosen(choices: Sequence[Choice]) -> list[Fold]:
    """For every decode that chose settings on dev: its title with the chosen settings, and all tried ones with figures.

    Figures are those of the main metric, and of the metric that decided where it is another.
    """
    folds = []
    for choice in choices:
        metrics = dict.fromkeys((main_metric(), choice.metric))
        in_steps = any(point["mean_steps"] for point in choice.points)
        entries: list[dict[str, str | Cell]] = [
            {"tried": words(point["settings"])}
            | {
                f"dev {metric.title}": Cell(
                    f"{metric.factor * point[metric.name]:.2f}{metric.unit and f' {metric.unit}'}",
                    strong=point["settings"] == choice.chosen,
                )
                for metric in metrics
            }
            | ({"mean steps": f"{point['mean_steps']:.2f}"} if in_steps else {})
            for point in choice.points
        ]
        edge = f" ({'; '.join(choice.at_edge)})" if choice.at_edge else ""
        title = f"{choice.decode.system.name}, {choice.decode.name}, seed {choice.seed}: {words(choice.chosen)}{edge}"
        caption = Caption("", {"Bold": "The settings that were chosen."})
        folds.append(Fold(title, [table_of(entries, ("tried",), caption=caption)]))
    return folds


def convention_table(manifest: Manifest, shown: pd.DataFrame) -> list[Fold]:
    """The main metric of every row of the main table (`Results.shown`) by its own convention and those of papers;
    nothing where there is no other convention, or no row was scored by all."""
    by_title = {metric.convention.title: metric for metric in manifest.metrics if metric.convention}
    entries = []
    for (system, decode, seed), figures in means(shown, KEY).items():
        if all(metric.name in figures for metric in by_title.values()):
            counted = {title: f"{figures[metric.name].value:.1f}" for title, metric in by_title.items()}
            entries.append({"system": system, "decode": decode, "seed": str(seed)} | counted)
    if len(by_title) < 2 or not entries:
        return []
    words = ", and ".join(m.convention.words for m in by_title.values() if m.convention and m is not manifest.main)
    caption = Caption(f"For comparison with papers only: {words}.")
    title = f"{manifest.main.title} by other conventions"
    return [Fold(title, [table_of(entries, ("system", "decode"), caption=caption)])]
