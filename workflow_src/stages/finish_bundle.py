"""Stage finish_bundle: an exported folder as users get it, searching by default with what was best on dev."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from workflow_src.errors import ArtifactError
from workflow_src.evaluation.quality.choosing import dev_bleu
from workflow_src.jobs import parser, start
from workflow_src.records.atomic import link_file, read_chosen, read_json, sha256, write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import settings_of
from workflow_src.serving.choice import choice_words, compute_engine, default_fields

DESCRIPTION = "bundle.json"


def best_rows(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each search its row with the highest BLEU on dev, the best one first; the first listed of equal ones.

    `rows` are those of the settings: `name`, `settings`, `removal`, and the files `quality` and `chosen`, one or both.
    A best row has `row`, `engine`, `dev_bleu`, and `settings`, with those that dev chose.
    """
    measured = [
        {
            "row": row["name"],
            "engine": compute_engine(row["settings"]),
            "dev_bleu": dev_bleu(row["removal"], row.get("quality"), row.get("chosen")),
            "settings": row["settings"] | (read_chosen(row["chosen"]) if "chosen" in row else {}),
        }
        for row in rows
    ]
    best: dict[str, dict[str, Any]] = {}
    for row in sorted(measured, key=lambda row: -row["dev_bleu"]):
        best.setdefault(row["settings"]["search"], row)
    return best


def defaults_of(description: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """What a finished bundle's description says of its searches: `defaults`, `search_defaults`, `default_from`, and
    `remove_repetitions` where the experiment does; nothing where it has no search."""
    if not description["searches"]:
        return {}
    best = {search: row for search, row in best_rows(settings["rows"]).items() if search in description["searches"]}
    carried = {name: value for name, value in description["defaults"].items() if name != "search"}
    fields = {search: default_fields(settings_of(row["settings"]), carried) for search, row in best.items()}
    fields |= settings["search_defaults"]
    search = next(iter(best), description["defaults"]["search"])
    chosen = {"experiment": settings["experiment"], "rows": len(settings["rows"])}
    if search in settings["search_defaults"]:
        chosen["settings"] = "search_defaults"
    if search in best:
        chosen |= {name: best[search][name] for name in ("row", "engine", "dev_bleu")}
    return {
        "defaults": description["defaults"] | {"search": search},
        "search_defaults": {name: values for name, values in fields.items() if values},
        "default_from": chosen,
        **({"remove_repetitions": settings["remove_repetitions"]} if settings["remove_repetitions"] else {}),
    }


def run(given: argparse.Namespace) -> str:
    export, folder, settings = given.bundle, given.output_folder, given.settings
    description = read_json(export / DESCRIPTION)
    more = defaults_of(description, settings)
    files = description["provenance"]["files"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, digest in files.items():
        link_file(export / name, folder / name)
        if sha256(folder / name) != digest:
            raise ArtifactError(export / name, f"differs from what {export / DESCRIPTION} says", "export it again")
    inputs = {"bundle": export / DESCRIPTION}
    for row in settings["rows"]:
        inputs |= {f"{kind} {row['name']}": Path(row[kind]) for kind in ("quality", "chosen") if kind in row}
    made_by = provenance(settings, inputs, files)
    write_json(folder / DESCRIPTION, description | more | {"provenance": made_by})
    return f"{description['system']} is in {folder}" + (f": {choice_words(description | more)}" if more else "")


def arguments() -> argparse.ArgumentParser:
    made = parser(__doc__)
    made.add_argument("--bundle", type=Path, required=True, help="exported folder")
    made.add_argument("--output-folder", type=Path, required=True)
    return made


if __name__ == "__main__":
    start(run, arguments())
