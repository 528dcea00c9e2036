"""Measure energies, -log p(y|x) under one system or several, of what every row put out, and of the references.

Also of what searches put out at the lengths of the references, with its BLEU, where settings ask for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workflow_src import jobs
from workflow_src.config.analyses import scoring_systems
from workflow_src.data.lines import read_aligned
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.data.subwords import Subwords
from workflow_src.evaluation.analyses import inputs, lengths
from workflow_src.evaluation.analyses.energies import under
from workflow_src.evaluation.quality import metrics
from workflow_src.registry import settings_of


def without(removal: str, rows: list[list[int]], subwords: Subwords) -> list[list[int]]:
    """Outputs as tables score them: without the repetitions that `removal` names."""
    if removal == "subwords":
        return subwords.without_repetitions(rows)
    if removal == "words":
        return subwords.encode_target([collapse_repetitions(text) for text in subwords.decode_target(rows)])
    return rows


def at_lengths(
    translator: Any, settings: dict[str, Any], sources: list[list[int]], targets: list[list[int]], batch: int
) -> list[list[int]]:
    """Outputs (subword ids) of a search, with `settings` as rules are handed them, at the lengths of `targets`.

    Lengths are at least 1, as in training, and at most the longest that the model's length head knows. An empty source
    gives an empty output.
    """
    chosen = lengths.procedure_of(translator, settings_of(settings))
    there = [number for number, source in enumerate(sources) if source]
    wanted = [max(1, min(len(targets[number]), chosen.model.length.longest)) for number in there]
    device = translator.runtime.device
    found: list[list[int]] = [[] for _ in sources]
    tokens = lengths.translate_with(chosen, [sources[number] for number in there], wanted, batch, device)
    for number, output in zip(there, tokens, strict=True):
        found[number] = output
    return found


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    # Differences between rows may be smaller than what bfloat16 tells apart.
    arguments.precision = "float32"
    translators, names = inputs.open_bundles(arguments), scoring_systems(settings)
    scorers = {name: translators[name] for name in names}
    subwords = scorers[names[0]].subwords
    source, target, references = read_aligned(arguments.source, arguments.target, arguments.reference)
    sources, targets = subwords.encode_source(source), subwords.encode_target(target)
    ids = inputs.target_ids(subwords)

    def measured(rows: list[list[int]]) -> dict[str, Any]:
        return under(scorers, sources, rows, arguments.batch)

    found = []
    for row in settings["rows"]:
        removal = row["repetitions_removed"]
        written = without(removal, inputs.outputs(Path(row["details"]), ids, len(sources)), subwords)
        told = {key: row[key] for key in ("system", "name", "seed", "repetitions_removed")}
        found.append(told | measured(written))
        jobs.log.info("%s %s, seed %s: %s", row["system"], row["name"], row["seed"], found[-1]["per_sentence"])
    given = []
    for entry in settings.get("searches", ()):
        removal, translator = entry["repetitions_removed"], translators[entry["system"]]
        tokens = at_lengths(translator, entry["settings"], sources, targets, arguments.batch)
        language = translator.description["languages"]["target"]
        bleu = metrics.bleu_by_convention(
            translator.text(tokens, removal), references, language, settings["bleu_tokeniser"]
        )
        # Symbols that the model's family adds to the vocabulary are none of the scorer's.
        written = [[ids[piece] for piece in subwords.pieces_target(output)] for output in tokens]
        told = {key: entry[key] for key in ("system", "name", "repetitions_removed")}
        given.append(told | {"bleu": bleu} | measured(without(removal, written, subwords)))
        jobs.log.info("%s %s at the references' lengths: BLEU %.2f", entry["system"], entry["name"], bleu["bleu"])
    files = {f"details {row['system']} {row['name']} {row['seed']}": Path(row["details"]) for row in settings["rows"]}
    more = {"at_reference_lengths": given} if given else {}
    inputs.write(arguments, "energies", files, scorer=names[0], reference=measured(targets), rows=found, **more)
    return f"{arguments.output}: {len(found)} rows, {len(sources)} sentences"


def make_parser() -> argparse.ArgumentParser:
    made = inputs.make_parser(__doc__)
    made.add_argument("--batch", type=int, default=64, help="sentences decoded or scored together")
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
