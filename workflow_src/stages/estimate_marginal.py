"""Estimate the marginal log-probability of what every refinement procedure puts out, step by step."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src import jobs
from workflow_src.evaluation.analyses import inputs
from workflow_src.evaluation.analyses.lengths import entry_settings
from workflow_src.evaluation.analyses.marginal import marginals, point
from workflow_src.spec import MODEL
from workflow_src.types import EOS


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    # Steps differ by less than what bfloat16 tells apart.
    arguments.precision = "float32"
    translators = inputs.open_bundles(arguments)
    taken = inputs.sentences(arguments, settings["sentences"])
    lines = taken.sources
    steps = [0, *sorted({step for step in settings["steps"] if step})]
    curves = []
    # Outputs of all procedures of one model together: the prior mean's, and many others, are the same.
    for model_name in dict.fromkeys(entry["model"] for entry in settings["searches"]):
        entries = [entry for entry in settings["searches"] if entry["model"] == model_name]
        translator = translators[entries[0]["system"]]
        model = translator.networks(entry_settings(entries[0], 0))[MODEL]
        sources = translator.subwords.encode_source(lines)
        outputs = [
            translators[entry["system"]]
            .search(lines, entry_settings(entry, steps[-1]), trace=True, scored=False, normalised=True)
            .traces
            for entry in entries
        ]
        estimates = []
        for number, sentence in enumerate(taken.numbers):
            wanted = [trace[step][number] for trace in outputs for step in steps]
            found = marginals(
                model,
                [*sources[number], EOS],
                wanted,
                settings["samples"],
                settings["seed"],
                sentence,
                arguments.chunk,
                translator.runtime.device,
            )
            estimates.append([found[i : i + len(steps)] for i in range(0, len(found), len(steps))])
            if (number + 1) % 50 == 0:
                jobs.log.info("%s: %d of %d sentences", model_name, number + 1, len(lines))
        for place, entry in enumerate(entries):
            rows = [row[place] for row in estimates]
            points = [point(step, [r[i] for r in rows], [r[0] for r in rows]) for i, step in enumerate(steps)]
            curves.append(entry | {"points": points})
    inputs.write(arguments, "marginal", sentences=len(lines), samples=settings["samples"], curves=curves)
    return f"{arguments.output}: {len(curves)} procedures, {len(lines)} sentences, {settings['samples']} samples each"


def make_parser() -> argparse.ArgumentParser:
    made = inputs.make_parser(__doc__)
    made.add_argument("--chunk", type=int, default=100, help="samples decoded together")
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
