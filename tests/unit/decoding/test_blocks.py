"""Decoders that read blocks of tokens, against the same tokens one at a time and against the whole pass."""

from __future__ import annotations

import pytest
import torch
from miniatures import AUTOREGRESSIVE as MODELS
from miniatures import pairs

from workflow_src.nn.models import AutoregressiveModel
from workflow_src.types import BOS, PAD

V = 11
KINDS = [*MODELS, "without states"]


def model_of(kind: str) -> AutoregressiveModel:
    return MODELS.get(kind, MODELS["transformer"])(13, V)


def started(kind: str, source: list[int]):
    model = model_of(kind)
    memory = model.encode(pairs(source, [1] * len(source)).source)
    return model, AutoregressiveModel.start(model, memory) if kind not in MODELS else model.start(memory)


def fixed(source: list[int], width: int = 1):
    """A decoder of fixed shapes, each row at a position of its own."""
    model = model_of("transformer")
    memory = model.encode(pairs(source, [1] * len(source)).source)
    decoder = model.start_fixed(memory, width, 40)
    decoder.rewind(torch.zeros(len(source) * width, dtype=torch.int64))
    return model, decoder


def words(rows: int, count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, V, (rows, count), generator=torch.Generator().manual_seed(seed))


def after(model: AutoregressiveModel, source: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    """Logits (T, V) after every token of a row, by the whole pass over it alone, with its source (S,) unpadded."""
    assert tokens[0] == BOS
    memory = model.encode(source[source != PAD][None])
    return model.logits(model.hidden(memory, torch.tensor([tokens[1:]], dtype=torch.int64)))[0]


class Reader:
    """Reads blocks with a decoder, and remembers what each row has read."""

    def __init__(self, decoder, model, source: list[int], width: int = 1):
        self.decoder = decoder
        self.model = model
        self.width = width
        self.sources = list(pairs(source, [1] * len(source)).source)
        self.read: list[list[int]] = [[] for _ in range(len(source) * width)]

    @torch.no_grad()
    def block(self, tokens: torch.Tensor) -> None:
        logits = self.decoder.steps(tokens)
        begins = [len(row) for row in self.read]
        self.read = [row + block for row, block in zip(self.read, tokens.tolist(), strict=True)]
        self.assert_same(logits, begins)

    @torch.no_grad()
    def single(self, tokens: torch.Tensor) -> None:
        logits = self.decoder.step(tokens)
        begins = [len(row) for row in self.read]
        self.read = [[*row, token] for row, token in zip(self.read, tokens.tolist(), strict=True)]
        self.assert_same(logits[:, None], begins)

    def assert_same(self, logits: torch.Tensor, begins: list[int]) -> None:
        assert logits.size(0) == len(begins)
        for row, begin in enumerate(begins):
            whole = after(self.model, self.sources[row // self.width], self.read[row])
            assert torch.allclose(logits[row], whole[begin:], atol=1e-10), row

    def rewind(self, *positions: int) -> None:
        self.decoder.rewind(torch.tensor(positions))
        self.read = [row[:length] for row, length in zip(self.read, positions, strict=True)]

    def reorder(self, *rows: int) -> None:
        self.decoder.reorder(torch.tensor(rows))
        self.width = len(rows) // len(self.sources)
        self.read = [list(self.read[row]) for row in rows]

    def keep(self, *sentences: int) -> None:
        self.decoder.keep(torch.tensor(sentences))
        self.read = [self.read[s * self.width + place] for s in sentences for place in range(self.width)]
        self.sources = [self.sources[sentence] for sentence in sentences]


def first_block(rows: int, count: int, seed: int = 0) -> torch.Tensor:
    tokens = words(rows, count, seed)
    tokens[:, 0] = BOS
    return tokens


@pytest.fixture(params=[*KINDS, "fixed"])
def reader(request):
    """A function of lengths of sources that gives a `Reader`, of decoders that keep states, none, or fixed shapes."""

    def start(source: list[int]) -> Reader:
        model, decoder = fixed(source) if request.param == "fixed" else started(request.param, source)
        return Reader(decoder, model, source)

    return start


def test_blocks_are_single_steps(reader):
    rows = reader([4, 1, 6])
    rows.block(first_block(3, 5))
    rows.single(words(3, 1, 1)[:, 0])
    rows.block(words(3, 1, 2))
    rows.block(words(3, 4, 3))


def test_rows_go_on_where_they_are_rewound_to(reader):
    rows = reader([4, 1, 6])
    rows.block(first_block(3, 5))
    rows.rewind(5, 1, 3)
    rows.block(words(3, 2, 6))
    rows.block(words(3, 3, 1))
    rows.rewind(8, 6, 5)
    rows.single(words(3, 1, 2)[:, 0])
    rows.block(words(3, 6, 3))
    # All at the same position again, and all at the beginning of the block.
    rows.rewind(11, 11, 11)
    rows.block(words(3, 2, 4))
    rows.rewind(11, 11, 11)
    rows.single(words(3, 1, 5)[:, 0])


def test_blocks_make_the_cache_grow(reader):
    rows = reader([4, 1])
    rows.block(first_block(2, 20))
    rows.rewind(3, 19)
    rows.block(words(2, 21, 1)[:, :18])
    rows.rewind(21, 37)
    rows.single(words(2, 1, 2)[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_widened_reordered_and_dropped_between_blocks(kind):
    source = [4, 1, 6]
    model, decoder = started(kind, source)
    rows = Reader(decoder, model, source)
    rows.block(first_block(3, 3))
    rows.rewind(2, 3, 1)
    rows.reorder(0, 0, 1, 1, 2, 2)
    rows.block(words(6, 4, 1))
    rows.reorder(1, 0, 3, 3, 4, 5)
    rows.rewind(6, 3, 4, 7, 1, 5)
    rows.block(words(6, 2, 2))
    rows.keep(2, 0)
    rows.rewind(3, 5, 7, 3)
    rows.single(words(4, 1, 3)[:, 0])
    rows.keep(1)
    rows.block(words(2, 3, 4))


def test_fixed_rows_are_reordered_and_dropped_between_blocks():
    source = [4, 1, 6]
    model, decoder = fixed(source, 2)
    rows = Reader(decoder, model, source, 2)
    rows.block(first_block(6, 4))
    rows.reorder(1, 0, 3, 3, 4, 5)
    rows.rewind(4, 3, 1, 2, 1, 4)
    rows.block(words(6, 2, 2))
    rows.keep(2, 0)
    rows.block(words(4, 3, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_may_end_behind_the_last_position_in_rows_that_end_before(kind):
    """Rows of 62 and 3 tokens read on by 2: a block of 6 leaves the first row no room for the tokens behind."""
    source = [4, 1]
    model, decoder = started(kind, source)
    rows = Reader(decoder, model, source)
    rows.block(first_block(2, 62))
    rows.rewind(62, 3)
    tokens = words(2, 6, 1)
    with torch.no_grad():
        logits = decoder.steps(tokens)
    for row, kept in enumerate((2, 6)):
        read = rows.read[row] + tokens[row, :kept].tolist()
        assert torch.allclose(logits[row, :kept], after(model, rows.sources[row], read)[-kept:], atol=1e-10)
