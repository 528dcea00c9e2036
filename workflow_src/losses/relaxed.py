"""Operators from logits to distributions over words, and energies of distributions under an autoregressive model.

Tu, Pang, Wiseman & Gimpel 2020 (ENGINE), sections 3.1 and 3.2. An operator O(z) is used forward as it is and backward
with the Jacobian of the paper's Table 1, where q = softmax(z), g is Gumbel noise and q~ = softmax(z + g):

    SX   q                   dq / dz
    STL  one-hot argmax z    the identity
    SG   one-hot argmax q~   dq~ / dz
    ST   one-hot argmax q    dq / dz
    GX   q~                  dq~ / dz
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from workflow_src.nn.models import AutoregressiveModel
from workflow_src.types import EOS, wide

# Operators that put out one-hot distributions, and those that draw noise.
HARD = frozenset({"STL", "SG", "ST"})
NOISY = frozenset({"SG", "GX"})


def relaxed(operator: str, logits: Tensor, noise: Tensor | None = None) -> Tensor:
    """Distributions O(z) of logits z, (..., V); `noise`, of their shape, is for the operators that are `NOISY`."""
    if operator in NOISY:
        assert noise is not None, "operators that draw noise get it"
        logits = logits + noise
    soft = logits if operator == "STL" else logits.softmax(-1)
    if operator not in HARD:
        return soft
    hard = torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    # The difference is exactly 0: the sum is one-hot, and its gradient that of `soft`.
    return hard + (soft - soft.detach())


def energies(scorer: AutoregressiveModel, states: Any, fed: Tensor, chosen: Tensor, mask: Tensor) -> Tensor:
    """e_t = -chosen_t . log p(. | fed_<t, x) in nats, and -log p(end | fed, x) after the last, (B, T+1); else 0.

    `scorer` is autoregressive (`relaxed_logits`), `states` are those of the source. It reads the distributions `fed`
    and scores `chosen`, (B, T, V) each, at the places of mask (B, T). Equations 2 and 3 of the paper, where the last
    word is the end symbol. With equal one-hot distributions the sum is the negative log-likelihood of their words.
    """
    scores = wide(scorer.relaxed_logits(states, fed)).log_softmax(-1)
    words = -(wide(chosen) * scores[:, :-1]).sum(-1)
    # The end symbol comes right after the words: in the last column only for the longest sentences.
    position = torch.arange(scores.size(1), device=scores.device)
    is_end = position == mask.sum(1, keepdim=True)
    return torch.where(is_end, -scores[..., EOS], F.pad(words, (0, 1)).masked_fill(~F.pad(mask, (0, 1)), 0.0))
