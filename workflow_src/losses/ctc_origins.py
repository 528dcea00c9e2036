"""What outputs were read off: the source position of each subword, from the best alignment with a model's slots."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.losses.aligned import own_symbols
from workflow_src.losses.ctc import Lattice, viterbi
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.types import PAD, AlignedLatentModel

# Outputs that are aligned at once.
ROWS = 512


def source_positions(
    model: AlignedLatentModel,
    source: Tensor,
    logits: Tensor,
    slots: Tensor,
    outputs: Sequence[Sequence[Sequence[int]]],
) -> list[list[list[int]]]:
    """For outputs of each sentence of source (B, S), the source position that each subword was read off.

    That is the position of the subword's first slot in the output's most probable alignment under logits (B * K, N, V)
    of slots (B * K,): of K passes over a sentence, the one in which this alignment is the most probable.
    """
    each = len(logits) // len(source)
    lengths = (source != PAD).sum(1).repeat_interleave(each)
    origins = model.slot_origins(lengths, slots, torch.arange(logits.size(1), device=logits.device))
    flat = [(sentence, output) for sentence, own in enumerate(outputs) for output in own]
    positions: list[list[int]] = []
    for start in range(0, len(flat), ROWS):
        positions += _positions(model.blank, logits, slots, origins, flat[start : start + ROWS], each)
    every = iter(positions)
    return [list(itertools.islice(every, len(own))) for own in outputs]


def _positions(
    blank: int, logits: Tensor, slots: Tensor, origins: Tensor, part: Sequence[tuple[int, Sequence[int]]], each: int
) -> list[list[int]]:
    """Source positions of (sentence, output) pairs."""
    device = logits.device
    rows = on_device([sentence * each + k for sentence, _ in part for k in range(each)], device)
    target = pad([output for _, output in part], eos=False).to(device).repeat_interleave(each, 0)
    lattice, symbols = Lattice(target, slots[rows]), own_symbols(target, blank)
    place = torch.arange(logits.size(1), device=device)
    own = logits[rows[:, None, None], place[None, :, None], symbols[:, None, :]]
    emissions = own - logits.logsumexp(-1)[rows, :, None]
    path = viterbi(emissions, lattice)
    real = place < slots[rows, None]
    scores = emissions.gather(2, path[..., None])[..., 0].masked_fill(~real, 0).sum(1)
    best = scores.masked_fill(~lattice.reachable, float("-inf")).view(-1, each).argmax(1)
    chosen = torch.arange(len(part), device=device) * each + best
    numbers = torch.arange(1, symbols.size(1), device=device)
    first = (path[chosen, :, None] == numbers).to(torch.int8).argmax(1)
    (positions,) = on_cpu(origins[rows[chosen]].gather(1, first))
    return [row[: len(output)] for row, (_, output) in zip(positions.tolist(), part, strict=True)]
