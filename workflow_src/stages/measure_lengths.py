"""Measure how often predicted lengths are right, and BLEU with predicted, the reference's and the best of several."""

from __future__ import annotations

import argparse
from typing import Any

from workflow_src import jobs
from workflow_src.data.bleu import corpus_bleu
from workflow_src.evaluation.analyses import inputs, lengths
from workflow_src.evaluation.quality import metrics

BATCH = 64


def run(arguments: argparse.Namespace) -> str:
    settings: dict[str, Any] = arguments.settings
    translators = inputs.open_bundles(arguments)
    taken = inputs.sentences(arguments, settings["sentences"])
    lines, references, tokeniser = taken.sources, taken.references, settings["bleu_tokeniser"]
    models, rows = {}, []
    for entry in settings["searches"]:
        translator = translators[entry["system"]]
        chosen = lengths.procedure(translator, entry, settings["steps"])
        device, model = translator.runtime.device, chosen.model
        sources = translator.subwords.encode_source(lines)
        limit = model.length.longest
        true = [min(len(ids), limit) for ids in translator.subwords.encode_target(taken.targets)]
        predicted = lengths.candidates(model, sources, settings["candidates"], BATCH, device)
        models[entry["model"]] = lengths.accuracy(predicted, true)

        def outputs(wanted: list[int], chosen=chosen, sources=sources, translator=translator) -> list[str]:
            tokens = lengths.translate_with(chosen, sources, wanted, BATCH, translator.runtime.device)
            return translator.text(tokens, settings["remove_repetitions"])

        tried = [outputs([best[number] for best in predicted]) for number in range(len(predicted[0]))]
        best = metrics.best_by_sentence(tried, references, tokeniser)
        bleu = {
            "predicted": corpus_bleu(tried[0], references, tokeniser),
            "reference": corpus_bleu(outputs(true), references, tokeniser),
            "oracle": corpus_bleu(best, references, tokeniser),
        }
        label = {"label": chosen.label} if chosen.label else {}
        rows.append(entry | label | {"steps": chosen.steps, "bleu": bleu})
    inputs.write(
        arguments,
        "lengths",
        sentences=len(lines),
        candidates=settings["candidates"],
        models=models,
        rows=rows,
        remove_repetitions=settings["remove_repetitions"],
    )
    told = ", ".join(f"{name} {found['exact']:.1%} exact" for name, found in models.items())
    return f"{arguments.output}: {told}, {len(lines)} sentences"


def make_parser() -> argparse.ArgumentParser:
    return inputs.make_parser(__doc__)


if __name__ == "__main__":
    jobs.start(run, make_parser())
