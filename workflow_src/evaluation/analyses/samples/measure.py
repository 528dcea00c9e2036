"""Translations from one sample of the prior, and after refinement (Lee et al. 2020, section 6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workflow_src.decoding.latent import best_tokens, latent_mask, word_rows
from workflow_src.decoding.refinement import refine
from workflow_src.evaluation.analyses.inputs import Inputs, pick, sentence_generator
from workflow_src.evaluation.analyses.networks import Procedure, entry_settings, procedure
from workflow_src.evaluation.analyses.samples import SamplesSettings
from workflow_src.types import EOS


def measure(inputs: Inputs, settings: SamplesSettings) -> dict[str, Any]:
    (entry,) = inputs.searches
    translator, sentences = inputs.translator(entry["system"]), inputs.sentences(settings.sentences)
    search = procedure(translator, entry_settings(entry, settings.steps))
    pairs = [
        sample_and_refine(search, [*ids, EOS], settings.seed, sentence, translator.runtime.device)
        for ids, sentence in zip(translator.subwords.encode_source(sentences.sources), sentences.numbers, strict=True)
    ]
    sampled, refined = (translator.text([pair[side] for pair in pairs], sources=sentences.sources) for side in (0, 1))
    chosen = pick([list(map(list, zip(sampled, refined, strict=True)))], settings.examples)
    examples = [
        {
            "index": sentences.numbers[i],
            "source": translator.source_text(sentences.sources[i]),
            "reference": sentences.references[i],
            "sampled": sampled[i],
            "refined": refined[i],
        }
        for i in chosen
    ]
    return {"sentences": len(pairs), "search": entry | {"steps": settings.steps}, "examples": examples}


@torch.no_grad()
def sample_and_refine(
    procedure: Procedure, source: Sequence[int], seed: int, sentence: int, device: torch.device
) -> tuple[list[int], list[int]]:
    """Subwords decoded from z ~ p(z|x), and after the procedure's steps from there, at the predicted length.

    `source` has its end symbol. The draw depends on `seed` and `sentence` alone.
    """
    model = procedure.model
    memory = model.encode(torch.tensor([list(source)], device=device))
    mask = latent_mask(model, model.predict_lengths(memory))
    mean, deviation = model.prior(memory, mask)
    noise = torch.randn(mean.shape, generator=sentence_generator(seed, sentence)).to(mean)
    z = mean + deviation * noise
    assert procedure.make_step is not None, "samples are refined by a search with steps"
    step = procedure.make_step(memory, mask)
    before = best_tokens(model, memory, z, mask)
    after = best_tokens(model, memory, refine(z, step, procedure.steps), mask)
    return word_rows(before, mask)[0], word_rows(after, mask)[0]
