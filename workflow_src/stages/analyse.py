"""Pick sentences that refinement changes most and keep their translation after every step, and others beside them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workflow_src import jobs
from workflow_src.config.manifest import differing, words
from workflow_src.data.lines import read_aligned
from workflow_src.evaluation.analyses.changes import pick
from workflow_src.evaluation.speed.rows import row_settings
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import searches, settings_of
from workflow_src.serving.folders import bundle_files, bundles, load

# The sentences that examples are picked from: enough to find telling ones, few enough to trace in seconds.
POOL = 200


def label(entry: dict[str, Any], entries: list[dict[str, Any]]) -> str:
    """Name of a traced search: the search, with its system and what tells it apart where others share the search."""
    search = searches()[entry["search"]]
    twins = sum(other["search"] == search.name for other in entries)
    name = search.title if twins == 1 else f"{entry['system']} {search.title}"
    apart = differing(entry, entries, search.settings.named("follow"))
    return f"{name}, {words(apart)}" if apart else name


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    followed, teacher, beside = settings["searches"], settings.get("teacher"), settings.get("beside", [])
    sources, references = (lines[:POOL] for lines in read_aligned(arguments.source, arguments.reference))
    folders = bundles(arguments.bundles)
    needed = {entry["system"] for entry in [*followed, *beside, *([teacher] if teacher else [])]}
    for system in sorted(needed - set(folders)):
        raise ValueError(f'--bundles has no folder for system "{system}"; add {system}=FOLDER.')
    translators = load(folders, needed, arguments)
    # The corpus is normalised already; normalising twice is not always the same as once.
    traces = [
        translators[e["system"]].trace(
            sources, settings_of({name: value for name, value in e.items() if name != "system"}), normalised=True
        )
        for e in followed
    ]
    chosen = pick(traces, settings["examples"])
    lines = [sources[index] for index in chosen]

    def translated(entry: dict[str, Any]) -> dict[int, str]:
        """Translations of the chosen sentences by their places."""
        if not chosen:
            return {}
        outputs = translators[entry["system"]].translate(lines, row_settings(entry), normalised=True)
        return dict(zip(chosen, outputs, strict=True))

    by_teacher = translated(teacher) if teacher else {}
    others = {f"{entry['system']} {searches()[entry['search']].title}": translated(entry) for entry in beside}
    examples = [
        {
            "index": index,
            "source": translators[followed[0]["system"]].source_text(sources[index]),
            "reference": references[index],
            "teacher": by_teacher.get(index),
            "searches": {label(e, followed): trace[index] for e, trace in zip(followed, traces, strict=True)},
            **({"beside": {name: texts[index] for name, texts in others.items()}} if others else {}),
        }
        for index in chosen
    ]
    inputs = {"source": arguments.source, "reference": arguments.reference} | bundle_files(folders, needed)
    made = provenance(settings, inputs)
    named = {label(entry, followed): {key: entry[key] for key in ("system", "search")} for entry in followed}
    content = {"examples": examples, "searches": named, "pool": len(sources), "provenance": made}
    write_json(arguments.output, content)
    return f"{arguments.output}: {len(examples)} of {len(sources)} sentences, {len(followed)} searches"


def make_parser() -> argparse.ArgumentParser:
    made = jobs.parser(__doc__)
    made.add_argument("--bundles", nargs="+", required=True, metavar="SYSTEM=FOLDER")
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--reference", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    jobs.add_runtime(made)
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
