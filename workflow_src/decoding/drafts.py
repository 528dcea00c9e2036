"""Searches in which an autoregressive decoder checks drafts, a block of words in each pass (Xia et al. 2023).

A pass reads the last word of the output and the next words of the draft. The draft is kept up to the first word that
the decoder refuses; its own word goes there, and the rest of the draft is lined up behind it (as Sun et al. 2021 do).
An engine may compute the same passes in fixed shapes (`engines/captured_blocks.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from workflow_src.data.batching import pad
from workflow_src.decoding.lengths import limits
from workflow_src.decoding.ranking import EXAMPLES, Function
from workflow_src.decoding.search import SearchModule
from workflow_src.nn.models import BlockModel
from workflow_src.runtime.device import on_cpu, on_device
from workflow_src.spec import ROWS
from workflow_src.types import BOS, EOS, PAD, UNK, Hypotheses, IncrementalDecoder, Networks, max_positions, wide

# Places of a draft, before and behind the one where the output's last word is expected, that are looked through.
BEFORE, BEHIND = 2, 8
# How often a word of a draft may be refused before it is taken for an exchanged one. Systems in one pass leave out more
# words than they exchange.
REFUSALS = 2

# The drafts of a sentence: words without an end symbol.
Drafts = Sequence[Sequence[int]]
# Result for each block: accepted words, the decoder's own word behind them, and the log-probabilities of both.
Judged = tuple[Tensor, Tensor, Tensor, Tensor]


class Draft:
    """A draft with its end symbol, the place of the word that may come next, and how often that word was refused."""

    def __init__(self, words: Sequence[int]):
        end = words.index(EOS) if EOS in words else len(words)
        self.words = [*words[:end], EOS]
        self.place = 0
        self.refusals = 0

    def next(self, count: int) -> list[int]:
        return self.words[self.place : self.place + count]

    def realign(self, output: Sequence[int], added: int) -> None:
        """Go on behind the place that has the last words of the output, which grew by `added` words.

        Of the places near the expected one that have the last word, those are better that have the one before it too,
        and of these the nearest. Where none has it, the draft left it out, and goes on with the word that was refused;
        after more than `REFUSALS` of that word, behind it.
        """
        expected = self.place + added - 1
        last = len(self.words) - 1
        best, best_key = None, (2, 0)
        for place in range(max(0, expected - BEFORE), min(last, expected + BEHIND + 1)):
            if self.words[place] == output[-1]:
                both = place > 0 and len(output) > 1 and self.words[place - 1] == output[-2]
                if (key := (0 if both else 1, abs(place - expected))) < best_key:
                    best, best_key = place, key
        if best is None:
            self.refusals = self.refusals + 1 if added == 1 else 1
        if best is None and self.refusals <= REFUSALS:
            following = expected
        else:
            following = (expected if best is None else best) + 1
            self.refusals = 0
        # What is left is the end at least.
        self.place = min(following, last)


@dataclasses.dataclass
class Sentence:
    """A sentence, while its output grows: the longest output, drafts, the sum of log-probabilities, and passes."""

    limit: int
    drafts: list[Draft]
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
                other.place, other.refusals = other.place + accepted, 0
            else:
                other.realign(self.output, len(words))
        return False


class Passes(Protocol):
    """What computes passes. Rows are drafts: equally many for each sentence, next to each other."""

    def read(self, read: Tensor, checked: Tensor, limit: Tensor) -> Judged:
        """Read a block (R, m) of each row, and judge the words `checked` (R, m) that follow each of its words.

        At the place `limit` (R,) of a block only the end may come. All tensors are on the CPU, the results too.
        """

    def go_on(self, winners: Sequence[int], kept: Sequence[int], positions: Sequence[int]) -> None:
        """Make each row continue what row `winners[row]` has read; then drop all sentences but `kept`, and take back
        what their rows have read after `positions`."""


class DraftSearch(SearchModule):
    """A search that checks drafts of another system.

    Its settings have `drafts` (of a sentence), `block` (words that a pass checks), `tolerance` and `top` (which words
    are accepted), and `max_length_ratio`. A subclass sets the other system's search.
    """

    # Networks of `drafting` by role: the same object in every call, by which engines know it again.
    drafting_networks: Networks
    drafting: SearchModule
    blocks = True
    # Whether the drafter's network reads no value while it computes.
    static = True

    def drafts(self, sources: Sequence[Sequence[int]], translate: Callable[[list[Any]], Hypotheses]) -> list[Drafts]:
        """The drafts of sources (without end symbols), made by `translate`, a function that computes `drafting`.

        There are equally many for each, empty ones where the drafter has no positions for a source.
        """
        number, longest = self.settings.drafts, max_positions(self.drafting.model) - 1
        rows = [row for row, source in enumerate(sources) if len(source) <= longest]
        drafts: list[Drafts] = [[[]] * number for _ in sources]
        if rows:
            hypotheses = translate([sources[row] for row in rows])
            ranked = hypotheses.ranked() if number > 1 and hypotheses.ranked else None
            for place, row in enumerate(rows):
                best = [words for _, words in ranked[place]] if ranked else [hypotheses.tokens[place]]
                drafts[row] = [best[draft % len(best)] for draft in range(number)]
        return drafts

    @torch.no_grad()
    def translate(self, source: Tensor, lengths: Tensor | None = None, trace: bool = False) -> Hypotheses:
        """Translate source (B, S) eagerly: finished sentences leave the batch.

        There are no outputs of given lengths, and no traces.
        """
        del lengths, trace
        sources = [[word for word in row if word not in (PAD, EOS)] for row in source.tolist()]

        def draft(rows: list[Any]) -> Hypotheses:
            return self.drafting.translate(pad(rows, eos=True).to(source.device, non_blocking=True))

        return self.verify(source, self.drafts(sources, draft))

    @torch.no_grad()
    def verify(
        self, source: Tensor, drafts: Sequence[Drafts], decoder: Callable[[Tensor], IncrementalDecoder] | None = None
    ) -> Hypotheses:
        """Translations of source (B, S) from drafts of each sentence, which may be any words.

        `decoder` makes what reads blocks from some of the sources; None: the model's own.
        """
        decoder = decoder or (lambda part: self.model.start(self.model.encode(part)))
        # Logits of at most ROWS words are computed together, or those of one sentence.
        size = max(1, ROWS // (self.settings.block * self.settings.drafts))
        sentences: list[Sentence] = []
        for start in range(0, source.size(0), size):
            part = source[start : start + size]
            begun = self.begun(part, drafts[start : start + size])
            self.grow(begun, DecoderPasses(self, part, decoder(part)))
            sentences += begun
        return results(sentences)

    def begun(self, source: Tensor, drafts: Sequence[Drafts]) -> list[Sentence]:
        """The sentences of source (B, S) with their drafts, before the first pass."""
        longest = limits(source, self.settings.max_length_ratio, self.model.config.max_positions).tolist()
        return [Sentence(limit, [Draft(words) for words in own]) for limit, own in zip(longest, drafts, strict=True)]

    def grow(self, sentences: list[Sentence], passes: Passes) -> None:
        """Let the outputs of all sentences grow until they are complete."""
        width, running = self.settings.drafts, sentences
        while True:
            blocks = [block for sentence in running for block in sentence.blocks(self.settings.block)]
            begins = [sentence for sentence in running for _ in sentence.drafts]
            checked = pad(blocks, eos=False)
            last = torch.tensor([sentence.output[-1] if sentence.output else BOS for sentence in begins])
            # The last word of a block is checked, and not read.
            read = torch.cat([last[:, None], checked[:, :-1]], 1)
            limit = torch.tensor([sentence.limit - len(sentence.output) for sentence in begins])
            accepted, own, gains, own_gains = (column.tolist() for column in passes.read(read, checked, limit))
            winners, kept = [], []
            for number, sentence in enumerate(running):
                rows = range(number * width, (number + 1) * width)
                row = max(rows, key=lambda row: accepted[row] + (accepted[row] < len(blocks[row])))
                refused = accepted[row] < len(blocks[row])
                sentence.total += gains[row] + (own_gains[row] if refused else 0.0)
                if not sentence.grow(row - rows.start, accepted[row], own[row] if refused else None):
                    kept.append(number)
                winners += [row] * width
            if not kept:
                return
            running = [running[number] for number in kept]
            passes.go_on(winners, kept, [len(sentence.output) for sentence in running for _ in range(width)])

    def judge(self, logits: Tensor, checked: Tensor, limit: Tensor) -> Judged:
        """How many words of each block `checked` (R, m) are accepted, (R,); the decoder's own word behind them, (R,);
        and the log-probabilities of the accepted words, summed, and of the own word, (R,) each.

        Logits (R, m, V) are those of each word; at the place `limit` (R,) of a block, only the end may come.
        """
        normaliser = wide(logits).logsumexp(-1) if self.scored else None
        # Padding and the start symbol (ids below EOS) are no words; their probability stays in the normaliser.
        logits.narrow(2, 0, EOS).fill_(float("-inf"))
        full = torch.arange(checked.size(1), device=checked.device) == limit[:, None]
        best, words = logits.max(-1)
        words = words.masked_fill(full, EOS)
        values = logits.gather(2, checked[..., None])[..., 0]
        accepted = checked == words
        if self.settings.tolerance > 0:
            # A huge tolerance lets no symbol in that is no word.
            is_near = (values >= best - self.settings.tolerance) & values.isfinite()
            accepted = accepted | (is_near & ((logits > values[..., None]).sum(2) < self.settings.top) & ~full)
        kept = accepted.long().cumprod(1)
        count = kept.sum(1)
        place = count.clamp(max=checked.size(1) - 1)[:, None]
        own = words.gather(1, place)[:, 0]
        if normaliser is None:
            zeros = torch.zeros_like(count)
            return count, own, zeros, zeros
        gains = (wide(values) - normaliser).masked_fill(kept == 0, 0.0).sum(1)
        own_gains = wide(logits.gather(2, words[..., None]))[..., 0] - normaliser
        return count, own, gains, own_gains.gather(1, place)[:, 0]


class DecoderPasses:
    """Passes over sentences of source (B, S), which `decoder` has not begun."""

    def __init__(self, search: DraftSearch, source: Tensor, decoder: IncrementalDecoder):
        self.search = search
        self.device = source.device
        self.width = search.settings.drafts
        self.decoder = decoder
        if self.width > 1:
            self.decoder.reorder(torch.arange(source.size(0), device=self.device).repeat_interleave(self.width))

    def read(self, read: Tensor, checked: Tensor, limit: Tensor) -> Judged:
        read, checked, limit = (tensor.to(self.device, non_blocking=True) for tensor in (read, checked, limit))
        accepted, own, gains, own_gains = on_cpu(*self.search.judge(self.decoder.steps(read), checked, limit))
        return accepted, own, gains, own_gains

    def go_on(self, winners: Sequence[int], kept: Sequence[int], positions: Sequence[int]) -> None:
        if self.width > 1:
            self.decoder.reorder(on_device(winners, self.device))
        if len(kept) * self.width < len(winners):
            self.decoder.keep(on_device(kept, self.device))
        self.decoder.rewind(torch.tensor(positions))


class _SourceReader(nn.Module):
    def __init__(self, model: BlockModel):
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> Tensor:
        return self.model.read_source(source)


class _BlockReader(nn.Module):
    def __init__(self, model: BlockModel):
        super().__init__()
        self.model = model

    def forward(
        self, source: Tensor, source_keys_values: Tensor, past: Tensor, begins: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self.model.read_block(source, source_keys_values, past, begins, tokens)


def reading_source(model: BlockModel) -> Function:
    """`read_source` of a model for engines that compile it."""
    return Function(_SourceReader(model), {}, (EXAMPLES[:1],), (EXAMPLES,), ("source_keys_values",))


def reading_block(model: BlockModel) -> Function:
    """`read_block` of a model for engines that compile it."""

    @torch.no_grad()
    def example(source: Tensor, rows: int) -> tuple[Tensor, ...]:
        read = model.read_source(source)
        past = read.new_zeros(*read.shape[:2], rows, read.size(3), 3, read.size(5))
        return source, read, past, torch.full((rows,), 2), torch.full((rows, 4), UNK)

    axes = {"source_keys_values": (2, 4), "past": (2, 4), "begins": (0,), "tokens": (0, 1)}
    outputs = ("logits", "keys_values")
    return Function(_BlockReader(model), axes, example(EXAMPLES[:1], 2), example(EXAMPLES, 4), outputs, by_row=True)


def results(sentences: Sequence[Sentence]) -> Hypotheses:
    """The complete outputs; scores are log-probability / tokens, end symbols counted, and steps are passes."""
    return Hypotheses(
        [sentence.output for sentence in sentences],
        [sentence.total / (len(sentence.output) + 1) for sentence in sentences],
        [sentence.passes for sentence in sentences],
    )
