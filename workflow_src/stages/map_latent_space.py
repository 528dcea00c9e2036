"""Map the two-dimensional latent space of one sentence: decoded subwords, the score network's field, paths."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src import jobs
from workflow_src.decoding.latent import StepMaker
from workflow_src.evaluation.analyses import inputs
from workflow_src.evaluation.analyses.latent_space import choose, map_sentence
from workflow_src.evaluation.analyses.lengths import entry_settings
from workflow_src.registry import searches, step_maker
from workflow_src.spec import MODEL, REFINER
from workflow_src.types import EOS


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    # A map has sharp borders, which rounding would fray.
    arguments.precision = "float32"
    entry = settings["searches"][0]
    translator = inputs.open_bundles(arguments)[entry["system"]]
    networks = translator.networks(entry_settings(entry, settings["steps"]))
    model, refiner, device = networks[MODEL], networks[REFINER], translator.runtime.device
    wanted = settings["sentence"]
    taken = inputs.sentences(arguments, settings["sentences"] if wanted is None else wanted + 1)
    sources = [[*ids, EOS] for ids in translator.subwords.encode_source(taken.sources)]
    targets = translator.subwords.encode_target(taken.targets)
    if wanted is None:
        place = choose(model, refiner, sources, targets, settings["positions"], settings["steps"], device)
    elif wanted in taken.numbers:
        place = taken.numbers.index(wanted)
    else:
        raise ValueError(f"line {wanted} of {arguments.source}, counted from 0, is empty or not there; name another.")
    makers = _step_makers(entry, settings["steps"], networks)
    drawn = (settings["steps"], settings["resolution"], settings["arrows"])
    found = map_sentence(model, refiner, makers, sources[place], targets[place], *drawn, device)
    ids = sorted(
        {cell for panel in found["panels"] for row in panel["regions"] for cell in row}
        | {token for tokens in found["outputs"].values() for token in tokens}
        | ({EOS} if found["end_symbol"] is not None else set())
    )
    pieces = dict(zip(map(str, ids), translator.subwords.pieces_target(ids), strict=True))
    texts = {
        name: translator.text([[token for token in tokens if token != EOS]])[0]
        for name, tokens in found["outputs"].items()
    }
    shown = {"sentence": taken.numbers[place], "source": taken.sources[place], "reference": taken.references[place]}
    shown |= {"system": entry["system"], "steps": settings["steps"], "pieces": pieces, "texts": texts}
    inputs.write(arguments, "latent_space", **shown, **found)
    return f"{arguments.output}: sentence {taken.numbers[place]}, {len(found['panels'])} positions"


def _step_makers(entry: dict[str, Any], steps: int, networks: dict[str, Any]) -> dict[str, StepMaker]:
    """Steps of the control of a search and of the search itself, by name."""
    names = [name for name in (searches()[entry["search"]].control, entry["search"]) if name]
    wanted = {name: entry_settings(entry | {"search": name}, steps) for name in names}
    return {name: step_maker(networks, settings) for name, settings in wanted.items()}


def make_parser() -> argparse.ArgumentParser:
    return inputs.make_parser(__doc__)


if __name__ == "__main__":
    jobs.start(run, make_parser())
