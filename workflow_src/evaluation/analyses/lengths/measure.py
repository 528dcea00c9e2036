"""How well lengths are predicted (Lee et al. 2020, section 4.2), and BLEU by where lengths come from."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch

from workflow_src.data.batching import pad
from workflow_src.data.bleu import corpus_bleu
from workflow_src.evaluation.analyses.inputs import BATCH, Inputs
from workflow_src.evaluation.analyses.lengths import LengthsSettings
from workflow_src.evaluation.analyses.networks import at_lengths, entry_settings, translate_with
from workflow_src.evaluation.quality import metrics


def measure(inputs: Inputs, settings: LengthsSettings) -> dict[str, Any]:
    sentences = inputs.sentences(settings.sentences)
    references, tokeniser = sentences.references, inputs.entries["bleu_tokeniser"]
    removal = inputs.entries["remove_repetitions"]
    models, rows = {}, []
    for entry in inputs.searches:
        translator = inputs.translator(entry["system"])
        search = at_lengths(translator, entry_settings(entry, settings.steps))
        device, model = translator.runtime.device, search.model
        sources = translator.subwords.encode_source(sentences.sources)
        targets = translator.subwords.encode_target(sentences.targets, sentences.sources)
        true = [min(len(ids), model.length.longest) for ids in targets]
        predicted = candidates(model, sources, settings.candidates, BATCH, device)
        models[entry["model"]] = {"system": entry["model"]} | accuracy(predicted, true)
        tried = [
            translator.text(translate_with(search, sources, lengths, BATCH, device), removal, sentences.sources)
            for lengths in (*map(list, zip(*predicted, strict=True)), true)
        ]
        *likely, at_reference = tried
        bleu = {
            "predicted": corpus_bleu(likely[0], references, tokeniser),
            "reference": corpus_bleu(at_reference, references, tokeniser),
            "oracle": corpus_bleu(metrics.best_by_sentence(likely, references, tokeniser), references, tokeniser),
        }
        rows.append(entry | {"label": search.declared.row_label(search.settings)} | bleu)
    return {
        "sentences": len(sentences.sources),
        "candidates": settings.candidates,
        "models": list(models.values()),
        "rows": rows,
        "remove_repetitions": removal,
    }


@torch.no_grad()
def candidates(model: Any, sources: Sequence[Sequence[int]], count: int, batch: int, device: Any) -> list[list[int]]:
    """For each source (subword ids, none empty) its `count` most probable target lengths, best first."""
    lengths: list[list[int]] = []
    for start in range(0, len(sources), batch):
        memory = model.encode(pad(sources[start : start + batch], eos=True).to(device))
        lengths += model.length.likely(memory, count).tolist()
    return lengths


def accuracy(predicted: Sequence[Sequence[int]], true: Sequence[int]) -> dict[str, Any]:
    """Shares of sentences whose most probable length is right, is off by at most 1 or 2 subwords, or is among the
    candidates; `bias` is predicted minus true, in subwords."""
    errors = [lengths[0] - length for lengths, length in zip(predicted, true, strict=True)]
    return {
        "exact": statistics.fmean(error == 0 for error in errors),
        "within_1": statistics.fmean(abs(error) <= 1 for error in errors),
        "within_2": statistics.fmean(abs(error) <= 2 for error in errors),
        "bias": statistics.fmean(errors),
        "within_top": statistics.fmean(length in lengths for lengths, length in zip(predicted, true, strict=True)),
    }
