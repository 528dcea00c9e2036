"""Shared shapes and protocols of data, models, losses, searches and training.

Legend of tensor shapes used in names and docstrings:

    B  sentences of a batch      S  source positions      T  target positions
    D  model width               Z  latent width          V  vocabulary
    H  heads                     L  refinement steps      K  samples or beams

Token tensors are int64, padded with PAD at the end. `source` ends with EOS; `target` has neither BOS nor EOS.
Masks are bool and True at real positions.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from workflow_src import spec

# Modules without torch import these ids from `spec`.
PAD, BOS, EOS, UNK = spec.PAD, spec.BOS, spec.EOS, spec.UNK


@dataclasses.dataclass(frozen=True)
class Symbols:
    """Symbols that a family adds to the vocabulary, after its subwords: `symbols["mask"]` is the id of one."""

    names: tuple[str, ...] = ()
    # The id of the first: the number of subwords of the target.
    first: int = 0

    def __getitem__(self, name: str) -> int:
        """Raises KeyError for a symbol that the family does not declare."""
        if name not in self.names:
            raise KeyError(name)
        return self.first + self.names.index(name)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.first + len(self.names)))


def max_positions(model: torch.nn.Module) -> int:
    """The longest sequence that a model has positions for, in subwords, end symbol counted."""
    # `nn.Module` declares no settings.
    return operator.attrgetter("config.max_positions")(model)


def wide(x: Tensor) -> Tensor:
    """`x` in float32 for sums and exponentials; float64 stays as it is."""
    return x if x.dtype == torch.float64 else x.float()


# Tensors of the CPU, by their copies on other devices.
_ORIGINALS: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor copied to a device without waiting for the copy; `values_on_cpu` returns the original.

    Neither may be changed in place.
    """
    copy = tensor.to(device, non_blocking=True)
    if copy is not tensor:
        _ORIGINALS[copy] = tensor
    return copy


def values_on_cpu(tensor: Tensor) -> Tensor:
    """The tensor on the CPU: the original of a `moved` tensor, else a copy, for which the CPU waits."""
    return tensor if tensor.device.type == "cpu" else _ORIGINALS.get(tensor, tensor).cpu()


def with_end(target: Tensor) -> Tensor:
    """Target (B, T) padded -> (B, T+1) with EOS after the last real token of every sentence."""
    labels = torch.nn.functional.pad(target, (0, 1), value=PAD)
    return labels.scatter(1, (target != PAD).sum(1, keepdim=True), EOS)


def with_start(target: Tensor) -> Tensor:
    """Target with BOS before the first token: ids (B, T) -> (B, T+1), or distributions (B, T, V) -> (B, T+1, V)."""
    if not target.is_floating_point():
        return torch.nn.functional.pad(target, (1, 0), value=BOS)
    first = target.new_zeros(target.size(0), 1, target.size(2))
    first[..., BOS] = 1
    return torch.cat([first, target], 1)


@dataclasses.dataclass(frozen=True)
class Batch:
    """Sentence pairs: source (B, S) with EOS, target (B, T) without, and the pairs' row numbers in the corpus."""

    source: Tensor
    target: Tensor
    indices: tuple[int, ...] = ()

    @property
    def on_cpu(self) -> Batch:
        """The batch on the CPU, where counts and lengths are read without waiting for a GPU."""
        return Batch(values_on_cpu(self.source), values_on_cpu(self.target), self.indices)

    @property
    def source_mask(self) -> Tensor:
        return self.source != PAD

    @property
    def target_mask(self) -> Tensor:
        return self.target != PAD

    @property
    def target_lengths(self) -> Tensor:
        return moved(self.on_cpu.target_mask.sum(1), self.target.device)

    @property
    def output_lengths(self) -> Tensor:
        """Target lengths (B,), but at least 1: models put out at least one subword."""
        return moved(self.on_cpu.target_lengths.clamp(min=1), self.target.device)

    @property
    def num_target_tokens(self) -> int:
        """Real target subwords, one end symbol a sentence counted, as training speeds count them."""
        return int(self.on_cpu.target_mask.sum()) + self.target.size(0)

    @property
    def num_target_words(self) -> int:
        """Real target subwords without end symbols; 1 where all targets are empty, so that there is a mean."""
        return max(1, int(self.on_cpu.target_mask.sum()))

    def to(self, device: torch.device) -> Batch:
        return Batch(moved(self.source, device), moved(self.target, device), self.indices)


@dataclasses.dataclass(frozen=True)
class LossTerms:
    """The result of an objective: `loss` to minimise, a sum divided by `count`, and named figures to log.

    `count` is the number of positions whose outputs the loss scores, at least 1: target subwords, and end symbols where
    the model puts them out. Masked models score masked positions alone, refiners of latents those of the latents.
    Figures are means over the batch (floats or 0-d tensors). Batches computed in parts are joined by their counts.
    """

    loss: Tensor
    count: int
    figures: Mapping[str, float | Tensor]


@dataclasses.dataclass(frozen=True)
class TrainingContext:
    """Arguments of an objective beside model and batch: progress, a seed and frozen models.

    The seed is that of the update: random numbers follow from it and from a sentence's row (`losses/draws.py`).
    """

    step: int
    total_steps: int
    seed: int
    frozen: Any = None
    # Models in the roles that the family needs beside its base, by role.
    roles: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def progress(self) -> float:
        """Share of training done, in [0, 1]."""
        return self.step / max(1, self.total_steps)


class Objective(Protocol):
    """The loss of a family, for models of this family."""

    def __call__(self, model: Any, batch: Batch, context: TrainingContext, /) -> LossTerms: ...


# Hypotheses of a sentence, best first: score and subword ids.
Ranked = list[tuple[float, list[int]]]


@dataclasses.dataclass
class Hypotheses:
    """Outputs of a search, one entry a source sentence: subword ids without BOS and EOS."""

    tokens: list[list[int]]
    scores: list[float]
    steps: list[int] | None = None
    # Refinement only: tokens after every step, traces[step][sentence].
    traces: list[list[list[int]]] | None = None
    # Latent search only: distinct candidates that were ranked.
    candidates: list[int] | None = None
    # Searches with several hypotheses a sentence: all of them, best first, `tokens` among them. Computed when called;
    # scores are comparable only where the search was `scored`.
    ranked: Callable[[], list[Ranked]] | None = dataclasses.field(default=None, repr=False, compare=False)


# A sum, and what it is divided by.
Mean = tuple[float | Tensor, float | Tensor]


@dataclasses.dataclass(frozen=True)
class Measured:
    """Figures of a batch of dev, by name.

    means    a sum over the batch and its count; sums and counts of all batches are added up before they are divided
    outputs  translations of its sentences, as subword ids, whose BLEU is the figure
    """

    means: Mapping[str, Mean]
    outputs: Mapping[str, list[list[int]]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class DevFigures:
    """What is measured on dev while a model of a family trains, and the figure that selects weights.

    measure      (model, batch, random keys (B,) of its sentences, the same at every validation) -> Measured
    searches     (model, source) -> Hypotheses, by the name of the figure that is their BLEU
    criterion    the figure of which the largest value, or the `smallest`, is the best. Among equal ones it is that
                 with the lowest `dev_loss`, where the figures have it
    differences  two figures by the name of the figure that is the first less the second, where both are measured
    fault        (last figures) -> a failure that they show and the loss does not, in a sentence, or None
    """

    measure: Callable[[Any, Batch, Tensor], Measured]
    searches: Mapping[str, Callable[[Any, Tensor], Hypotheses]]
    criterion: str
    smallest: bool = False
    differences: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    fault: Callable[[Mapping[str, float]], str | None] | None = None


class ImportedNetwork(Protocol):
    """The network of a system that was made elsewhere, as distillation calls it; sources are normalised lines.

    `longest_source` and `lengths` count the network's own subwords.
    """

    longest_source: int

    def lengths(self, lines: list[str]) -> list[int]: ...

    def translate(
        self, lines: list[str], settings: spec.SearchSettings, batch: int, scored: bool = True
    ) -> Hypotheses: ...


# The networks that a search works with, by role. Each is `Any`: its class is known only when a bundle is opened. A
# search treats it as one of the protocols below.
Networks = Mapping[str, Any]

RefinementStep = Callable[[Tensor], Tensor]

# The output of a model's encoder. Searches pass it to methods of the same model; they may read its `mask` (B, S), and
# `select(rows)`, the output of some sentences.
EncoderOutput = Any


class LengthHead(Protocol):
    """A classifier of target lengths (`nn/length.py`), as inference calls it. Lengths count words."""

    # The longest target.
    longest: int

    def __call__(self, memory: EncoderOutput, /) -> Tensor:
        """Scores (B, C) of classes of lengths."""

    def classes(self, memory: EncoderOutput, target_lengths: Tensor) -> Tensor:
        """The class (B,) of each sentence's length (B,)."""

    def predict(self, memory: EncoderOutput, quantile: float | None = None, lengthening: float = 0.0) -> Tensor:
        """The target length of each sentence (B,)."""

    def likely(self, memory: EncoderOutput, count: int, lengthening: float = 0.0) -> Tensor:
        """The `count` most probable target lengths (B, count), most probable first."""


class PositionsConfig(Protocol):
    """Settings of a model that searches read: the longest sequence, in subwords, end symbol counted."""

    @property
    def max_positions(self) -> int: ...


class LatentConfig(PositionsConfig, Protocol):
    """Settings of a model that latent inference reads: also the width of latents."""

    @property
    def latent_dim(self) -> int: ...


class Rescorer(Protocol):
    """A model with the trait `scorer`, as ranking calls it."""

    @property
    def config(self) -> PositionsConfig: ...

    def scoring_states(self, source: Tensor) -> Any:
        """States that depend on source (B, S) alone; `select(rows)` gives those of some sentences."""

    def log_probability(self, states: Any, target: Tensor) -> Tensor:
        """log p(y|x) of target (B, T), an end symbol counted where there is one, (B,); -inf for impossible targets."""


class RelaxedRescorer(Rescorer, Protocol):
    """A rescorer that also reads distributions over words."""

    def relaxed_logits(self, states: Any, target: Tensor) -> Tensor:
        """Logits of p(. | y_<t, x), (B, T+1, V), of distributions over words, target (B, T, V)."""


class IncrementalDecoder(Protocol):
    """An autoregressive decoder that reads one position at a time and keeps its states.

    Rows are hypotheses: equally many for each sentence, next to each other; one at the start.
    """

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token a row, (N,) int64. Logits (N, V) for the next one, which callers may overwrite."""

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue what row `rows[i]` has read; also widens from one row a sentence to several."""

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these (int64 indices), with all their rows."""


class FixedDecoder(IncrementalDecoder, Protocol):
    """A decoder whose shapes depend on no value, as a model's `start_fixed` makes it for engines that capture steps.

    A call replaces its tensors and changes none of them, but `step` may write a position of `cache`.
    """

    cache: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """All tensors that calls replace, by attribute."""

    def lengthen(self, length: int) -> None:
        """Make room for `length` positions."""


class WordTable(Protocol):
    """Embeddings of words."""

    @property
    def weight(self) -> Tensor: ...


class AutoregressiveModel(Protocol):
    """A model that puts out word by word, as searches and losses call it."""

    @property
    def config(self) -> PositionsConfig: ...

    @property
    def target_embedding(self) -> WordTable:
        """The embeddings of the target, which are the weights of the output projection too."""

    @property
    def output_bias(self) -> Tensor: ...

    def encode(self, source: Tensor) -> EncoderOutput: ...

    def hidden(self, memory: EncoderOutput, target: Tensor) -> Tensor:
        """Inputs (B, T+1, D) of the output projection when the decoder reads BOS and then target (B, T)."""

    def start(self, memory: EncoderOutput) -> IncrementalDecoder: ...


class SymbolModel(Protocol):
    """A model that puts out a symbol at every position; `output` turns the symbols into subwords."""

    def output(self, symbols: Tensor, mask: Tensor) -> Tensor:
        """The outputs (B, N), padded, of symbols (B, N) at the positions of mask (B, N)."""


class LatentModel(Protocol):
    """A model with latents of target positions, as latent inference calls it (an `lvm`, whatever its layers)."""

    @property
    def extra_positions(self) -> int:
        """Latents of a sentence beside those of its words: 1 where targets have an end symbol."""

    @property
    def length(self) -> LengthHead: ...

    @property
    def config(self) -> LatentConfig: ...

    def encode(self, source: Tensor) -> EncoderOutput: ...

    def whole_target(self, target: Tensor) -> Tensor:
        """Target (B, T) as the model reads it, (B, T + extra_positions)."""

    def predict_lengths(self, memory: EncoderOutput, quantile: float | None = None, lengthening: float = 0.0) -> Tensor:
        """Predicted target lengths in words, (B,) int64, at least 1: the most probable, or a quantile."""

    def prior(self, memory: EncoderOutput, target_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z|x), each (B, T, Z)."""

    def posterior(self, memory: EncoderOutput, target: Tensor, target_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z|y,x), each (B, T, Z)."""

    def decode(self, memory: EncoderOutput, z: Tensor, target_mask: Tensor) -> Tensor:
        """Logits of p(y|z,x) at every position, (B, T, V)."""


class SourceLatentModel(SymbolModel, Protocol):
    """A model with latents of source positions, for outputs of any length, as latent inference calls it."""

    # Distinguishes it from a `LatentModel`.
    source_latents: bool

    @property
    def config(self) -> LatentConfig: ...

    @property
    def output_bias(self) -> Tensor: ...

    def encode(self, source: Tensor) -> EncoderOutput: ...

    def prior(self, memory: EncoderOutput) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z|x), each (B, S, Z)."""

    def posterior(self, memory: EncoderOutput, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z|x,y), each (B, S, Z), of targets (B, T), padded."""

    def decode(self, memory: EncoderOutput, z: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of p(y|z,x) at every slot, (B, N, V), -inf for barred symbols, and the mask (B, N)."""


class AlignedLatentModel(SourceLatentModel, Protocol):
    """A model whose outputs are read off slots, as with CTC; it may have latents of source positions."""

    # The id that a slot without a subword puts out.
    blank: int

    @property
    def target_embedding(self) -> WordTable: ...

    def hidden(self, memory: EncoderOutput, *, z: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """States (B, N, D) at the slots, of latents z (B, S, Z) or the prior's mean, and the mask (B, N)."""

    def logits(self, hidden: Tensor, blank_penalty: float = 0.0) -> Tensor:
        """Scores over the vocabulary, (..., V); `blank_penalty` is taken off the blank's."""

    def slot_origins(self, lengths: Tensor, slots: Tensor, indices: Tensor) -> Tensor:
        """The source position (B, N) that each slot begins with: slots with indices (N,), sources of lengths (B,)."""


class OnePassModel(SymbolModel, Protocol):
    """A model that puts out all words at once, at a given length, as decoding in one pass calls it."""

    @property
    def length(self) -> LengthHead: ...

    def encode(self, source: Tensor) -> EncoderOutput: ...

    def hidden(self, memory: EncoderOutput, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, N, D) of outputs of these lengths (B,), and the mask (B, N)."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, (..., V), -inf for symbols that may not be put out."""


class MaskedModel(OnePassModel, Protocol):
    """A model that predicts masked subwords; the states of `hidden` are those with all positions masked."""

    # The id that stands at masked positions of a target.
    mask_symbol: int

    def states(self, memory: EncoderOutput, target: Tensor, mask: Tensor) -> Tensor:
        """States (C, N, D) of target (C, N) at the positions of mask (C, N); C is a multiple of the sources B."""


class IterativeModel(OnePassModel, Protocol):
    """A model that refines its output pass by pass: `hidden` is the first pass, `refine` each later one."""

    def refine(self, memory: EncoderOutput, guess: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        """A later pass: states (B, N, D) from a guess (B, N) and the states of the pass that made it."""


class LatentLengthModel(SourceLatentModel, Protocol):
    """A model whose latents of source positions determine the length of the output: p(l|z)."""

    # Distinguishes it from other `SourceLatentModel`s.
    latent_lengths: bool
    # Positions of an output beside those of its words: 1 where targets have an end symbol.
    extra_positions: int

    def predict_lengths(
        self, memory: EncoderOutput, z: Tensor, quantile: float | None = None, lengthening: float = 0.0
    ) -> Tensor:
        """Target lengths in words, (B,) int64, of latents (B, S, Z): the most probable, or a quantile."""

    def likely_lengths(self, memory: EncoderOutput, z: Tensor, count: int, lengthening: float = 0.0) -> Tensor:
        """The `count` most probable target lengths in words, (B, count), most probable first."""

    def decode(self, memory: EncoderOutput, z: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As a `SourceLatentModel`, at the most probable length of z or at these lengths (B,) in words."""

    def log_likelihood(self, memory: EncoderOutput, z: Tensor, target: Tensor) -> Tensor:
        """log p(y, l|x,z), (B,) nats, of targets (B, T), padded."""


class LanguageModel(Hashable, Protocol):
    """Probabilities of words one after another. States are opaque."""

    @property
    def start(self) -> Any:
        """The state before the first word."""

    def step(self, state: Any, word: int) -> tuple[float, Any]:
        """log p(word | state) in nats, and the state after it; EOS ends a sentence."""


class Refiner(Protocol):
    """A network that moves latents: direction (B, T, Z) to be added to z."""

    def direction(self, memory: EncoderOutput, z: Tensor, target_mask: Tensor, differentiable: bool = False) -> Tensor:
        """`differentiable`: a loss of the direction trains the network."""
