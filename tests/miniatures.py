"""Tiny random models and batches for tests of models, objectives and inference."""

from __future__ import annotations

import functools
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src import registry, spec
from workflow_src.decoding.ngram import estimate
from workflow_src.decoding.search import open_search
from workflow_src.families.build import build
from workflow_src.families.energy.model import EnergyNetwork
from workflow_src.families.lvm.model import LatentVariableModel
from workflow_src.families.ngram import NgramConfig
from workflow_src.families.ngram.model import NgramLanguageModel
from workflow_src.families.score.model import ScoreNetwork
from workflow_src.nn.layers import Memory, attention_bias
from workflow_src.runtime.device import choose
from workflow_src.training.dev import Dev
from workflow_src.types import BOS, EOS, PAD, Batch, LossTerms, TrainingContext

SIZES = {"dim": 16, "feed_forward": 24, "heads": 2, "dropout": 0.0, "max_positions": 64}
REFINERS = {"score": ScoreNetwork, "energy": EnergyNetwork}


def lively(model: nn.Module, seed: int = 0, scale: float = 0.2) -> nn.Module:
    """The model with noise on all parameters (none is 0 or 1 any more), in float64 and evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return model.double().eval()


def peaked(model: nn.Module, end: float = 0.0) -> nn.Module:
    """An autoregressive model with probabilities that are far from even, whose outputs have many lengths; `end` is
    added to the logit of the end symbol."""
    with torch.no_grad():
        model.target_embedding.weight.mul_(3)
        model.output_bias[EOS] += end
    return model


LAYERS = {"encoder_layers": 2, "layers": 2}
LENGTHS = {"max_length_difference": 4}
RECURRENT = {"embedding_dim": 16, "dropout": 0.0, "max_positions": 64}
# Settings of the miniature of each family.
SETTINGS: dict[str, dict[str, Any]] = {
    "transformer": {**SIZES, "encoder_layers": 2, "decoder_layers": 2},
    "seq2seq": {**RECURRENT, "dim": 20, "encoder_dim": 12},
    "lvm": {**SIZES, **LAYERS, **LENGTHS, "latent_dim": 3, "end_symbol": False},
    "lanmt": {**SIZES, **LAYERS, **LENGTHS, "latent_dim": 3, "posterior_layers": 1},
    "nat": {**SIZES, **LAYERS},
    "dat": {**SIZES, "encoder_layers": 1, "layers": 1, "vertices": 2.0},
    "cmlm": {**SIZES, **LAYERS, **LENGTHS},
    "inat": {**SIZES, **LAYERS, **LENGTHS},
    "tagger": {**RECURRENT, "dim": 12, "max_length_difference": 6},
}
# Gates that are half open hardly distinguish words: more noise than elsewhere.
NOISE = {"seq2seq": 0.6, "tagger": 0.4}


def miniature(family: str, source_size=13, target_size=11, joint: bool = False, seed: int = 0, **overrides) -> Any:
    """A model of a family; sizes count its symbols, such as a blank."""
    torch.manual_seed(seed)
    symbols = len(registry.families()[family].symbols)
    sizes = {"source": source_size - symbols * joint, "target": target_size - symbols, "joint": joint}
    return lively(build(family, SETTINGS[family] | overrides, sizes), seed, NOISE.get(family, 0.2))


transformer, seq2seq, lvm, lanmt, nat, dat, cmlm, inat, tagger = (
    functools.partial(miniature, family) for family in SETTINGS
)
# Models of p(y_t | y_<t, x), by family.
AUTOREGRESSIVE = {"transformer": transformer, "seq2seq": seq2seq}


@torch.no_grad()
def ending(seed: int = 5, **overrides) -> LatentVariableModel:
    """A model whose targets have end symbols; from its prior mean, about every other position puts one out."""
    model = lvm(seed=seed, end_symbol=True, **overrides)
    # Longer outputs have room for both.
    model.length.outer.bias[-1] += 3
    memory = model.encode(pairs([4, 1, 6, 2], [1, 1, 1, 1]).source)
    mask = torch.ones(4, 9, dtype=torch.bool)
    logits = decode(model, memory, model.prior(memory, mask)[0], mask)
    lead = (logits[..., EOS + 1 :].amax(-1) - logits[..., EOS]).flatten().sort().values
    # Between two of them, so that none is a tie.
    model.output_bias[EOS] += lead[len(lead) // 2 - 1 : len(lead) // 2 + 1].mean()
    return model


def refiner(kind: str, seed: int = 0, **overrides) -> ScoreNetwork | EnergyNetwork:
    torch.manual_seed(seed)
    settings = registry.families()[kind].model(**{**SIZES, "layers": 2, "latent_dim": 3, **overrides})
    return lively(REFINERS[kind](settings), seed)


def search(
    name: str, model: nn.Module, step_size: float = 1.0, refiner: nn.Module | None = None, scored=True, **settings
):
    """A search by its name, for a model and a network that refines; a `step_size` only where the search has one."""
    declared = registry.searches()[name]
    networks = {spec.MODEL: model} | ({spec.REFINER: refiner} if refiner is not None else {})
    sized = {"step_size": step_size} if "step_size" in declared.settings.model_fields else {}
    return open_search(networks, declared.settings(**sized, **settings), scored)


def translate(
    model,
    source: Tensor,
    name: str,
    steps: int = 0,
    step_size: float = 1.0,
    refiner=None,
    lengths: Tensor | None = None,
    trace: bool = False,
    scored: bool = True,
    **settings,
):
    """Translations of a search that refines, by its name; `steps` only where the search has some."""
    if name != "prior-mean":
        settings["steps"] = steps
    return search(name, model, step_size, refiner, scored, **settings).translate(source, lengths, trace)


def searched(networks, source: Tensor, settings, scored: bool = True, trace: bool = False, lengths=None):
    """Translations of source (B, S) by the search of its settings, with networks by role."""
    return open_search(networks, settings, scored).translate(source, lengths, trace)


def ngram(size: int, order: int = 3, seed: int = 0) -> NgramLanguageModel:
    """A language model of random texts."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 7, 40)
    model = NgramLanguageModel(NgramConfig(order=order), size, size, False)
    model.hold(estimate(draw.integers(EOS + 1, size, lengths.sum()), np.cumsum([0, *lengths]), size, order))
    return model


def ctc_greedy(model, source: Tensor, blank_penalty: float = 0.0, scored: bool = True):
    """Translations by the best symbols of slots."""
    return search("ctc-greedy", model, scored=scored, blank_penalty=blank_penalty).translate(source)


def ctc_beam(model, source: Tensor, settings, language_model=None, rescorer=None, scored: bool = True):
    """Translations by the search over prefixes; `language_model` is an object of `types.LanguageModel`."""
    networks = {spec.MODEL: model, "rescorer": rescorer}
    if language_model is not None:
        networks["language_model"] = types.SimpleNamespace(scorer=language_model)
    return searched(networks, source, settings, scored)


def decode(model, memory, z: Tensor, mask: Tensor) -> Tensor:
    """Logits (B, T, V) of p(y|z,x) of all symbols, of a model with latents of target positions."""
    return nn.functional.linear(model.hidden(memory, z, mask), model.target_embedding.weight, model.output_bias)


def memory_of(states: Tensor, mask: Tensor) -> Memory:
    """Source states (B, S, D) at the positions of mask (B, S), of a source that says nothing else."""
    source = torch.where(mask, BOS, PAD)
    return Memory(states, mask, attention_bias(mask), source, torch.zeros_like(states))


def tokens(lengths: list[int], size: int, seed: int = 0, end: bool = False) -> Tensor:
    """Random words (B, longest) of ids 3 … size-1, padded; `end` adds the end symbol."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths) + end), PAD)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(3, size, (length,), generator=generator)
        if end:
            ids[row, length] = 2
    return ids


def pairs(source_lengths: list[int], target_lengths: list[int], sizes: tuple[int, int] = (13, 11), seed: int = 0):
    source = tokens(source_lengths, sizes[0], seed, end=True)
    return Batch(source, tokens(target_lengths, sizes[1], seed + 1), tuple(range(len(source_lengths))))


class PairsDev(Dev):
    """The pairs of a batch as a dev set, cut into batches of these rows; subwords are written as words."""

    def __init__(self, pairs: Batch, *groups: list[int]):
        lines = self.lines(_unpadded(pairs.target))
        super().__init__(None, lines, self.lines, choose("cpu", "float32"), len(lines))
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "groups", groups or ([0, 2], [1, 3]))

    @staticmethod
    def lines(rows: list[list[int]]) -> list[str]:
        return [" ".join(f"w{word}" for word in row) for row in rows]

    def batches(self) -> list[Batch]:
        return [Batch(self.pairs.source[rows], self.pairs.target[rows], tuple(rows)) for rows in self.groups]

    def sources(self) -> list[list[int]]:
        return [row[:-1] for row in _unpadded(self.pairs.source)]


def _unpadded(ids: Tensor) -> list[list[int]]:
    return [[word for word in row if word != PAD] for row in ids.tolist()]


def one(batch: Batch, row: int) -> Batch:
    """One pair of a batch, without its padding."""
    source, target = batch.source[row], batch.target[row]
    return Batch(source[source != PAD][None], target[target != PAD][None], (row,))


def padded(batch: Batch, padding: int = 3) -> Batch:
    """The same pairs with more padding on both sides."""
    widen = lambda x: nn.functional.pad(x, (0, padding), value=PAD)  # noqa: E731
    return Batch(widen(batch.source), widen(batch.target), batch.indices)


def context(step: int = 0, total: int = 100, seed: int = 0, frozen=None, roles=None) -> TrainingContext:
    return TrainingContext(step, total, seed, frozen, roles or {})


def figure(terms: LossTerms, name: str) -> float:
    total, count = terms.means[name]
    return float(total / count)


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor | None]:
    """The gradient of every parameter; None where the loss does not depend on it."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True))


def greedy(model, source, max_length_ratio: float = 2.0, scored: bool = True):
    return search("greedy", model, scored=scored, max_length_ratio=max_length_ratio).translate(source)


def beam_search(
    model,
    source,
    beam: int = 4,
    length_penalty: float = 1.0,
    max_length_ratio: float = 2.0,
    language_model=None,
    **settings,
):
    """`language_model` is an object of `types.LanguageModel`, with the setting `lm_weight`."""
    networks = {spec.MODEL: model}
    if language_model is not None:
        networks["language_model"] = types.SimpleNamespace(scorer=language_model)
    sizes = {"beam": beam, "length_penalty": length_penalty, "max_length_ratio": max_length_ratio}
    return searched(networks, source, registry.searches()["beam"].settings(**sizes, **settings))


def walk(
    decoder: Any, count: int, positions: int, reordered: Collection[int], kept: Mapping[int, list[int]]
) -> Iterator[tuple[Tensor, list[tuple[int, list[int]]]]]:
    """A random walk with a cached decoder of `count` sentences: log-probabilities (R, V) at every position, and the
    sentence and the prefix of each row.

    After some positions rows are copied and `reordered`, or only some sentences `kept`.
    """
    generator = torch.Generator().manual_seed(3)

    def draw(high: int, count: int) -> Tensor:
        return torch.randint(high, (count,), generator=generator)

    sentences, width = list(range(count)), 1
    prefixes: list[list[int]] = [[] for _ in sentences]
    last = torch.full((count,), BOS)
    for position in range(positions):
        log_probabilities = decoder.step(last).log_softmax(-1)
        yield log_probabilities, [(sentences[row // width], prefix) for row, prefix in enumerate(prefixes)]
        wider = 3 if position == 0 else width
        if position in reordered:
            rows = torch.cat([i * width + draw(width, wider) for i in range(len(sentences))])
            decoder.reorder(rows)
            prefixes, width = [list(prefixes[row]) for row in rows.tolist()], wider
        if position in kept:
            decoder.keep(torch.tensor(kept[position]))
            prefixes = [prefixes[i * width + k] for i in kept[position] for k in range(width)]
            sentences = [sentences[i] for i in kept[position]]
        last = 3 + draw(8, len(prefixes))
        for prefix, token in zip(prefixes, last.tolist(), strict=True):
            prefix.append(token)
