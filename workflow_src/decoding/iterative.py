"""Passes that refine a guess of all words (Lee, Mansimov & Cho 2018), for searches and validation.

A model guesses all words at once at a given length; each later pass reads the last guess and the model's states, and
makes another guess. A guess has the most probable word of each position.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from workflow_src.decoding.candidates import read_symbols, unpadded
from workflow_src.types import EncoderOutput, Hypotheses, IterativeModel, wide

# Called with the outputs (B, N), padded, after every pass.
Watch = Callable[[Tensor], None]


def first_pass(
    model: IterativeModel, memory: EncoderOutput, lengths: Tensor, scored: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States (B, N, D) and mask (B, N) of the first pass at lengths (B,); its outputs (B, N), padded, and their mean
    log-probabilities (B,), 0 where not `scored`."""
    hidden, mask = model.hidden(memory, lengths)
    return hidden, mask, *read_symbols(model, wide(model.logits(hidden)), mask, scored)


def later_pass(
    model: IterativeModel, memory: EncoderOutput, guess: Tensor, hidden: Tensor, mask: Tensor, scored: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """States, outputs and scores, as `first_pass`, of a pass that reads a guess (B, N) and its states (B, N, D)."""
    hidden = model.refine(memory, guess, hidden, mask)
    return hidden, *read_symbols(model, wide(model.logits(hidden)), mask, scored)


def run_passes(
    model: IterativeModel, memory: EncoderOutput, lengths: Tensor, passes: int, scored: bool, watch: Watch | None = None
) -> tuple[Tensor, Tensor]:
    """Outputs (B, N) of the last of `passes` passes at lengths (B,), and their scores (B,). Exporters can follow it:
    nothing depends on values."""
    hidden, mask, outputs, scores = first_pass(model, memory, lengths, scored and passes == 1)
    for number in range(2, passes + 1):
        if watch:
            watch(outputs)
        hidden, outputs, scores = later_pass(model, memory, outputs, hidden, mask, scored and number == passes)
    if watch:
        watch(outputs)
    return outputs, scores


def run_passes_until_repeated(
    model: IterativeModel,
    memory: EncoderOutput,
    lengths: Tensor,
    passes: int,
    scored: bool,
    watch: Watch | None = None,
    patience: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs and scores as `run_passes`, and numbers of passes (B,), where sentences may stop early.

    A sentence stops after `patience` passes in a row that repeat the output of the pass before, or after `passes`. It
    then leaves the batch, with the positions that no other sentence has. Its output is that of `run_passes` with as
    many passes.
    """
    hidden, mask, outputs, scores = first_pass(model, memory, lengths, scored)
    pass_counts, repeated = torch.ones_like(lengths), torch.zeros_like(lengths)
    active = torch.arange(len(lengths), device=lengths.device)
    active_memory, active_mask = memory, mask
    for number in range(2, passes + 1):
        if watch:
            watch(outputs.clone())
        previous = outputs[active, : active_mask.size(1)]
        hidden, current, gains = later_pass(model, active_memory, previous, hidden, active_mask, scored)
        outputs[active, : active_mask.size(1)], scores[active], pass_counts[active] = current, gains, number
        repeated[active] = torch.where((current == previous).all(1), repeated[active] + 1, 0)
        going = repeated[active] < patience
        if not bool(going.any()):
            break
        if not bool(going.all()):
            active = active[going]
            width = int(lengths[active].max())
            active_memory, active_mask, hidden = memory.select(active), mask[active, :width], hidden[going, :width]
    if watch:
        watch(outputs)
    return outputs, scores, pass_counts


@torch.no_grad()
def refined(model: IterativeModel, source: Tensor, passes: int, scored: bool = True) -> Hypotheses:
    """Translations of source (B, S) after `passes` passes, at the most probable lengths."""
    memory = model.encode(source)
    outputs, scores = run_passes(model, memory, model.length.predict(memory), passes, scored)
    return Hypotheses(unpadded(outputs), scores.tolist(), [passes] * len(source))
