"""The source position that each subword of an output was read off, from the best alignment with a model's slots."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.losses.aligned import own_symbols
from workflow_src.losses.ctc import Lattice, viterbi
from workflow_src.nn.models import AlignedModel
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.spec import ROWS
from workflow_src.types import PAD


def source_positions(
    model: AlignedModel,
    source: Tensor,
    logits: Tensor,
    slots: Tensor,
    outputs: Sequence[Sequence[Sequence[int]]],
) -> list[list[list[int]]]:
    """For outputs of each sentence of source (B, S), the source position that each subword was read off.

    It is the position of the subword's first slot in the output's most probable alignment under logits (B * K, N, V)
    of slots (B * K,): of K passes over a sentence, the one in which this alignment is the most probable.
    """
    passes = len(logits) // len(source)
    lengths = (source != PAD).sum(1).repeat_interleave(passes)
    origins = model.slot_origins(lengths, slots, torch.arange(logits.size(1), device=logits.device))
    pairs = [(sentence, output) for sentence, of_sentence in enumerate(outputs) for output in of_sentence]
    positions: list[list[int]] = []
    # At most ROWS outputs are aligned together.
    for start in range(0, len(pairs), ROWS):
        positions += _positions(model.blank, logits, slots, origins, pairs[start : start + ROWS], passes)
    remaining = iter(positions)
    return [list(itertools.islice(remaining, len(of_sentence))) for of_sentence in outputs]


def _positions(
    blank: int, logits: Tensor, slots: Tensor, origins: Tensor, pairs: Sequence[tuple[int, Sequence[int]]], passes: int
) -> list[list[int]]:
    """Source positions of (sentence, output) pairs."""
    device = logits.device
    rows = on_device([sentence * passes + k for sentence, _ in pairs for k in range(passes)], device)
    target = pad([output for _, output in pairs], eos=False).to(device).repeat_interleave(passes, 0)
    lattice, symbols = Lattice(target, slots[rows]), own_symbols(target, blank)
    slot_indices = torch.arange(logits.size(1), device=device)
    own_logits = logits[rows[:, None, None], slot_indices[None, :, None], symbols[:, None, :]]
    emissions = own_logits - logits.logsumexp(-1)[rows, :, None]
    path = viterbi(emissions, lattice)
    real_slots = slot_indices < slots[rows, None]
    scores = emissions.gather(2, path[..., None])[..., 0].masked_fill(~real_slots, 0).sum(1)
    best_passes = scores.masked_fill(~lattice.reachable, float("-inf")).view(-1, passes).argmax(1)
    chosen = torch.arange(len(pairs), device=device) * passes + best_passes
    own_indices = torch.arange(1, symbols.size(1), device=device)
    first_slots = (path[chosen, :, None] == own_indices).to(torch.int8).argmax(1)
    (positions,) = on_cpu(origins[rows[chosen]].gather(1, first_slots))
    return [row[: len(output)] for row, (_, output) in zip(positions.tolist(), pairs, strict=True)]
