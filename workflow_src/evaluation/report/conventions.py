"""How BLEU is counted: what is done about repetitions, and the conventions of published figures, in words."""

from __future__ import annotations

from collections.abc import Collection

from workflow_src.config.experiment import Removal, ReportConfig, removal
from workflow_src.evaluation.report.markdown import group_row, markdown_table
from workflow_src.evaluation.report.tables import REMOVAL_LABELS


def removal_words(removed: Removal | None, aligned: Collection[bool] = (False,)) -> str:
    """What is done about repetitions in the non-autoregressive outputs of a table, as the end of a sentence.

    `removed` is what was asked for, None for the default. `aligned` says whether outputs of the table are read off
    alignments: from those nothing is removed by default.
    """
    if removed is None and True in aligned:
        if False not in aligned:
            return "repetitions are kept, because the alignments that outputs are read off tell what comes twice"
        return f"{removal_words(None)}, and nothing from outputs that are read off alignments, as with a CTC loss"
    removed = removed or removal(False, False)
    if removed == "subwords":
        return "subwords that repeat the one before are removed before joining"
    return "words that repeat the one before are removed" if removed == "words" else "repetitions are kept"


def removal_caption(removed: Removal | None, split: str, aligned: Collection[bool] = (False,)) -> str:
    """What the table of ways to remove repetitions shows."""
    return (
        f"BLEU on {split} with repetitions kept, with words that repeat the one before removed from the text, and with "
        "subwords that repeat the one before removed before they are joined to words. In the main table, "
        f"{removal_words(removed, aligned)}."
    )


def source_words(report: ReportConfig) -> str:
    """Where published figures come from, in brackets after a blank; empty where the report does not say it."""
    return f" ({report.expected_source})" if report.expected_source else ""


def published_words(report: ReportConfig) -> str:
    """Where published figures come from and how they count BLEU, in sentences; empty where there are none."""
    if not report.expected:
        return ""
    counted = {
        "sacrebleu": "sacreBLEU, as the column BLEU is",
        "tokenised": "cased BLEU over tokens",
        "intl-lowercase": "BLEU over international tokens without case",
    }[report.expected_convention]
    text = f"Published figures{source_words(report)} are {counted}"
    if report.expected_convention == "sacrebleu":
        return f"{text}."
    return f"{text}: compare them with ours in the same convention beside them, not with the column BLEU."


def removal_table(removals: list[tuple[str, list[list[str]]]]) -> str:
    """`tables.removals` in Markdown, groups as bold lines."""
    heads = ["", *REMOVAL_LABELS.values()]
    rows = [row for title, group in removals for row in [group_row(title, heads), *group]]
    return markdown_table(heads, rows)
