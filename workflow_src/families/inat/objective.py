"""The loss of iterative refinement (Lee, Mansimov & Cho 2018).

Over the passes l = 1 … K of an update, at the reference's length, summed over a batch and divided by its target tokens:
    sum_l -log p(y | input_l, x)  +  length loss
The first pass reads the source alone. Each later one reads, with a chance of 1 - dae_mix, the guess of the pass before
it (J_LVM), else the target, corrupted (J_DAE): in expectation J = (1 - dae_mix) J_LVM + dae_mix J_DAE, as alpha_l in
the paper mixes them. The choice is drawn for every sentence and pass by itself. Hidden states, where passes carry them,
are those of the pass before it in both cases, as they are in translation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from workflow_src.families.inat import InatObjectiveConfig
from workflow_src.families.inat.corruption import corrupted
from workflow_src.losses.common import block_rows, cross_entropy_at, length_loss
from workflow_src.losses.draws import sentence_keys, uniform
from workflow_src.types import PAD, Batch, Cells, LossTerms, TrainingContext, cells, wide

if TYPE_CHECKING:
    from workflow_src.families.inat.model import IterativeRefinementModel

# Streams of random numbers of a pass: which of the two inputs, corruption, sampled words.
MIX, CORRUPT, SAMPLE = range(3)
STREAMS = 3


def refinement_loss(
    model: IterativeRefinementModel, batch: Batch, context: TrainingContext, config: InatObjectiveConfig
) -> LossTerms:
    """Figures: nats a subword of the target of the first and the last pass, and the mean of all; the length head's."""
    count = batch.num_target_words
    draws = config.dae_mix > 0 or config.guess == "sample"
    keys = sentence_keys(batch, context.seed) if draws else None
    memory = model.encode(batch.source)
    hidden, mask = model.hidden(memory, batch.output_lengths)
    # An empty target has a position, and nothing to learn there.
    lengths = batch.output_lengths, batch.target_lengths
    real, scored = (batch.cells(numbers) for numbers in lengths)
    terms, nll = [], []
    for number in range(config.passes):
        if number:
            inputs = next_input(config, model, hidden, mask, batch.target, keys, number, real)
            hidden = model.refine(memory, inputs, hidden, mask)
        learned, pass_nll = pass_loss(model, hidden, scored, batch.target, config.label_smoothing)
        terms.append(learned)
        nll.append(pass_nll)
    length, exact = length_loss(model.length, memory, batch)
    figures = {
        "nll": sum(nll) / (count * config.passes),
        "nll_first": nll[0] / count,
        "nll_last": nll[-1] / count,
        "length_nll": (length.detach(), len(batch.target)),
        "length_accuracy": exact,
    }
    return LossTerms((sum(terms) + config.length_weight * length) / count, count, figures)


def pass_loss(
    model: IterativeRefinementModel, hidden: Tensor, scored: Cells, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """-log p(y | input, x) of a pass with states hidden (B, N, D), summed over the `scored` cells of target (B, T),
    with and without smoothing; the second has no gradient."""
    return cross_entropy_at(scored, hidden, model.target_embedding.weight, model.output_bias, target, smoothing)


@torch.no_grad()
def next_input(
    config: InatObjectiveConfig,
    model: IterativeRefinementModel,
    hidden: Tensor,
    mask: Tensor,
    target: Tensor,
    keys: Tensor | None,
    number: int,
    real: Cells | None = None,
) -> Tensor:
    """The input (B, N) of the pass after `number` passes: the last guess, or the corrupted target (B, T).

    `hidden` (B, N, D) are the states of the last pass, keys (B,) those of sentences.
    """
    stream = STREAMS * number
    target = target[:, : mask.size(1)]
    denoised = noisy = None
    if config.dae_mix > 0:
        assert keys is not None, "drawing needs keys"
        denoised = uniform(keys, (1,), stream + MIX) < config.dae_mix
        vocabulary = model.output_bias.size(0)
        noisy = corrupted(target, keys, stream + CORRUPT, config.corruption_share, config.corruptions, vocabulary)
        if config.dae_mix == 1:
            return noisy
    numbers = None
    if config.guess == "sample":
        assert keys is not None, "drawing needs keys"
        numbers = uniform(keys, (mask.size(1),), stream + SAMPLE)
    guess = guessed(model, hidden, mask, numbers, real)
    return guess if denoised is None or noisy is None else torch.where(denoised, noisy, guess)


@torch.no_grad()
def guessed(
    model: IterativeRefinementModel,
    hidden: Tensor,
    mask: Tensor,
    numbers: Tensor | None = None,
    real: Cells | None = None,
) -> Tensor:
    """The most probable words of states hidden (B, N, D), or words drawn with uniform numbers (B, N), padded.

    A drawn word is the first whose cumulative probability reaches the number. Logits are held for a block of rows.
    `real` are the cells of the mask; without them, the CPU waits to read the mask.
    """
    real = cells(mask, mask.device) if real is None else real
    states = hidden[real]
    numbers = None if numbers is None else numbers[real]
    guesses, rows = [], block_rows(states, model.output_bias.size(0))
    for begin in range(0, len(states), rows):
        logits = wide(model.logits(states[begin : begin + rows]))
        if numbers is None:
            guesses.append(logits.argmax(-1))
            continue
        total = logits.double().softmax(-1).cumsum(-1)
        # Rounding may leave the sum of all probabilities a little off 1.
        reached = numbers[begin : begin + rows, None] * total[:, -1:]
        guesses.append((total < reached).sum(-1))
    words = torch.full(mask.shape, PAD, dtype=torch.int64, device=mask.device)
    words[real] = torch.cat(guesses)
    return words
