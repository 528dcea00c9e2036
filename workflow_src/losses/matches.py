"""Expected n-gram matches of outputs with a target: matches count wherever they stand.

With C_g(y) the number of times that target y has the n-gram g, and E[C_g] the expected number in the output of a model,
the loss of a sentence is 1 - F1,
    F1 = 2 sum_g min(C_g(y), E[C_g])  /  (sum_g C_g(y) + sum_g E[C_g])
Its gradient reaches words that stand at other places than the target has them, which the likelihood does not reward.

With CTC (Shao & Feng 2022) N slots put out a symbol or the blank each, independently; an output is read off by merging
equal neighbours and dropping blanks. With a directed acyclic graph (Ma et al. 2023, whose loss is a precision with a
penalty of short outputs) an output has the words of the vertices on a path.

Shapes: B sentences, N slots, T target positions, U = T + 1 own symbols (the blank first), V vocabulary, D width,
L vertices.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from workflow_src.losses.aligned import own_symbols
from workflow_src.losses.common import block_rows
from workflow_src.types import PAD, wide

# Denominators are at least this: an empty output of an empty target has no n-grams.
LEAST = 1e-6


def match_score(
    hidden: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, target: Tensor, blank: int, size: int
) -> Tensor:
    """F1 (B,) of expected matches of n-grams of `size` 1 or 2; 0 where the target has no n-gram.

    hidden (B, N, D) at slots where mask (B, N) is True (the first of each sentence), output projection weight (V, D)
    and bias (V,), target (B, T) padded. Logits are computed for some sentences at a time, and again for their gradient.
    """
    own, merged = _probabilities(hidden, weight, bias, mask, own_symbols(target, blank))
    blanks, words = own[..., 0], own[..., 1:]
    # A slot begins a word unless it holds the blank, or the symbol before it again.
    total = (1 - blanks - merged).sum(1)
    if size == 1:
        expected = (words * (1 - _before(words))).sum(1)
    else:
        # Every output has one bigram less than words, but an empty one has none.
        total = total - 1 + blanks.prod(1)
        expected = _expected_bigrams(blanks, words, target)
    return _f1(expected, total, target, size)


def path_match_score(words: Tensor, transitions: Tensor, vertices: Tensor, target: Tensor, size: int) -> Tensor:
    """`match_score` of the outputs of a graph: probabilities (B, L, T) that a vertex puts out the words of the target,
    and (B, L, L) of the next vertex; `vertices` (B,) of each sentence.

    A path begins at the first vertex and ends at the last, which put out no word.
    """
    size_of_graph = words.size(1)
    end = (vertices - 1)[:, None]
    vertex = torch.arange(size_of_graph, device=words.device)
    inner = (vertex > 0) & (vertex < end)
    # visits_j = [j = 0] + sum over i < j of visits_i E_ij
    identity = torch.eye(size_of_graph, dtype=words.dtype, device=words.device)
    begin = identity[0].expand(len(words), -1)[..., None]
    solve = torch.linalg.solve_triangular
    visits = solve(identity - transitions.transpose(1, 2), begin, upper=False, unitriangular=True)[..., 0] * inner
    visited_words = words * visits[..., None]
    total = visits.sum(1)
    if size == 1:
        expected = visited_words.sum(1)
    else:
        total = total - 1 + transitions[:, 0].gather(1, end)[:, 0]
        continued = transitions.transpose(1, 2) @ visited_words[..., :-1]
        expected = (continued * words[..., 1:] * inner[..., None]).sum(1)
    return _f1(expected, total, target, size)


def _f1(expected: Tensor, total: Tensor, target: Tensor, size: int) -> Tensor:
    """F1 (B,) from expected numbers (B, T - size + 1) of the target's n-grams, and of all n-grams (B,)."""
    counts, first = ngram_counts(target, size)
    matches = (torch.minimum(expected[:, : counts.size(1)], counts.to(expected)) * first).sum(1)
    return 2 * matches / (total + (counts * first).sum(1)).clamp(min=LEAST)


def ngram_counts(target: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """How often target (B, T), padded, has the n-gram that begins at each position, (B, T - size + 1), and whether it
    is the first such, bool; 0 and False where padding is part of it."""
    positions = max(target.size(1) - size + 1, 0)
    ngrams = torch.stack([target[:, start : start + positions] for start in range(size)], -1)
    real = (ngrams != PAD).all(-1)
    equal = (ngrams[:, :, None] == ngrams[:, None]).all(-1) & real[:, None]
    earlier = torch.ones(positions, positions, dtype=torch.bool, device=target.device).tril(-1)
    return equal.sum(-1) * real, real & ~(equal & earlier).any(-1)


def _expected_bigrams(blanks: Tensor, words: Tensor, target: Tensor) -> Tensor:
    """E[C_g] (B, T - 1) of the target's bigrams, from probabilities of blanks (B, N) and of its words (B, N, T).

    The first word of a bigram ends at a slot, and the second begins at the next, if they differ, or after blanks.
    """
    first, second = words[..., :-1], words[..., 1:]
    # The first word ended before this slot, and all slots since hold blanks: at least one.
    separated = torch.zeros_like(first[:, 0])
    columns = [separated]
    for slot in range(1, first.size(1)):
        ended = first[:, slot - 2] if slot > 1 else torch.zeros_like(separated)
        separated = blanks[:, slot - 1, None] * (separated + ended)
        columns.append(separated)
    differ = (target[:, :-1] != target[:, 1:])[:, None]
    return ((torch.stack(columns, 1) + _before(first) * differ) * second).sum(1)


def _before(values: Tensor) -> Tensor:
    """Values (B, N, …) of the slots before; 0 before the first."""
    return torch.cat([torch.zeros_like(values[:, :1]), values[:, :-1]], 1)


def _probabilities(
    hidden: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, symbols: Tensor
) -> tuple[Tensor, Tensor]:
    """Probabilities (B, N, U) of own symbols (B, U), the blank first, and those (B, N) that a slot holds the same word
    as the slot before it. Slots outside of the mask hold the blank."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        hidden, weight = (x.to(torch.get_autocast_dtype(device)) for x in (hidden, weight))
    sentences = max(1, block_rows(hidden, weight.size(0)) // hidden.size(1))
    parts = [
        checkpoint(_part, *tensors, weight, bias, use_reentrant=False, preserve_rng_state=False)
        for tensors in zip(*(x.split(sentences) for x in (hidden, mask, symbols)), strict=True)
    ]
    own, merged = zip(*parts, strict=True)
    return torch.cat(own), torch.cat(merged)


def _part(hidden: Tensor, mask: Tensor, symbols: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    # The gradient's pass computes the same in the same precision, whatever surrounds it.
    with torch.autocast(hidden.device.type, enabled=False):
        probabilities = (wide(hidden @ weight.T) + bias).softmax(-1)
    own = probabilities.gather(-1, symbols[:, None].expand(-1, hidden.size(1), -1))
    # Padding is no word of the target.
    own = own * torch.cat([mask[..., None], mask[..., None] & (symbols[:, None, 1:] != PAD)], -1)
    blanks = torch.where(mask, own[..., 0], 1.0)
    same = (probabilities[:, 1:] * probabilities[:, :-1]).sum(-1) - own[:, 1:, 0] * own[:, :-1, 0]
    merged = torch.nn.functional.pad(same * mask[:, 1:], (1, 0))
    return torch.cat([blanks[..., None], own[..., 1:]], -1), merged
