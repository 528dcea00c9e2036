"""Measure how often predicted lengths are right, and BLEU with predicted, the reference's and the best of several."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src.evaluation import lengths, quality
from workflow_src.stages import analysis_inputs, command

BATCH = 64


def procedure(translator: Any, entry: dict[str, Any], steps: int) -> lengths.Procedure:
    """The search of an entry, with the models of its bundle."""
    steps = 0 if entry["search"] == "prior-mean" else steps
    refiner = translator.models.get(entry["search"])
    return lengths.Procedure(translator.models["lvm"], entry["search"], steps, entry["step_size"], refiner)


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    translators = analysis_inputs.open_bundles(arguments)
    taken = analysis_inputs.sentences(arguments, settings["sentences"])
    lines, references = taken.sources, taken.references
    models, rows = {}, []
    for entry in settings["searches"]:
        translator = translators[entry["system"]]
        device, model = translator.runtime.device, translator.models["lvm"]
        sources = translator.subwords.encode_source(lines)
        limit = model.length.longest
        true = [min(len(ids), limit) for ids in translator.subwords.encode_target(taken.targets)]
        predicted = lengths.candidates(model, sources, settings["candidates"], BATCH, device)
        models[entry["model"]] = lengths.accuracy(predicted, true)
        chosen = procedure(translator, entry, settings["steps"])

        def outputs(wanted: list[int], chosen=chosen, sources=sources, translator=translator) -> list[str]:
            tokens = lengths.translate_with(chosen, sources, wanted, BATCH, translator.runtime.device)
            return translator.text(tokens, settings["remove_repetitions"])

        tried = [outputs([best[number] for best in predicted]) for number in range(len(predicted[0]))]
        best = quality.best_by_sentence(tried, references)
        bleu = {
            "predicted": quality.bleu(tried[0], references),
            "reference": quality.bleu(outputs(true), references),
            "oracle": quality.bleu(best, references),
        }
        rows.append(entry | {"steps": chosen.steps, "bleu": bleu})
    analysis_inputs.write(
        arguments, "lengths", sentences=len(lines), candidates=settings["candidates"], models=models, rows=rows,
        remove_repetitions=settings["remove_repetitions"],
    )  # fmt: skip
    told = ", ".join(f"{name} {found['exact']:.1%} exact" for name, found in models.items())
    return f"{arguments.output}: {told}, {len(lines)} sentences"


def make_parser() -> argparse.ArgumentParser:
    return analysis_inputs.make_parser(__doc__)


if __name__ == "__main__":
    command.start(run, make_parser())
