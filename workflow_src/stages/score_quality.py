"""Score one decode's translations by every metric of the experiment, and count repetitions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workflow_src import jobs
from workflow_src.config.metrics import ScoringSettings
from workflow_src.data.lines import check_parallel, read_aligned
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.evaluation.quality import metrics
from workflow_src.evaluation.quality.details import read_details
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.spec import Texts


def mean_steps(details: list[dict[str, Any]]) -> float | None:
    """Mean refinement steps over the sentences of a decode, or None where it used none."""
    used = [line["steps"] for line in details if line.get("steps") is not None]
    return sum(used) / len(used) if used else None


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    hypotheses, references, sources = read_aligned(arguments.hypotheses, arguments.reference, arguments.source)
    check_parallel(arguments.hypotheses, arguments.details)
    details = read_details(arguments.details)
    scoring = ScoringSettings.model_validate(settings)
    joined = [line[WITHOUT_REPEATED_SUBWORDS] for line in details]
    texts = Texts(hypotheses, references, sources, scoring.corpus)
    result = metrics.all_variants(scoring.measured, texts, joined)
    result["mean_steps"] = mean_steps(details)
    inputs = {name: getattr(arguments, name) for name in ("hypotheses", "reference", "source", "details")}
    write_json(arguments.output, result | {"provenance": provenance(settings, inputs)})
    kept, words, subwords = (result[name] for name in metrics.VARIANTS.values())
    main, *others = (one.metric for one in scoring.measured)
    figures = [
        f"{metric.title} {metric.factor * kept[metric.name]:.2f}{metric.unit and f' {metric.unit}'}"
        for metric in others
        if not metric.convention and kept[metric.name] is not None
    ]
    first = (
        f"{main.title} {kept[main.name]:.2f} (without repeated words {words[main.name]:.2f}, subwords "
        f"{subwords[main.name]:.2f})"
    )
    return f"{arguments.output}: {', '.join([first, *figures])}, {result['sentences']} sentences"


def make_parser() -> argparse.ArgumentParser:
    made = jobs.parser(__doc__)
    made.add_argument("--hypotheses", type=Path, required=True, help="translations, one a line")
    made.add_argument("--details", type=Path, required=True, help="what the decode told of each, as JSON lines")
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--reference", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
