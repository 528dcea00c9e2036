"""Translations from one sample of the prior, and after refinement (Lee et al. 2020, section 6.2)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from workflow_src.decoding.latent import best_tokens, latent_mask, refine, word_rows
from workflow_src.evaluation.analyses.lengths import Procedure
from workflow_src.evaluation.analyses.marginal import sentence_generator


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
    step = procedure.make_step(memory, mask)
    before = best_tokens(model, memory, z, mask)
    after = best_tokens(model, memory, refine(z, step, procedure.steps), mask)
    return word_rows(before, mask)[0], word_rows(after, mask)[0]
