"""Score one decode's translations: BLEU, chrF, lengths, repetitions, and validity on the toy corpus."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from workflow_src import jobs
from workflow_src.data.lines import read_aligned, read_lines
from workflow_src.evaluation.quality import metrics
from workflow_src.records.atomic import ArtifactError, write_json
from workflow_src.records.provenance import provenance


def mean_steps(path: Path) -> float | None:
    """Mean refinement steps over the sentences of a decode's details, or None where it used none."""
    steps = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            steps.append(json.loads(line).get("steps"))
        except (json.JSONDecodeError, AttributeError):
            raise ArtifactError(f"line {number} of {path} is not a JSON object; make the file again.") from None
    used = [value for value in steps if value is not None]
    return sum(used) / len(used) if used else None


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    hypotheses, references, sources = read_aligned(arguments.hypotheses, arguments.reference, arguments.source)
    valid = metrics.grammar_validity(settings["source"], settings["target"]) if settings.get("generator") else None
    result = metrics.both_variants(hypotheses, references, sources, valid, settings["target"])
    inputs = {"hypotheses": arguments.hypotheses, "reference": arguments.reference, "source": arguments.source}
    if arguments.details:
        result["mean_steps"] = mean_steps(arguments.details)
        inputs["details"] = arguments.details
    write_json(arguments.output, result | {"provenance": provenance(settings, inputs)})
    kept, removed = result["kept"], result["removed"]
    validity = "" if kept["validity"] is None else f", {kept['validity']:.1%} valid"
    return (
        f"{arguments.output}: BLEU {kept['bleu']:.2f} ({removed['bleu']:.2f} without repetitions), "
        f"chrF {kept['chrf']:.2f}{validity}, {result['sentences']} sentences"
    )


def make_parser() -> argparse.ArgumentParser:
    made = jobs.parser(__doc__)
    made.add_argument("--hypotheses", type=Path, required=True, help="translations, one a line")
    made.add_argument("--details", type=Path, help="what the decode told of each sentence, as JSON lines")
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--reference", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
