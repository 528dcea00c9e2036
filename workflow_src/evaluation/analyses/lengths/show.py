"""Tables of how well lengths are predicted, and of BLEU by where lengths come from."""

from __future__ import annotations

from workflow_src.evaluation.analyses.lengths import Lengths
from workflow_src.evaluation.analyses.shown import captioned, sentence
from workflow_src.evaluation.conventions import removal_words
from workflow_src.evaluation.document import Block, Caption, Table
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.markdown import signed


def show(content: Lengths, manifest: Manifest) -> list[Block]:
    accuracy = Caption(f"Predicted target lengths against the references', in subwords, on {content.scope}.")
    cost = Caption(
        f"BLEU on {content.scope}, by where lengths come from.",
        {
            "Repetitions": sentence(removal_words(content.remove_repetitions)),
            "Best": "The candidate with the best sentence BLEU, which no system can choose. It is no bound: another "
            "choice may have more corpus BLEU, and so may other lengths.",
        },
    )
    return [captioned(accuracy_table(content), accuracy), captioned(length_table(content, manifest), cost)]


def accuracy_table(content: Lengths) -> Table:
    count = content.candidates
    heads = ["", "exact, %", "off by ≤ 1, %", "off by ≤ 2, %", f"among the {count} likeliest, %", "bias, subwords"]
    rows = [
        [
            name,
            *(f"{100 * share:.1f}" for share in (model.exact, model.within_1, model.within_2)),
            f"{100 * model.within_top[-1]:.1f}",
            signed(model.bias),
        ]
        for name, model in content.models.items()
    ]
    return Table(heads, rows)


def length_table(content: Lengths, manifest: Manifest) -> Table:
    several = len(content.models) > 1
    heads = ["", "predicted length", "reference's length", f"best of the {content.candidates} likeliest"]
    rows = []
    for row in content.rows:
        name = row.label or manifest.title(row.search) + (f", L = {row.steps}" if row.steps else "")
        name += f" ({row.system})" if several else ""
        rows.append([name, *(f"{bleu:.1f}" for bleu in (row.bleu.predicted, row.bleu.reference, row.bleu.oracle))])
    return Table(heads, rows)
