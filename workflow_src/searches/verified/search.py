"""Draft and verify (Xia et al. 2023): one pass of an autoregressive decoder over a draft says how much of it is right.

A pass reads the last word of the output and the next words of the draft. The draft is kept up to the first word that
the decoder refuses; its own word goes there, and the rest of the draft is lined up behind it (as Sun et al. 2021 do).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from workflow_src.data.batching import pad
from workflow_src.decoding.lengths import limits
from workflow_src.decoding.ranking import ROWS
from workflow_src.decoding.search import SearchModule, open_search
from workflow_src.decoding.settings import DRAFTER
from workflow_src.nn.models import AutoregressiveModel
from workflow_src.registry import families
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.searches.verified import VerifiedSettings, draft_settings
from workflow_src.spec import MODEL
from workflow_src.types import BOS, EOS, PAD, Hypotheses, Networks, max_positions, wide

# Places of a draft, before and behind the one where the output's last word is expected, that are looked through.
BEFORE, BEHIND = 2, 8

# The drafts of a sentence: words without an end symbol.
Drafts = Sequence[Sequence[int]]


class Verified(SearchModule):
    """Outputs are those of greedy search where `tolerance` is 0; steps are passes of the decoder."""

    def __init__(self, networks: Networks, settings: VerifiedSettings, scored: bool = True):
        super().__init__(networks, settings, scored)
        self.drafter = networks[DRAFTER]
        family = next(family for family in families().values() if family.model is type(self.drafter.config))
        drafting = draft_settings(settings, family, self.drafter.config)
        self.drafting = open_search({MODEL: self.drafter}, drafting, scored=False)

    @torch.no_grad()
    def translate(self, source: Tensor, lengths: Tensor | None = None, trace: bool = False) -> Hypotheses:
        """Translate source (B, S) eagerly. There are no outputs of given lengths, and no traces."""
        del lengths, trace
        return verify(self.model, source, self.drafts(source), self.settings, self.scored)

    def drafts(self, source: Tensor) -> list[Drafts]:
        """The drafts of each sentence of source (B, S), equally many; empty ones where the drafter has no positions for
        it."""
        lengths = (source != PAD).sum(1).tolist()
        fits = [row for row, length in enumerate(lengths) if length <= max_positions(self.drafter)]
        drafts: list[Drafts] = [[[]] * self.settings.drafts for _ in lengths]
        if fits:
            part = source if len(fits) == len(lengths) else source[on_device(fits, source.device)]
            hypotheses = self.drafting.translate(part[:, : max(lengths[row] for row in fits)])
            for row, best in zip(fits, self._best(hypotheses), strict=True):
                drafts[row] = [best[number % len(best)] for number in range(self.settings.drafts)]
        return drafts

    def _best(self, hypotheses: Hypotheses) -> list[Drafts]:
        if self.settings.drafts == 1 or hypotheses.ranked is None:
            return [[words] for words in hypotheses.tokens]
        return [[words for _, words in ranked] for ranked in hypotheses.ranked()]


@torch.no_grad()
def verify(
    model: AutoregressiveModel,
    source: Tensor,
    drafts: Sequence[Drafts],
    settings: VerifiedSettings,
    scored: bool = True,
) -> Hypotheses:
    """Translations of source (B, S) from drafts of each sentence, any words, equally many drafts a sentence.

    Scores are log-probability / tokens, end symbols counted; without `scored` they are 0.
    """
    # Logits of at most ROWS words are computed together, or those of one sentence.
    size = max(1, ROWS // (settings.block * len(drafts[0])))
    sentences: list[_Sentence] = []
    for start in range(0, source.size(0), size):
        part = source[start : start + size]
        longest = limits(part, settings.max_length_ratio, model.config.max_positions).tolist()
        begun = [
            _Sentence(limit, [_Draft(words) for words in own])
            for limit, own in zip(longest, drafts[start : start + size], strict=True)
        ]
        _check(model, part, begun, settings, scored)
        sentences += begun
    return Hypotheses(
        [sentence.output for sentence in sentences],
        [sentence.total / (len(sentence.output) + 1) for sentence in sentences],
        [sentence.passes for sentence in sentences],
    )


class _Draft:
    """A draft with its end symbol, and the place of the word that may come next."""

    def __init__(self, words: Sequence[int]):
        end = words.index(EOS) if EOS in words else len(words)
        self.words, self.place = [*words[:end], EOS], 0

    def next(self, count: int) -> list[int]:
        return self.words[self.place : self.place + count]

    def accept(self, count: int) -> None:
        self.place += count

    def realign(self, output: Sequence[int], added: int) -> None:
        """Go on behind the place that has the last words of the output, which grew by `added` words.

        Of the places near the expected one that have the last word, those are better that have the one before it too,
        and of these the nearest. Where none has it, it is taken for another word at the expected place.
        """
        expected = self.place + added - 1
        last = len(self.words) - 1
        best, best_key = expected, (2, 0)
        for place in range(max(0, expected - BEFORE), min(last, expected + BEHIND)):
            if self.words[place] == output[-1]:
                both = place > 0 and len(output) > 1 and self.words[place - 1] == output[-2]
                if (key := (0 if both else 1, abs(place - expected))) < best_key:
                    best, best_key = place, key
        # What is left is the end at least.
        self.place = min(best + 1, last)


@dataclasses.dataclass
class _Sentence:
    """A sentence, while its output grows: the longest output, drafts, the sum of log-probabilities, and passes."""

    limit: int
    drafts: list[_Draft]
    output: list[int] = dataclasses.field(default_factory=list)
    total: float = 0.0
    passes: int = 0

    def blocks(self, count: int) -> list[list[int]]:
        """The next words of each draft, at most `count`; at the limit only an end may come."""
        return [draft.next(min(count, self.limit + 1 - len(self.output))) for draft in self.drafts]

    def grow(self, winner: int, accepted: int, word: int | None) -> bool:
        """Add the words that a draft had accepted, and the decoder's own `word` behind them; whether it is complete."""
        draft = self.drafts[winner]
        words = draft.next(accepted) + ([] if word is None else [word])
        self.passes += 1
        if words[-1] == EOS:
            self.output += words[:-1]
            return True
        self.output += words
        for other in self.drafts:
            if other is draft and word is None:
                other.accept(accepted)
            else:
                other.realign(self.output, len(words))
        return False


def _check(
    model: AutoregressiveModel, source: Tensor, sentences: list[_Sentence], settings: VerifiedSettings, scored: bool
) -> None:
    """Let the outputs of all sentences of source (B, S) grow until they are complete."""
    device, width = source.device, len(sentences[0].drafts)
    decoder = model.start(model.encode(source))
    if width > 1:
        decoder.reorder(torch.arange(source.size(0), device=device).repeat_interleave(width))
    running = sentences
    while running:
        blocks = [block for sentence in running for block in sentence.blocks(settings.block)]
        begins = [sentence for sentence in running for _ in sentence.drafts]
        checked = pad(blocks, eos=False)
        last = torch.tensor([sentence.output[-1] if sentence.output else BOS for sentence in begins])
        # What may come at the longest output is an end.
        limit = torch.tensor([sentence.limit - len(sentence.output) for sentence in begins])
        # The last word of a block is checked, and not read.
        read = torch.cat([last[:, None], checked[:, :-1]], 1)
        read, checked, limit = (tensor.to(device, non_blocking=True) for tensor in (read, checked, limit[:, None]))
        judged = _judged(decoder.steps(read), checked, limit, settings, scored)
        accepted, own, gains, own_gains = (column.tolist() for column in on_cpu(*judged))
        added = [count + (count < len(block)) for count, block in zip(accepted, blocks, strict=True)]
        winners, kept = [], []
        for number, sentence in enumerate(running):
            rows = range(number * width, (number + 1) * width)
            row = max(rows, key=lambda row: added[row])
            refused = accepted[row] < len(blocks[row])
            sentence.total += gains[row] + (own_gains[row] if refused else 0.0)
            if not sentence.grow(row - rows.start, accepted[row], own[row] if refused else None):
                kept.append(number)
            winners += [row] * width
        if not kept:
            return
        if width > 1:
            decoder.reorder(on_device(winners, device))
        if len(kept) < len(running):
            decoder.keep(on_device(kept, device))
            running = [running[number] for number in kept]
        decoder.rewind(torch.tensor([len(sentence.output) for sentence in running for _ in range(width)]))


def _judged(
    logits: Tensor, checked: Tensor, limit: Tensor, settings: VerifiedSettings, scored: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How many words of each block `checked` (R, m) are accepted, (R,); the decoder's own word behind them, (R,); and
    the log-probabilities of the accepted words, summed, and of the own word, (R,) each.

    Logits (R, m, V) are those of each word; at the place `limit` (R, 1) of a block, only the end may come.
    """
    normaliser = wide(logits).logsumexp(-1)
    # Padding and the start symbol (ids below EOS) are no words; their probability stays in the normaliser.
    logits.narrow(2, 0, EOS).fill_(float("-inf"))
    places = torch.arange(checked.size(1), device=checked.device)
    full = places == limit
    best, words = logits.max(-1)
    words = words.masked_fill(full, EOS)
    values = logits.gather(2, checked[..., None])[..., 0]
    accepted = checked == words
    if settings.tolerance > 0:
        near = (values >= best - settings.tolerance) & ((logits > values[..., None]).sum(2) < settings.top)
        accepted = accepted | (near & ~full)
    is_kept = accepted.long().cumprod(1)
    count = is_kept.sum(1)
    place = count.clamp(max=checked.size(1) - 1)[:, None]
    own = words.gather(1, place)
    if not scored:
        zeros = normaliser.new_zeros(count.shape)
        return count, own[:, 0], zeros, zeros
    gains = (wide(values) - normaliser).masked_fill(is_kept == 0, 0.0).sum(1)
    own_gains = wide(logits.gather(2, words[..., None]))[..., 0] - normaliser
    return count, own[:, 0], gains, own_gains.gather(1, place)[:, 0]
