"""Corruption of target sentences, which the denoising part of iterative refinement learns to undo.

Word by word from the first, each with a chance of its own: a word is swapped with the next one, replaced by a word of
the vocabulary, or repeated in place of the next one (Lee, Mansimov & Cho 2018). The corruption of the next place
starts from the word that a swap or a repetition has written there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from workflow_src.families.inat import CORRUPTIONS, Corruption
from workflow_src.losses.draws import uniform
from workflow_src.runtime.device import on_device
from workflow_src.types import PAD, UNK

SWAP, REPLACE, REPEAT = range(len(CORRUPTIONS))
# A place that stays as it is.
NONE = -1


def corrupted(
    target: Tensor, keys: Tensor, stream: int, share: float, kinds: Sequence[Corruption], vocabulary: int
) -> Tensor:
    """Targets (B, T), padded, of which each word is corrupted with chance `share` by one of `kinds`, each as likely.

    Random numbers are those of sentences with keys (B,); a replacement is any word of the vocabulary but UNK. The last
    word of a sentence has no next one, so that only a replacement changes it.
    """
    numbers = uniform(keys, (target.size(1), 3), stream)
    codes = on_device([CORRUPTIONS.index(kind) for kind in kinds], target.device)
    kind = codes[(numbers[..., 1] * len(kinds)).long()]
    kind = torch.where(numbers[..., 0] < share, kind, NONE)
    words = UNK + 1 + (numbers[..., 2] * (vocabulary - UNK - 1)).long()
    return applied(target, kind, words)


def applied(target: Tensor, kind: Tensor, words: Tensor) -> Tensor:
    """Targets (B, T) after the corruption of each place, kind (B, T), one after another; `words` (B, T) replace.

    A word that a swap or a repetition carries to the next place may be carried on from there. The word at a place t,
    before its own corruption, is thus the target's at the last place s <= t to which nothing was carried, so that no
    loop over places is needed.
    """
    positions = torch.arange(target.size(1), device=target.device)
    next_words = target.roll(-1, 1)
    is_last = positions >= (target != PAD).sum(1, keepdim=True) - 1
    carries = ((kind == SWAP) | (kind == REPEAT)) & ~is_last
    arrives = carries.roll(1, 1)
    arrives[:, :1] = False
    origin = torch.where(arrives, 0, positions).cummax(1).values
    corrupted_words = target.gather(1, origin)
    corrupted_words = torch.where((kind == SWAP) & ~is_last, next_words, corrupted_words)
    corrupted_words = torch.where(kind == REPLACE, words, corrupted_words)
    return corrupted_words.masked_fill(target == PAD, PAD)
