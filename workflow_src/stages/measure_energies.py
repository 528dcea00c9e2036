"""Measure the energy, -log p(y|x) under one system, of what every row put out, and of the references."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workflow_src import jobs
from workflow_src.data.lines import read_aligned
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.data.subwords import Subwords
from workflow_src.evaluation.analyses import inputs
from workflow_src.evaluation.analyses.energies import energies, summary


def without(removal: str, rows: list[list[int]], subwords: Subwords) -> list[list[int]]:
    """Outputs as tables score them: without the repetitions that `removal` names."""
    if removal == "subwords":
        return subwords.without_repetitions(rows)
    if removal == "words":
        return subwords.encode_target([collapse_repetitions(text) for text in subwords.decode_target(rows)])
    return rows


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    # Differences between rows may be smaller than what bfloat16 tells apart.
    arguments.precision = "float32"
    translator = inputs.open_bundles(arguments)[settings["scorer"]]
    subwords, device = translator.subwords, translator.runtime.device
    source, target = read_aligned(arguments.source, arguments.target)
    sources = subwords.encode_source(source)
    ids = inputs.target_ids(subwords)

    def measured(rows: list[list[int]]) -> dict[str, Any]:
        return summary(energies(translator.network, sources, rows, arguments.batch, device), rows)

    reference = measured(subwords.encode_target(target))
    found = []
    for row in settings["rows"]:
        removal = row["repetitions_removed"]
        written = without(removal, inputs.outputs(Path(row["details"]), ids, len(sources)), subwords)
        told = {key: row[key] for key in ("system", "name", "seed", "repetitions_removed")}
        found.append(told | measured(written))
        jobs.log.info("%s %s, seed %s: %s", row["system"], row["name"], row["seed"], found[-1]["per_sentence"])
    files = {f"details {row['system']} {row['name']} {row['seed']}": Path(row["details"]) for row in settings["rows"]}
    inputs.write(arguments, "energies", files, scorer=settings["scorer"], reference=reference, rows=found)
    return f"{arguments.output}: {len(found)} rows, {len(sources)} sentences"


def make_parser() -> argparse.ArgumentParser:
    made = inputs.make_parser(__doc__)
    made.add_argument("--batch", type=int, default=64, help="sentences scored together")
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
