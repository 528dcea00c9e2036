"""Measure how many principal components hold the variance of a system's posterior means."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src import jobs
from workflow_src.evaluation.analyses import components, inputs

BATCH = 64


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    # The smallest components would be lost in rounding.
    arguments.precision = "float32"
    translators = inputs.open_bundles(arguments)
    taken = inputs.sentences(arguments, settings["sentences"])
    systems = []
    for entry in settings["searches"]:
        translator = translators[entry["system"]]
        latents = components.posterior_latents(
            translator.network,
            translator.subwords.encode_source(taken.sources),
            translator.subwords.encode_target(taken.targets),
            BATCH,
            translator.runtime.device,
        )
        systems.append(entry | components.summary(latents, settings["share"]))
    inputs.write(arguments, "components", sentences=len(taken.sources), share=settings["share"], systems=systems)
    counted = ", ".join(f"{one['system']} {one['components']} of {one['width']}" for one in systems)
    return f"{arguments.output}: components {counted}, {len(taken.sources)} sentences"


def make_parser() -> argparse.ArgumentParser:
    return inputs.make_parser(__doc__)


if __name__ == "__main__":
    jobs.start(run, make_parser())
