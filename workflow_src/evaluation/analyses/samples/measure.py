"""Translations from one sample of the prior, and after refinement (Lee et al. 2020, section 6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workflow_src.decoding.candidates import unpadded
from workflow_src.decoding.refinement import Refinement
from workflow_src.evaluation.analyses.inputs import Inputs, pick, sentence_generator
from workflow_src.evaluation.analyses.networks import entry_settings, refinement
from workflow_src.evaluation.analyses.samples import SamplesSettings
from workflow_src.types import EOS


def measure(inputs: Inputs, settings: SamplesSettings) -> dict[str, Any]:
    (entry,) = inputs.searches
    translator, sentences = inputs.translator(entry["system"]), inputs.sentences(settings.sentences)
    search = refinement(translator, entry_settings(entry, settings.steps))
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
    search: Refinement, source: Sequence[int], seed: int, sentence: int, device: torch.device
) -> tuple[list[int], list[int]]:
    """Subwords decoded from z ~ p(z|x), and after the search's steps from there, at the predicted length.

    `source` has its end symbol. The draw depends on `seed` and `sentence` alone.
    """
    model = search.model
    memory = model.encode(torch.tensor([list(source)], device=device))
    mask = model.latent_mask(memory)
    mean, deviation = model.prior(memory, mask)
    noise = torch.randn(mean.shape, generator=sentence_generator(seed, sentence)).to(mean)
    z = mean + deviation * noise
    before, _ = model.read(memory, z, mask)
    for _ in range(search.steps or 0):
        z = search.moved(memory, z, mask)
    after, _ = model.read(memory, z, mask)
    return unpadded(before)[0], unpadded(after)[0]
