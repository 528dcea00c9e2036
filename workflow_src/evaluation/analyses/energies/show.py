"""Tables of energies: of every row of the main table, and at the references' lengths."""

from __future__ import annotations

from collections.abc import Sequence

from workflow_src.evaluation.analyses.energy import (
    AtReferenceLengths,
    RowEnergies,
    ScoredOutputs,
    ScoredRow,
    energy_words,
)
from workflow_src.evaluation.analyses.shown import captioned, decimal, sentence
from workflow_src.evaluation.conventions import removal_words, source_words
from workflow_src.evaluation.document import Block, Caption, Heading, Table
from workflow_src.evaluation.manifest import Manifest
from workflow_src.registry import conventions


def show(content: RowEnergies, manifest: Manifest) -> list[Block]:
    by_scorer = content.by_scorer(content.reference)
    scorers, scored = " and ".join(by_scorer), " and ".join(f"{e.sentences:,}" for e in by_scorer.values())
    caption = Caption(
        f"Energies of the references and of every row of the main table, on {content.split}.",
        {
            "Energy": energy_words(scorers),
            "±": "Standard error over sentences.",
            "Outputs": "Those that the main table scores.",
            "Not scored": "Sentences whose output is longer than the scorer's positions or impossible for it. Means of "
            f"all rows leave them out: they are over {scored} sentences.",
        },
    )
    blocks: list[Block] = [captioned(energies_table(content, manifest), caption)]
    if content.at_reference_lengths:
        table, caption = reference_lengths_table(content, manifest), _reference_lengths_caption(content, manifest)
        blocks += [Heading("At the references’ lengths"), captioned(table, caption)]
    return blocks


def energies_table(content: RowEnergies, manifest: Manifest) -> Table:
    """The references' energy, and each row's, under every scorer; a line for each seed where there are several."""
    several = len({row.seed for row in content.rows}) > 1
    labelled: list[tuple[str, ScoredOutputs]] = [("references", content.reference)]
    for row in content.rows:
        labelled.append((_row_label(row, manifest) + (f", seed {row.seed}" if several else ""), row))
    heads = ["", *_energy_heads(list(content.by_scorer(content.reference)))]
    return Table(heads, [[name, *_energy_cells(content, outputs)] for name, outputs in labelled])


def reference_lengths_table(content: RowEnergies, manifest: Manifest) -> Table:
    """BLEU in every convention, published BLEU and energies of outputs of searches at the references' lengths."""
    report, entries = manifest.report, content.at_reference_lengths
    published = [report.expected_reference_lengths.get(f"{row.system}/{row.name}") for row in entries]
    with_published = any(value is not None for value in published)
    by_title = {metric.convention.title: metric for metric in conventions().values() if metric.convention}
    heads = ["", *by_title]
    heads += [f"published ({_counted(manifest)})"] if with_published else []
    heads += _energy_heads(list(content.by_scorer(entries[0])))
    rows = []
    for row, value in zip(entries, published, strict=True):
        cells = [_row_label(row, manifest), *(decimal(row.bleu.get(metric.name)) for metric in by_title.values())]
        cells += [decimal(value)] if with_published else []
        rows.append(cells + _energy_cells(content, row))
    return Table(heads, rows)


def _reference_lengths_caption(content: RowEnergies, manifest: Manifest) -> Caption:
    report, entries = manifest.report, content.at_reference_lengths
    published = (
        f"Figures{source_words(report)} at these lengths too: compare them with the column {_counted(manifest)}."
    )
    several = len({row.seed for row in manifest.rows}) > 1
    return Caption(
        f"BLEU on {content.split}, and energies, of what searches put out at the lengths of the references.",
        {
            "Lengths": "No system knows those of the references: rows of the main table are at lengths of their own.",
            "Repetitions": sentence(removal_words(entries[0].repetitions_removed)),
            "Seeds": "Systems are those of the first seed." if several else "",
            "Published": published if report.expected_reference_lengths else "",
        },
    )


def _counted(manifest: Manifest) -> str:
    """How published figures are counted."""
    published = manifest.published
    return published.convention.title if published.convention else published.title


def _energy_heads(scorers: Sequence[str]) -> list[str]:
    """Three columns for each scorer, which they name where there are several."""
    several = len(scorers) > 1
    heads = [f"energy under {name}, nats a sentence" if several else "energy, nats a sentence" for name in scorers]
    return [head for first in heads for head in (first, "a token", "not scored")]


def _energy_cells(content: RowEnergies, outputs: ScoredOutputs) -> list[str]:
    cells = []
    for energy in content.by_scorer(outputs).values():
        value = energy.per_sentence
        cells += ["–", "–"] if value is None else [f"{value:.1f} ± {energy.error:.1f}", f"{energy.per_token:.2f}"]
        cells.append(str(energy.unscored))
    return cells


def _row_label(row: ScoredRow | AtReferenceLengths, manifest: Manifest) -> str:
    decode = manifest.find_decode(row.system, row.name)
    return f"{row.system}, {decode.label() if decode else row.name}"
