"""Compare the test translations of every row with those of its baseline: p-values of paired bootstrap resampling."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workflow_src.artifacts import provenance, write_json
from workflow_src.data.lines import read_lines
from workflow_src.evaluation.quality import collapse_repetitions
from workflow_src.evaluation.significance import p_values
from workflow_src.stages import command


def compared(rows: list[dict[str, Any]], references: list[str]) -> list[dict[str, Any]]:
    """Rows with `p_value` by variant; rows without a baseline, or whose baseline has other seeds only, are left out.

    Repetitions are removed from what is not autoregressive, on both sides of a comparison, in variant `removed`.
    """
    by_key = {(row["system"], row["name"], row["seed"]): row for row in rows}
    texts = {key: list(read_lines(row["translations"])) for key, row in by_key.items()}

    def lines(key: tuple, removed: bool) -> list[str]:
        wanted = removed and not by_key[key]["autoregressive"]
        return [collapse_repetitions(text) for text in texts[key]] if wanted else texts[key]

    groups: dict[tuple, list[tuple]] = {}
    for key, row in by_key.items():
        baseline = row["baseline"] and (*row["baseline"], row["seed"])
        if baseline in by_key:
            groups.setdefault(baseline, []).append(key)
    found = {}
    for baseline, keys in groups.items():
        for variant in ("kept", "removed"):
            others = {key: lines(key, variant == "removed") for key in keys}
            tested = p_values(lines(baseline, variant == "removed"), others, references)
            for key, value in tested.items():
                found.setdefault(key, {"baseline": list(baseline[:2]), "p_value": {}})["p_value"][variant] = value
    return [{"system": key[0], "name": key[1], "seed": key[2]} | found[key] for key in by_key if key in found]


def run(given: argparse.Namespace) -> str:
    rows = given.settings["rows"]
    done = compared(rows, list(read_lines(given.reference))) if rows else []
    inputs = {"reference": given.reference} | {
        f"{row['system']} {row['name']} {row['seed']}": row["translations"] for row in rows
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
