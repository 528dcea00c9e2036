"""Notes on how to read a table of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import get_args

from workflow_src.config.experiment import Removal, ReportConfig, removal
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.tokenisers import BleuTokeniser
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.quality.significance import LEVEL
from workflow_src.evaluation.report.evidence import Evidence, Line
from workflow_src.evaluation.report.results import signature_tokeniser
from workflow_src.spec import Metric

OTHER_TOKENISERS = {*get_args(BleuTokeniser)} - {"13a"}
LATENCY = (
    "The median over sentences, one at a time, from text to text, with the systems of the first seed. ±: the standard "
    "deviation over sentences, which differ in length; it is no error of the median. Medians of rounds, the lowest and "
    "the highest, show how well it repeats."
)


def figure_words(lines: Sequence[Line]) -> dict[str, str]:
    """Notes on the figures of a table's lines, and what stands beside them."""
    means = [mean for line in lines for mean in line.means.values()]
    deviation = "The deviation over seeds, of which figures are means."
    return {
        "Bold": "The best figure of the main metric, of all rows and of those without autoregression.",
        "Brackets": "The 95 % bootstrap interval." if any(mean.low is not None for mean in means) else "",
        "±": deviation if any(line.seeds > 1 for line in lines) else "",
    }


def reference_words(manifest: Manifest, split: str) -> str:
    """A note on scoring with several references of a source; empty where there is one."""
    count = manifest.references(split)
    if count == 1:
        return ""
    alone = [metric.title for metric in manifest.metrics if metric.references == "first"]
    return f"Each source has {count}, which count together as in sacreBLEU." + (
        f" {', '.join(alone)}: the first one alone." if alone else ""
    )


def scored_words(normalisation: NormalisationConfig, metrics: Sequence[Metric], signatures: Mapping[str, str]) -> str:
    """Sentences about the metrics and the scored text, with the tokeniser of BLEU where it is not the default."""
    titles: dict[str, list[str]] = {}
    for metric in metrics:
        tokeniser = signature_tokeniser(signatures.get(metric.title, ""))
        by = f", by its tokeniser {tokeniser}" if tokeniser in OTHER_TOKENISERS else ""
        if metric.about:
            titles.setdefault(f"{metric.about}{by}", []).append(metric.title)
    sentences = [f"{', '.join(metric_titles)}: {description}." for description, metric_titles in titles.items()]
    text = "Text is detokenised and cased."
    if normalisation.references == "normalised":
        case = "lowercased" if normalisation.lowercase else "cased"
        text = f"Text is detokenised and {case}; references are normalised like the training text."
    return " ".join([*sentences, text])


def margin_words(margin: float, metrics: Sequence[Metric]) -> str:
    """So many points of each metric, such as "0.5 BLEU and 0.5 % valid outputs"."""
    return " and ".join(metric.in_words(margin) for metric in metrics)


def rival_words(evidence: Evidence) -> str:
    """A note on rows that are as good as others, and on speed-ups over the fastest of them; empty where rows were not
    compared."""
    if not evidence.pairs:
        return ""
    limited = [(metric, metric.least) for metric in evidence.metrics if metric.least is not None]
    limits = ", ".join(metric.in_words(metric.factor * least) for metric, least in limited)
    return (
        f"A row is as good as another one where it is shown to lose less than "
        f"{margin_words(evidence.margin, evidence.metrics)}: the lower end of the paired interval of their difference "
        f"({100 * (1 - LEVEL):g} % for all compared pairs of rows together, in each metric) lies above that margin. "
        "Speed-ups over the fastest autoregressive row that is as good (where none is, over the best one that the row "
        "is as good as) are within one kind of engine (PyTorch, or others of one compute type). "
        f"Nothing is concluded about rows worse than {limits or 'a metric allows'}, and beside a best autoregressive "
        "row whose training ended while it was still improving much."
    )


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
    report, main = manifest.report, manifest.main
    if not report.expected:
        return ""
    text = f"Published figures{source_words(report)} are {manifest.convention.words}"
    if manifest.published is main:
        return f"{text}, as the column {main.title} is."
    return f"{text}: compare them with ours in the same convention beside them, not with the column {main.title}."
