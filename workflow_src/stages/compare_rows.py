"""Compare the test translations of every row with those of its baseline: p-values of paired bootstrap resampling."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workflow_src.artifacts import provenance, write_json
from workflow_src.config.experiment import Removal
from workflow_src.data.lines import read_lines
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS, collapse_repetitions
from workflow_src.evaluation.quality import VARIANTS
from workflow_src.evaluation.significance import p_values
from workflow_src.stages import command
from workflow_src.stages.score_quality import read_details


def compared(rows: list[dict[str, Any]], references: list[str]) -> list[dict[str, Any]]:
    """Rows with `p_value` by variant; rows without a baseline, or whose baseline has other seeds only, are left out.

    Repetitions are removed from what is not autoregressive, on both sides of a comparison, as the variant's name says.
    """
    by_key = {(row["system"], row["name"], row["seed"]): row for row in rows}
    texts = {key: _texts(row) for key, row in by_key.items()}

    groups: dict[tuple, list[tuple]] = {}
    for key, row in by_key.items():
        baseline = row["baseline"] and (*row["baseline"], row["seed"])
        if baseline in by_key:
            groups.setdefault(baseline, []).append(key)
    found = {}
    for baseline, keys in groups.items():
        for removal, variant in VARIANTS.items():
            others = {key: texts[key][removal] for key in keys}
            tested = p_values(texts[baseline][removal], others, references)
            for key, value in tested.items():
                found.setdefault(key, {"baseline": list(baseline[:2]), "p_value": {}})["p_value"][variant] = value
    return [{"system": key[0], "name": key[1], "seed": key[2]} | found[key] for key in by_key if key in found]


def _texts(row: dict[str, Any]) -> dict[Removal, list[str]]:
    """A row's translations by what is removed from them."""
    kept = list(read_lines(row["translations"]))
    if row["autoregressive"]:
        return dict.fromkeys(VARIANTS, kept)
    joined = [line[WITHOUT_REPEATED_SUBWORDS] for line in read_details(Path(row["details"]))]
    return {"none": kept, "words": [collapse_repetitions(text) for text in kept], "subwords": joined}


def run(given: argparse.Namespace) -> str:
    rows = given.settings["rows"]
    done = compared(rows, list(read_lines(given.reference))) if rows else []
    inputs = {"reference": given.reference} | {
        f"{row['system']} {row['name']} {row['seed']}": row["translations"] for row in rows
    }
    inputs |= {
        f"details of {row['system']} {row['name']} {row['seed']}": row["details"]
        for row in rows
        if not row["autoregressive"]
    }
    write_json(given.output, {"rows": done, "provenance": provenance(given.settings, inputs)})
    return f"{given.output}: {len(done)} of {len(rows)} rows compared with their baseline"


def arguments() -> argparse.ArgumentParser:
    made = command.parser(__doc__)
    made.add_argument("--reference", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    return made


if __name__ == "__main__":
    command.start(run, arguments())
