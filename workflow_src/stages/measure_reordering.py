"""Measure how far posterior means move between source positions when a translation has another word order."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from workflow_src import jobs
from workflow_src.evaluation.analyses import inputs, reordering
from workflow_src.evaluation.analyses.components import posterior_latents
from workflow_src.serving.translator import Translator
from workflow_src.types import EOS

BATCH = 64


def means(translator: Translator, sources: list[list[int]], targets: list[list[int]]) -> list[Any]:
    found = posterior_latents(translator.network, sources, targets, BATCH, translator.runtime.device)
    return [mean for mean, _ in found]


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    # Means that hardly differ are told apart.
    arguments.precision = "float32"
    translators = inputs.open_bundles(arguments)
    first = next(iter(translators.values())).subwords
    taken = inputs.sentences(arguments, settings["sentences"])
    (row,) = settings["rows"]
    path = Path(row["details"])
    others = inputs.outputs(path, inputs.target_ids(first), taken.lines)
    sources, targets = first.encode_source(taken.sources), first.encode_target(taken.targets)
    others = [others[number] for number in taken.numbers]
    texts = first.decode_target(targets), first.decode_target(others)
    orders = [reordering.disagreement(a.split(), b.split()) for a, b in zip(*texts, strict=True)]
    # Equal translations have equal latents, and an order needs two words.
    kept = [i for i, order in enumerate(orders) if order is not None and texts[0][i] != texts[1][i]]
    if not kept:
        # Systems that have hardly been trained; a run goes on all the same.
        jobs.log.warning(
            "warning: no translation of %s differs from its reference and shares two words with it: nothing is "
            "compared. Raise analyses.reordering.sentences, or name another system in analyses.reordering.system.",
            path,
        )
    short = [i for i in kept if len(sources[i]) < settings["positions"]]
    example = max(short, key=lambda i: orders[i]) if short else min(kept, key=lambda i: len(sources[i]), default=None)
    systems, panels = [], []
    for entry in settings["searches"]:
        translator, rows = translators[entry["system"]], []
        pairs = [means(translator, [sources[i] for i in kept], [side[i] for i in kept]) for side in (targets, others)]
        for i, one, other in zip(kept, *pairs, strict=True):
            distances = reordering.distances_between(one, other)
            assigned = reordering.assignment(distances)
            rows.append(reordering.told(distances, assigned))
            if i == example:
                panel = entry | {"distances": distances.tolist(), "assigned": assigned}
                if entry.get("aligned"):
                    ids = [*sources[i], EOS]
                    panel["alignments"] = [
                        reordering.alignment(translator.network, ids, side[i], translator.runtime.device)
                        for side in (targets, others)
                    ]
                panels.append(panel)
        systems.append(entry | reordering.summary(rows, [orders[i] for i in kept]))
    shown = None
    if example is not None:
        names = first.names()["source"]
        shown = {
            "sentence": taken.numbers[example],
            "order": orders[example],
            "pieces": [names[i] for i in [*sources[example], EOS]],
            "texts": [side[example] for side in texts],
            "target_pieces": [first.pieces_target(side[example]) for side in (targets, others)],
            "panels": panels,
        }
    inputs.write(
        arguments,
        "reordering",
        {"details": path},
        sentences=len(taken.sources),
        compared=len(kept),
        translations={key: row[key] for key in ("system", "name")},
        systems=systems,
        example=shown,
    )
    return f"{arguments.output}: {len(kept)} of {len(taken.sources)} sentences, {len(systems)} systems"


def make_parser() -> argparse.ArgumentParser:
    return inputs.make_parser(__doc__)


if __name__ == "__main__":
    jobs.start(run, make_parser())
