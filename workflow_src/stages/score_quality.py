"""Score one decode's translations by every metric of the experiment, and count repetitions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.config.metrics import ScoringSettings
from workflow_src.data.lines import check_parallel, read_aligned
from workflow_src.data.placeholders import PLACEHOLDERS, outcome_words
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.evaluation.quality import metrics
from workflow_src.evaluation.quality.computed import read_computed
from workflow_src.evaluation.quality.details import read_details
from workflow_src.evaluation.quality.variants import VARIANTS
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import numbered, provenance
from workflow_src.spec import Texts


class Inputs(JobInputs):
    settings: ScoringSettings = Field(description="the corpus and the metrics")
    hypotheses: Path = Field(description="translations, one a line")
    details: Path = Field(description="JSON lines of the decode")
    source: Path
    reference: tuple[Path, ...] = Field(min_length=1, description="one file for each reference of a source")
    computed: tuple[Path, ...] = Field((), description="figures of the sentences by metrics with a program")
    output: Path


def mean_steps(details: list[dict[str, Any]]) -> float | None:
    """Mean refinement steps over the sentences of a decode, or None where it used none."""
    steps = [line["steps"] for line in details if line.get("steps") is not None]
    return sum(steps) / len(steps) if steps else None


def placeholders(details: list[dict[str, Any]]) -> dict[str, int]:
    """Sums of the outcomes of placeholders; empty where a decode has none."""
    counts: Counter[str] = Counter()
    for line in details:
        counts.update(line.get(PLACEHOLDERS, {}))
    return dict(counts)


def run(inputs: Inputs) -> str:
    scoring, measured = inputs.settings, inputs.settings.measured
    hypotheses, sources, references, *further = read_aligned(inputs.hypotheses, inputs.source, *inputs.reference)
    check_parallel(inputs.hypotheses, inputs.details)
    details = read_details(inputs.details)
    shortened = [line[WITHOUT_REPEATED_SUBWORDS] for line in details]
    texts = Texts(hypotheses, references, sources, scoring.corpus, tuple(further), read_computed(inputs.computed))
    result = metrics.all_variants(measured, texts, shortened)
    result["mean_steps"] = mean_steps(details)
    placeholder_outcomes = placeholders(details)
    result |= {PLACEHOLDERS: placeholder_outcomes} if placeholder_outcomes else {}
    files = {
        "hypotheses": inputs.hypotheses,
        **numbered("reference", inputs.reference),
        "source": inputs.source,
        "details": inputs.details,
        **{f"computed {number}": path for number, path in enumerate(inputs.computed, 1)},
    }
    write_json(inputs.output, result | {"provenance": provenance(recorded(scoring), files)})
    unremoved, words, subwords = (result[name] for name in VARIANTS.values())
    main, *other_metrics = (entry.metric for entry in measured)
    figures = [
        f"{metric.title} {metric.factor * unremoved[metric.name]:.2f}{metric.unit and f' {metric.unit}'}"
        for metric in other_metrics
        if not metric.convention and unremoved[metric.name] is not None
    ]
    main_figures = (
        f"{main.title} {unremoved[main.name]:.2f} (without repeated words {words[main.name]:.2f}, subwords "
        f"{subwords[main.name]:.2f})"
    )
    spans = f"; {outcome_words(placeholder_outcomes)}" if placeholder_outcomes else ""
    return f"{inputs.output}: {', '.join([main_figures, *figures])}, {result['sentences']} sentences{spans}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
