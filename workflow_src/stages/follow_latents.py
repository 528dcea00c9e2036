"""Follow latents from step to step of every refinement procedure: distances, log-densities, directions of steps."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src import jobs
from workflow_src.evaluation.analyses import inputs
from workflow_src.evaluation.analyses.latent_paths import follow, point
from workflow_src.evaluation.analyses.lengths import entry_settings
from workflow_src.registry import step_maker
from workflow_src.spec import MODEL

BATCH = 64


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    # Steps differ by less than what bfloat16 tells apart.
    arguments.precision = "float32"
    translators = inputs.open_bundles(arguments)
    taken = inputs.sentences(arguments, settings["sentences"])
    steps = [0, *sorted({step for step in settings["steps"] if step})]
    curves = []
    for entry in settings["searches"]:
        translator, chosen = translators[entry["system"]], entry_settings(entry, steps[-1])
        networks, subwords = translator.networks(chosen), translator.subwords
        found = follow(
            networks[MODEL],
            step_maker(networks, chosen),
            subwords.encode_source(taken.sources),
            subwords.encode_target(taken.targets),
            steps[-1],
            BATCH,
            translator.runtime.device,
        )
        curves.append(entry | {"points": [point(step, [places[step] for places in found]) for step in steps]})
        jobs.log.info("%s of %s: %d sentences", entry["search"], entry["system"], len(found))
    inputs.write(arguments, "latent_paths", sentences=len(taken.sources), curves=curves)
    return f"{arguments.output}: {len(curves)} procedures, {len(taken.sources)} sentences"


def make_parser() -> argparse.ArgumentParser:
    return inputs.make_parser(__doc__)


if __name__ == "__main__":
    jobs.start(run, make_parser())
