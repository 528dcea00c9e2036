"""Compare outputs after every number of refinement steps with the first ones: edit distance and repetitions."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src import jobs
from workflow_src.evaluation.analyses import inputs
from workflow_src.evaluation.analyses.lengths import entry_settings
from workflow_src.evaluation.analyses.token_statistics import compare


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    translators = inputs.open_bundles(arguments)
    lines = inputs.sentences(arguments, settings["sentences"]).sources
    steps = [0, *sorted({step for step in settings["steps"] if step})]
    curves = []
    for entry in settings["searches"]:
        found = translators[entry["system"]].search(
            lines, entry_settings(entry, steps[-1]), trace=True, scored=False, normalised=True
        )
        points = [compare(found.traces[0], found.traces[step], step) for step in steps]
        curves.append(entry | {"points": points})
    inputs.write(arguments, "tokens", sentences=len(lines), curves=curves)
    return f"{arguments.output}: {len(curves)} procedures, {len(lines)} sentences"


def make_parser() -> argparse.ArgumentParser:
    return inputs.make_parser(__doc__)


if __name__ == "__main__":
    jobs.start(run, make_parser())
