"""Connectionist temporal classification (Graves et al. 2006) in batched tensor code, for CPUs and GPUs.

N slots put out a symbol or the blank each; a target y is read off by merging equal neighbours and dropping blanks:
    log p(y|x) = log sum over alignments a of y of prod_n p(a_n|x)                (Gu & Kong 2021, equation 4)

The recursions run over 2T + 1 states: blanks at even places, the target's tokens at odd ones. They need only the
probabilities of a sentence's own T + 1 symbols, so that no tensor has a cell for each slot and word of the vocabulary.
Shapes: B sentences, N slots, T target positions, U = T + 1 own symbols (the blank first), V vocabulary, D width.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.losses.aligned import Aligned, aligned_loss, own_symbols
from workflow_src.nn.logarithms import NEVER, exp
from workflow_src.types import PAD, Cells


@dataclasses.dataclass(frozen=True)
class Lattice:
    """The alignments of targets (B, T) with `slots` (B,) slots a sentence."""

    target: Tensor
    slots: Tensor

    @property
    def lengths(self) -> Tensor:
        return (self.target != PAD).sum(1)

    @property
    def repeats(self) -> Tensor:
        """(B, T), True where a token equals the one before it: a blank must separate them."""
        equal = (self.target[:, 1:] == self.target[:, :-1]) & (self.target[:, 1:] != PAD)
        return F.pad(equal, (1, 0))

    @property
    def reachable(self) -> Tensor:
        """(B,), True where the slots suffice: one for each token, and one for each blank between equal neighbours."""
        return self.lengths + self.repeats.sum(1) <= self.slots

    def states(self, emissions: Tensor) -> Tensor:
        """Log-probabilities of own symbols (B, N, U) as those of states (N, B, 2T + 1)."""
        blank, tokens = emissions[..., :1], emissions[..., 1:]
        pairs = torch.stack([tokens, blank.expand_as(tokens)], -1).flatten(-2)
        return torch.cat([blank, pairs], -1).transpose(0, 1).contiguous()

    def skips(self, like: Tensor) -> Tensor:
        """(B, 2T + 1): 0 where a path may come from two states before, else NEVER."""
        B, T = self.target.shape
        allowed = torch.zeros(B, 2 * T + 1, dtype=torch.bool, device=like.device)
        allowed[:, 3::2] = ~self.repeats[:, 1:]
        return torch.zeros_like(allowed, dtype=like.dtype).masked_fill_(~allowed, NEVER)

    def final(self, like: Tensor) -> Tensor:
        """(B, 2T + 1): 0 at the states in which a path may end, the last token and the blank after it, else NEVER."""
        state = torch.arange(2 * self.target.size(1) + 1, device=like.device)
        last_blank = 2 * self.lengths[:, None]
        ending = (state == last_blank) | ((state == last_blank - 1) & (last_blank > 0))
        return torch.zeros(ending.shape, dtype=like.dtype, device=like.device).masked_fill_(~ending, NEVER)

    def initial(self, like: Tensor) -> Tensor:
        """(B, 2T + 1): 0 at the first blank and the first token, else NEVER."""
        start = like.new_full((self.target.size(0), 2 * self.target.size(1) + 1), NEVER)
        start[:, :2] = 0
        return start


def occupancies(emissions: Tensor, lattice: Lattice) -> tuple[Tensor, Tensor]:
    """Forward-backward recursions over log-probabilities of own symbols (B, N, U), the blank first.

    Returns log p(y|x) (B,), far below any probability where no alignment exists, and the expected share (B, N, U) that
    each own symbol has of each slot; rows of real slots sum to 1 where an alignment exists, all others are 0.
    """
    scores = lattice.states(emissions)
    skips, slots = lattice.skips(scores), lattice.slots
    initial, final = lattice.initial(scores), lattice.final(scores)
    width, sentences = scores.size(0), scores.size(1)
    forward = torch.empty_like(scores)
    alpha = forward[0] = initial + scores[0]
    for n in range(1, width):
        shifted = F.pad(alpha, (2, 0), value=NEVER)
        alpha = torch.logaddexp(torch.logaddexp(alpha, shifted[:, 1:-1]), shifted[:, :-2] + skips) + scores[n]
        forward[n] = alpha
    last_slots = (slots - 1).clamp(min=0)
    total = (forward[last_slots, torch.arange(sentences, device=last_slots.device)] + final).logsumexp(-1)
    # A path may skip a state where the state that it arrives in allows it.
    forward_skips = F.pad(skips[:, 2:], (0, 2), value=NEVER)
    backward = torch.empty_like(scores)
    beta = backward[width - 1] = final
    for n in range(width - 2, -1, -1):
        shifted = F.pad(beta + scores[n + 1], (0, 2), value=NEVER)
        beta = torch.logaddexp(torch.logaddexp(shifted[:, :-2], shifted[:, 1:-1]), shifted[:, 2:] + forward_skips)
        beta = backward[n] = torch.where((n >= last_slots)[:, None], final, beta)
    real = torch.arange(width, device=slots.device)[:, None] < slots
    real = real & (total > NEVER / 2)
    shares = (exp((forward + backward - total[:, None]).clamp(max=0)) * real[..., None]).transpose(0, 1)
    return total, torch.cat([shares[..., ::2].sum(-1, keepdim=True), shares[..., 1::2]], -1)


def viterbi(emissions: Tensor, lattice: Lattice) -> Tensor:
    """The most probable alignment: the own symbol at each slot, (B, N) int64 in [0, U), 0 the blank.

    Slots beyond a sentence's own, and all slots of sentences that have no alignment, hold the blank.
    """
    scores = lattice.states(emissions)
    skips, last_slots = lattice.skips(scores), (lattice.slots - 1).clamp(min=0)
    final = lattice.final(scores)
    width = scores.size(0)
    best_scores = lattice.initial(scores) + scores[0]
    back_pointers = torch.zeros(scores.shape, dtype=torch.int64, device=scores.device)
    state = (best_scores + final).argmax(-1)
    for n in range(1, width):
        shifted = F.pad(best_scores, (2, 0), value=NEVER)
        choices = torch.stack([best_scores, shifted[:, 1:-1], shifted[:, :-2] + skips])
        best_scores, back_pointers[n] = choices.max(0)
        best_scores = best_scores + scores[n]
        state = torch.where(last_slots == n, (best_scores + final).argmax(-1), state)
    path = torch.empty(width, scores.size(1), dtype=torch.int64, device=scores.device)
    for n in range(width - 1, -1, -1):
        path[n] = torch.where(n <= last_slots, state, 0)
        states_back = back_pointers[n].gather(1, state[:, None])[:, 0]
        state = torch.where(n <= last_slots, state - states_back, state)
    symbols = torch.where(path % 2 == 1, (path + 1) // 2, 0).T
    return symbols * lattice.reachable[:, None]


def ctc_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    mask: Tensor,
    target: Tensor,
    blank: int,
    real: Cells | None = None,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """-log p(y|x) in nats, (B,), with label smoothing; without it and without a gradient, (B,); and whether the
    sentence has an alignment, (B,) bool. Losses are 0 where it has none.

    hidden (B, N, D) at slots where mask (B, N) is True (the first of each sentence), output projection weight (V, D)
    and bias (V,), target (B, T) padded. Gradients, softmax minus expected shares, are computed a block of rows at a
    time, so that logits are never held for all slots at once. `real` are the cells of the mask; without them, the
    CPU waits to read the mask.
    """
    lattice = Lattice(target, mask.sum(1))

    def align(emissions: Tensor) -> Aligned:
        total, shares = occupancies(emissions, lattice)
        return Aligned(torch.where(lattice.reachable, -total, 0.0), shares, lattice.reachable)

    symbols = own_symbols(target, blank)
    losses, plain = aligned_loss(hidden, weight, bias, mask, symbols, align, real, smoothing)
    return losses, plain, lattice.reachable
