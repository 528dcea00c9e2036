"""Inference in the latent-variable model: z <- step(z), L times, and only at the end y = argmax p(y|z,x).

Prior mean, delta, score and energy differ in `step` alone (Lee et al. 2020, algorithm 1; Shu et al. 2020 for delta).
"""

from __future__ import annotations

import torch
from torch import Tensor

from workflow_src.types import EOS, Hypotheses, LatentModel, RefinementStep, Refiner, wide


def delta_step(model: LatentModel, memory, target_mask: Tensor) -> RefinementStep:
    """One step of delta inference: z -> mean of q(z | argmax p(y|z,x), x)."""

    def step(z: Tensor) -> Tensor:
        tokens = best_tokens(model, memory, z, target_mask)
        return model.posterior(memory, tokens, target_mask)[0]

    return step


def gradient_step(refiner: Refiner, memory, target_mask: Tensor, step_size: float) -> RefinementStep:
    """One step along a learned direction: z -> z + step_size * s(z, x)."""

    def step(z: Tensor) -> Tensor:
        return z + step_size * refiner.direction(memory, z, target_mask)

    return step


def refine(z: Tensor, step: RefinementStep, steps: int) -> Tensor:
    """`steps` applications of `step` to latents (B, T, Z)."""
    for _ in range(steps):
        z = step(z)
    return z


def best_tokens(model: LatentModel, memory, z: Tensor, target_mask: Tensor) -> Tensor:
    """argmax p(y|z,x) at every position, (B, T); what stands at padding has no meaning."""
    logits = model.decode(memory, z, target_mask)
    # A special symbol is never a word of a translation.
    logits[..., : EOS + 1] = float("-inf")
    return logits.argmax(-1)


def length_mask(lengths: Tensor) -> Tensor:
    """Mask (B, T) of sentences of the given lengths (B,)."""
    return torch.arange(int(lengths.max()), device=lengths.device)[None, :] < lengths[:, None]


@torch.no_grad()
def translate_batch(
    model: LatentModel,
    source: Tensor,
    search: str,
    steps: int = 0,
    step_size: float = 1.0,
    refiner: Refiner | None = None,
    lengths: Tensor | None = None,
    trace: bool = False,
    scored: bool = True,
) -> Hypotheses:
    """Translate source (B, S) from the prior mean with `steps` steps of delta, score or energy (prior-mean: none).

    `lengths` (B,) replace the predicted ones. With `trace`, the translation after every step is kept. Scores are the
    model's own mean log p(y_t|z,x); without `scored` they are 0, which spares a normalisation. Sentences do not
    influence each other.

    Raises ValueError for an unknown search.
    """
    memory = model.encode(source)
    if lengths is None:
        lengths = model.predict_lengths(memory)
    mask = length_mask(lengths)
    z, _ = model.prior(memory, mask)
    step = _step(model, memory, mask, search, step_size, refiner)
    traces = [] if trace else None
    steps = 0 if search == "prior-mean" else steps
    for _ in range(steps):
        if traces is not None:
            traces.append(_rows(best_tokens(model, memory, z, mask), lengths))
        z = step(z)
    logits = model.decode(memory, z, mask)
    # Special symbols are no words; their probability stays in the normaliser.
    normaliser = wide(logits).logsumexp(-1) if scored else None
    logits[..., : EOS + 1] = float("-inf")
    best, tokens = logits.max(-1)
    scores = [0.0] * len(tokens)
    if normaliser is not None:
        scores = (((wide(best) - normaliser) * mask).sum(1) / lengths).tolist()
    rows = _rows(tokens, lengths)
    if traces is not None:
        traces.append(rows)
    return Hypotheses(rows, scores, [steps] * len(rows), traces)


def _step(model, memory, mask, search: str, step_size: float, refiner) -> RefinementStep:
    if search == "prior-mean":
        return lambda z: z
    if search == "delta":
        return delta_step(model, memory, mask)
    if search in ("score", "energy"):
        if refiner is None:
            raise ValueError(f"search {search} needs a {search} network; this system has none.")
        return gradient_step(refiner, memory, mask, step_size)
    raise ValueError(f'unknown search "{search}"; allowed: prior-mean, delta, score, energy.')


def _rows(tokens: Tensor, lengths: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
