"""Words for the scoring of outputs: removal of repetitions, and conventions of published figures."""

from __future__ import annotations

from collections.abc import Collection

from workflow_src.config.experiment import Removal, ReportConfig, removal
from workflow_src.evaluation.manifest import Manifest


def removal_words(removed: Removal | None, means_repetitions: Collection[bool] = (False,)) -> str:
    """The treatment of repetitions in the non-autoregressive outputs of a table, as the end of a sentence.

    `removed` is the setting of the report, None for the default. `means_repetitions` says whether systems of the table
    mean repetitions (all, none or some): by default, none are removed from their outputs.
    """
    if removed is None and True in means_repetitions:
        if False not in means_repetitions:
            return "repetitions are kept, because these systems say what comes twice"
        kept = "nothing from outputs of systems that say what comes twice, as with a CTC loss or a graph"
        return f"{removal_words(None)}, and {kept}"
    removed = removed or removal(False, False)
    if removed == "subwords":
        return "subwords that repeat the one before are removed before joining"
    return "words that repeat the one before are removed" if removed == "words" else "repetitions are kept"


def source_words(report: ReportConfig) -> str:
    """The source of published figures, in brackets after a blank; empty where the report has none."""
    return f" ({report.expected_source})" if report.expected_source else ""


def published_words(manifest: Manifest) -> str:
    """Sentences about the source and convention of published figures; empty where there are none."""
    report, published, main = manifest.report, manifest.published, manifest.main
    if not report.expected or not published.convention:
        return ""
    text = f"Published figures{source_words(report)} are {published.convention.words}"
    if published is main:
        return f"{text}, as the column {main.title} is."
    return f"{text}: compare them with ours in the same convention beside them, not with the column {main.title}."
