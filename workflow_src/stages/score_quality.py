"""Score one decode's translations: BLEU, chrF, lengths, repetitions, and validity on the toy corpus."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from workflow_src.artifacts import ArtifactError, provenance, write_json
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.evaluation import quality
from workflow_src.stages import command


def read_aligned(first: Path, *others: Path) -> list[list[str]]:
    """Lines of files that must have equally many, at least one. Raises ValueError naming files and counts."""
    for path in others:
        check_parallel(first, path)
    return [list(read_lines(path)) for path in (first, *others)]


def read_details(path: Path) -> list[dict[str, Any]]:
    """What a decode told of each sentence. Raises ArtifactError naming the file and line that cannot be used."""
    found = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            found.append(json.loads(line))
            found[-1].keys()
        except (json.JSONDecodeError, AttributeError):
            raise ArtifactError(f"line {number} of {path} is not a JSON object; make the file again.") from None
        if not isinstance(found[-1].get(WITHOUT_REPEATED_SUBWORDS), str):
            raise ArtifactError(
                f"line {number} of {path} has no {WITHOUT_REPEATED_SUBWORDS}, as files of earlier versions: delete it "
                "(and its shards, where there are some) and run again."
            )
    return found


def mean_steps(details: list[dict[str, Any]]) -> float | None:
    """Mean refinement steps over the sentences of a decode, or None where it used none."""
    used = [line["steps"] for line in details if line.get("steps") is not None]
    return sum(used) / len(used) if used else None


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    hypotheses, references, sources = read_aligned(arguments.hypotheses, arguments.reference, arguments.source)
    check_parallel(arguments.hypotheses, arguments.details)
    details = read_details(arguments.details)
    valid = quality.grammar_validity(settings["source"], settings["target"]) if settings.get("generator") else None
    joined = [line[WITHOUT_REPEATED_SUBWORDS] for line in details]
    result = quality.all_variants(hypotheses, joined, references, sources, valid, settings["target"])
    result["mean_steps"] = mean_steps(details)
    inputs = {name: getattr(arguments, name) for name in ("hypotheses", "reference", "source", "details")}
    write_json(arguments.output, result | {"provenance": provenance(settings, inputs)})
    kept, words, subwords = (result[name] for name in quality.VARIANTS.values())
    validity = "" if kept["validity"] is None else f", {kept['validity']:.1%} valid"
    return (
        f"{arguments.output}: BLEU {kept['bleu']:.2f} (without repeated words {words['bleu']:.2f}, subwords "
        f"{subwords['bleu']:.2f}), chrF {kept['chrf']:.2f}{validity}, {result['sentences']} sentences"
    )


def make_parser() -> argparse.ArgumentParser:
    made = command.parser(__doc__)
    made.add_argument("--hypotheses", type=Path, required=True, help="translations, one a line")
    made.add_argument("--details", type=Path, required=True, help="what the decode told of each, as JSON lines")
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--reference", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    return made


if __name__ == "__main__":
    command.start(run, make_parser())
