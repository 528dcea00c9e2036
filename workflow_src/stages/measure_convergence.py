"""Measure bound and BLEU of what every step of refinement puts out, and at which step outputs stand still."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src import jobs
from workflow_src.data.bleu import corpus_bleu
from workflow_src.evaluation.analyses import inputs
from workflow_src.evaluation.analyses.convergence import bounds, point, stopped
from workflow_src.evaluation.analyses.lengths import entry_settings
from workflow_src.spec import MODEL
from workflow_src.types import EOS


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    # Steps differ by less than what bfloat16 tells apart.
    arguments.precision = "float32"
    translators = inputs.open_bundles(arguments)
    taken = inputs.sentences(arguments, settings["sentences"])
    curves = []
    for entry in settings["searches"]:
        translator, chosen = translators[entry["system"]], entry_settings(entry, settings["steps"])
        traces = translator.search(taken.sources, chosen, trace=True, scored=False, normalised=True).traces
        model, device = translator.networks(chosen)[MODEL], translator.runtime.device
        values = [
            bounds(
                model,
                [*ids, EOS],
                [step[number] for step in traces],
                settings["samples"],
                settings["seed"],
                taken.numbers[number],
                device,
            )
            for number, ids in enumerate(translator.subwords.encode_source(taken.sources))
        ]
        columns, shares = list(zip(*values, strict=True)), [0.0, *stopped(traces)]
        points = []
        for step, column in enumerate(columns):
            texts = translator.text(traces[step], settings["remove_repetitions"])
            more = {"bleu": corpus_bleu(texts, taken.references, settings["bleu_tokeniser"]), "stopped": shares[step]}
            points.append(point(step, column, columns[0]) | more)
        curves.append(entry | {"points": points})
        jobs.log.info("%s of %s: %d sentences", entry["search"], entry["system"], len(values))
    inputs.write(
        arguments,
        "convergence",
        sentences=len(taken.sources),
        samples=settings["samples"],
        curves=curves,
        remove_repetitions=settings["remove_repetitions"],
    )
    return f"{arguments.output}: {len(curves)} procedures, {len(taken.sources)} sentences"


def make_parser() -> argparse.ArgumentParser:
    return inputs.make_parser(__doc__)


if __name__ == "__main__":
    jobs.start(run, make_parser())
