"""Translate from one sample of the prior, refine it, and keep the sentences that refinement changes most."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src import jobs
from workflow_src.evaluation.analyses import inputs
from workflow_src.evaluation.analyses.changes import pick
from workflow_src.evaluation.analyses.lengths import procedure
from workflow_src.evaluation.analyses.samples import sample_and_refine
from workflow_src.types import EOS


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    entry = settings["searches"][0]
    translator = inputs.open_bundles(arguments)[entry["system"]]
    taken = inputs.sentences(arguments, settings["sentences"])
    chosen = procedure(translator, entry, settings["steps"])
    pairs = [
        sample_and_refine(chosen, [*ids, EOS], settings["seed"], sentence, translator.runtime.device)
        for ids, sentence in zip(translator.subwords.encode_source(taken.sources), taken.numbers, strict=True)
    ]
    sampled, refined = (translator.text([pair[side] for pair in pairs]) for side in (0, 1))
    shown = pick([list(map(list, zip(sampled, refined, strict=True)))], settings["examples"])
    examples = [
        {
            "index": taken.numbers[i],
            "source": translator.source_text(taken.sources[i]),
            "reference": taken.references[i],
            "sampled": sampled[i],
            "refined": refined[i],
        }
        for i in shown
    ]
    inputs.write(
        arguments, "samples", sentences=len(pairs), search=entry | {"steps": settings["steps"]}, examples=examples
    )
    return f"{arguments.output}: {len(examples)} of {len(pairs)} sentences"


def make_parser() -> argparse.ArgumentParser:
    return inputs.make_parser(__doc__)


if __name__ == "__main__":
    jobs.start(run, make_parser())
