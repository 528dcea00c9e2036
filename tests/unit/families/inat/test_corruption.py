"""Corrupted targets: worked by hand, against one word after another, and the same for a sentence in any batch."""

from __future__ import annotations

import pytest
import torch

from workflow_src.families.inat import CORRUPTIONS
from workflow_src.families.inat.corruption import NONE, REPEAT, REPLACE, SWAP, applied, corrupted
from workflow_src.types import PAD, UNK

KEYS = torch.tensor([7, 123456789, -5, 2**60])


@pytest.mark.parametrize(
    "kinds, wanted",
    [
        ([NONE, NONE, NONE, NONE], [4, 5, 6, 7]),
        ([SWAP, NONE, NONE, NONE], [5, 4, 6, 7]),
        ([NONE, NONE, SWAP, NONE], [4, 5, 7, 6]),
        # Swapped on and on, a word travels.
        ([SWAP, SWAP, SWAP, NONE], [5, 6, 7, 4]),
        ([REPEAT, NONE, NONE, NONE], [4, 4, 6, 7]),
        ([REPEAT, REPEAT, NONE, NONE], [4, 4, 4, 7]),
        ([SWAP, REPEAT, NONE, NONE], [5, 4, 4, 7]),
        ([REPEAT, SWAP, NONE, NONE], [4, 6, 4, 7]),
        ([REPLACE, NONE, NONE, REPLACE], [90, 5, 6, 93]),
        # A word that arrives at a replaced place is lost.
        ([SWAP, REPLACE, NONE, NONE], [5, 91, 6, 7]),
        ([REPLACE, SWAP, REPLACE, NONE], [90, 6, 92, 7]),
        # The last word has no next one.
        ([NONE, NONE, NONE, SWAP], [4, 5, 6, 7]),
        ([NONE, NONE, NONE, REPEAT], [4, 5, 6, 7]),
    ],
)
def test_corruptions_worked_by_hand(kinds, wanted):
    target = torch.tensor([[4, 5, 6, 7]])
    words = torch.tensor([[90, 91, 92, 93]])
    assert applied(target, torch.tensor([kinds]), words).tolist() == [wanted]
    # Padding takes no part, whatever is drawn for it.
    wider = torch.nn.functional.pad(target, (0, 2))
    padded_kinds = torch.tensor([[*kinds, REPLACE, SWAP]])
    assert applied(wider, padded_kinds, torch.tensor([[90, 91, 92, 93, 94, 95]])).tolist() == [[*wanted, PAD, PAD]]


def one_after_another(row: list[int], kinds: list[int], words: list[int]) -> list[int]:
    """Each word in turn changes the sentence as the ones before left it."""
    row = list(row)
    for position, kind in enumerate(kinds[: len(row)]):
        if kind == REPLACE:
            row[position] = words[position]
        elif position + 1 < len(row):
            if kind == SWAP:
                row[position], row[position + 1] = row[position + 1], row[position]
            elif kind == REPEAT:
                row[position + 1] = row[position]
    return row


def test_corruptions_are_those_of_a_loop_over_words():
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(0, 12, (400,), generator=generator)
    target = torch.randint(10, 40, (400, 11), generator=generator)
    target = target.masked_fill(torch.arange(11) >= lengths[:, None], PAD)
    kinds = torch.randint(NONE, 3, target.shape, generator=generator)
    words = torch.randint(50, 90, target.shape, generator=generator)
    actual = applied(target, kinds, words).tolist()
    for row, length, kind, word, actual_row in zip(
        target.tolist(), lengths.tolist(), kinds.tolist(), words.tolist(), actual, strict=True
    ):
        assert actual_row == one_after_another(row[:length], kind, word) + [PAD] * (11 - length)


@pytest.mark.parametrize("kinds", [CORRUPTIONS, ("swap",), ("replace", "repeat")])
def test_neither_padding_nor_the_batch_changes_what_is_drawn(kinds):
    target = torch.randint(4, 30, (4, 9), generator=torch.Generator().manual_seed(1))
    target[1, 5:] = PAD
    actual = corrupted(target, KEYS, 3, 0.6, kinds, 30)
    assert (actual != target).any() and (corrupted(target, KEYS, 4, 0.6, kinds, 30) != actual).any()
    wider = corrupted(torch.nn.functional.pad(target, (0, 4)), KEYS, 3, 0.6, kinds, 30)
    assert torch.equal(wider[:, :9], actual) and (wider[:, 9:] == PAD).all()
    turned = corrupted(target.flip(0), KEYS.flip(0), 3, 0.6, kinds, 30)
    assert torch.equal(turned.flip(0), actual)
    single = corrupted(target[1:2, :5], KEYS[1:2], 3, 0.6, kinds, 30)
    assert torch.equal(single, actual[1:2, :5])


def test_shares_are_those_asked_for():
    keys = torch.arange(20000) * 7919
    # Words of a sentence differ from their neighbours and from each other's replacements.
    target = torch.arange(1000, 1006).expand(20000, -1)
    for kind in CORRUPTIONS:
        actual = corrupted(target, keys, 1, 0.3, (kind,), 1000)
        first = actual[:, 0] != target[:, 0] if kind != "repeat" else actual[:, 1] == target[:, 0]
        # Standard error of a share of 0.3: 0.0032.
        assert first.double().mean() == pytest.approx(0.3, abs=0.013), kind
    replaced = corrupted(target, keys, 1, 1.0, ("replace",), 1000)
    assert replaced.min() == UNK + 1 and replaced.max() == 999
    assert replaced.double().mean() == pytest.approx((UNK + 1 + 999) / 2, abs=5)
    # A third of the corrupted first words each: only a swap and a replacement change the word itself.
    mixed = corrupted(target, keys, 1, 0.9, CORRUPTIONS, 1000)[:, 0]
    assert (mixed == 1001).double().mean() == pytest.approx(0.3, abs=0.013)
    assert (mixed < 1000).double().mean() == pytest.approx(0.3, abs=0.013)
