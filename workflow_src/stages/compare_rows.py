"""Compare the test translations of every row with its baseline's, with every autoregressive row's, and of networks with
their control's: p-values."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workflow_src import jobs
from workflow_src.config.experiment import Removal
from workflow_src.data.lines import read_aligned, read_lines
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS, collapse_repetitions
from workflow_src.evaluation.quality.details import read_details
from workflow_src.evaluation.quality.metrics import VARIANTS, grammar_validity
from workflow_src.evaluation.quality.significance import TEST, pairwise_test, randomisation_test, share, statistics
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import controls

Key = tuple[str, str, int]


def compared(
    rows: list[dict[str, Any]], references: list[str], tokeniser: str, against: str = "baseline"
) -> list[dict[str, Any]]:
    """Rows with `difference` in BLEU and `p_value` by variant, against the row that `against` names in each.

    Rows that name none, or one that has other seeds only, are left out. Repetitions are removed from what is not
    autoregressive, on both sides of a comparison, as the variant's name says.
    """
    by_key = {(row["system"], row["name"], row["seed"]): row for row in rows}
    texts = {key: _texts(row) for key, row in by_key.items()}

    groups: dict[Key, list[Key]] = {}
    for key, row in by_key.items():
        other = row[against] and (*row[against], row["seed"])
        if other in by_key:
            groups.setdefault(other, []).append(key)
    compare = {*groups, *itertools.chain(*groups.values())}
    found: dict[Key, dict[str, Any]] = {}
    for removal, variant in VARIANTS.items():
        counts = {key: statistics(texts[key][removal], references, tokeniser) for key in compare}
        for other, keys in groups.items():
            differences, values = randomisation_test(counts[other], np.stack([counts[key] for key in keys]))
            for key, difference, value in zip(keys, differences, values, strict=True):
                entry = found.setdefault(key, {against: list(other[:2]), "difference": {}, "p_value": {}})
                entry["difference"][variant], entry["p_value"][variant] = float(difference), float(value)
    return [{"system": key[0], "name": key[1], "seed": key[2]} | found[key] for key in by_key if key in found]


def against_autoregressive(
    rows: list[dict[str, Any]], references: list[str], tokeniser: str, valid: Callable[[str, int], bool] | None = None
) -> list[dict[str, Any]]:
    """p-values of every row against each autoregressive row of its seed, repetitions removed as in the main table.

    A row has one entry a rival in `against`: its system and name, `bleu`, and `validity` where `valid`, of a
    translation and the number of its line, tells right ones.
    """
    found = []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        there = [row for row in rows if row["seed"] == seed]
        rivals = [number for number, row in enumerate(there) if row["autoregressive"]]
        if not rivals:
            continue
        texts = [_texts(row)[row["repetitions_removed"]] for row in there]
        counts = np.stack([statistics(lines, references, tokeniser) for lines in texts])
        values = {"bleu": pairwise_test(counts, rivals)}
        if valid:
            right = [[[float(valid(text, number))] for number, text in enumerate(lines)] for lines in texts]
            values["validity"] = pairwise_test(np.array(right), rivals, share)
        for number, row in enumerate(there):
            against = [
                {"system": there[rival]["system"], "name": there[rival]["name"]}
                | {figure: float(table[place, number]) for figure, table in values.items()}
                for place, rival in enumerate(rivals)
                if rival != number
            ]
            found.append({"system": row["system"], "name": row["name"], "seed": seed, "against": against})
    return found


def _texts(row: dict[str, Any]) -> dict[Removal, list[str]]:
    """A row's translations by what is removed from them."""
    kept = list(read_lines(row["translations"]))
    if row["autoregressive"]:
        return dict.fromkeys(VARIANTS, kept)
    joined = [line[WITHOUT_REPEATED_SUBWORDS] for line in read_details(Path(row["details"]))]
    return {"none": kept, "words": [collapse_repetitions(text) for text in kept], "subwords": joined}


def run(given: argparse.Namespace) -> str:
    settings = given.settings
    rows, tokeniser = settings["rows"], settings["bleu_tokeniser"]
    sources, references = read_aligned(given.source, given.reference)
    done = compared(rows, references, tokeniser)
    # Does a trained network beat its control, which needs none?
    networks = {name: compared(rows, references, tokeniser, name) for name in controls()}
    judge = grammar_validity(settings["source"], settings["target"]) if settings["generator"] else None
    valid = (lambda text, number: judge(sources[number], text)) if judge else None
    pairs = against_autoregressive(rows, references, tokeniser, valid)
    inputs = {"source": given.source, "reference": given.reference} | {
        f"{row['system']} {row['name']} {row['seed']}": row["translations"] for row in rows
    }
    inputs |= {
        f"details of {row['system']} {row['name']} {row['seed']}": row["details"]
        for row in rows
        if not row["autoregressive"]
    }
    content = {"test": TEST, "sentences": len(references), "rows": done, "against_autoregressive": pairs} | {
        f"against_{name}": found for name, found in networks.items()
    }
    write_json(given.output, content | {"provenance": provenance(given.settings, inputs)})
    told = "".join(f", {len(found)} with {name}" for name, found in networks.items())
    return f"{given.output}: {len(done)} of {len(rows)} rows compared with their baseline{told}"


def arguments() -> argparse.ArgumentParser:
    made = jobs.parser(__doc__)
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--reference", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    return made


if __name__ == "__main__":
    jobs.start(run, arguments())
