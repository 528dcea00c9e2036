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
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from workflow_src import spec

# Modules without torch import these ids from `spec`.
PAD, BOS, EOS, UNK = spec.PAD, spec.BOS, spec.EOS, spec.UNK


# Rows and columns of cells of a matrix.
Cells = tuple[Tensor, Tensor]


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


def length_mask(lengths: Tensor) -> Tensor:
    """Mask (B, T) of sequences of the given lengths (B,)."""
    return torch.arange(int(lengths.max()), device=lengths.device)[None, :] < lengths[:, None]


def cells(mask: Tensor, device: torch.device) -> Cells:
    """Indices of a mask's True values, for tensors on a device; the CPU waits to read a mask that is on a GPU."""
    rows, columns = mask.nonzero().to(device, non_blocking=True).unbind(1)
    return rows, columns


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
    """Sentence pairs: source (B, S) with EOS, target (B, T) without, and the pairs' row numbers in the corpus.

    A copy on a GPU keeps the batch that it is a copy of: lengths and counts are read on the CPU, which does not wait.
    """

    source: Tensor
    target: Tensor
    indices: tuple[int, ...] = ()
    # Not of the constructor: `dataclasses.replace` may change the pairs.
    original: Batch | None = dataclasses.field(default=None, init=False, repr=False, compare=False)

    def to(self, device: torch.device) -> Batch:
        """The batch on a device; the CPU does not wait for the copy."""
        on_cpu = self.on_cpu
        source, target = (ids.to(device, non_blocking=True) for ids in (on_cpu.source, on_cpu.target))
        copy = Batch(source, target, self.indices)
        object.__setattr__(copy, "original", on_cpu)
        return copy

    @property
    def on_cpu(self) -> Batch:
        return self.original or Batch(self.source.cpu(), self.target.cpu(), self.indices)

    @property
    def source_mask(self) -> Tensor:
        return self.source != PAD

    @property
    def target_mask(self) -> Tensor:
        return self.target != PAD

    @property
    def source_lengths(self) -> Tensor:
        """(B,) on the CPU, end symbols counted."""
        return self.on_cpu.source_mask.sum(1)

    @property
    def target_lengths(self) -> Tensor:
        """(B,) on the CPU."""
        return self.on_cpu.target_mask.sum(1)

    @property
    def output_lengths(self) -> Tensor:
        """Target lengths (B,) on the CPU, but at least 1: models put out at least one subword."""
        return self.target_lengths.clamp(min=1)

    def cells(self, lengths: Tensor) -> Cells:
        """Indices of the real positions of sequences of lengths (B,) on the CPU, for tensors on the batch's device."""
        return cells(length_mask(lengths), self.target.device)

    @property
    def num_target_tokens(self) -> int:
        """Real target subwords, one end symbol a sentence counted, as training speeds count them."""
        return int(self.target_lengths.sum()) + self.target.size(0)

    @property
    def num_target_words(self) -> int:
        """Real target subwords without end symbols; 1 where all targets are empty, so that there is a mean."""
        return max(1, int(self.target_lengths.sum()))


# A sum, and what it is divided by.
Mean = tuple[float | Tensor, float | Tensor]


@dataclasses.dataclass(frozen=True)
class LossTerms:
    """The result of an objective: `loss` to minimise, a sum divided by `count`, and named figures to log.

    `count` is the number of positions whose outputs the loss scores, at least 1: target subwords, and end symbols where
    the model puts them out. Masked models score masked positions alone, refiners of latents those of the latents. It is
    the number of sentences where the loss is a mean over these.
    A figure is a sum over the batch and what it is divided by, or a number or 0-d tensor that is a mean over `count`.
    Sums and counts of all batches are added up before they are divided. No figure has the name of one that a training
    counts itself, such as `loss` and `step`.
    """

    loss: Tensor
    count: int
    figures: Mapping[str, float | Tensor | Mean]

    @property
    def means(self) -> dict[str, Mean]:
        """The sum and the count of each figure."""
        return {
            name: figure if isinstance(figure, tuple) else (figure * self.count, self.count)
            for name, figure in self.figures.items()
        }


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
    # Where a trace was asked for: tokens before the first step and after every step, traces[step][sentence].
    traces: list[list[list[int]]] | None = None
    # Searches that rank candidates: how many distinct ones a sentence had.
    candidates: list[int] | None = None
    # CTranslate2 only: whether the length limit cut a hypothesis, which our own search ends otherwise.
    cut: list[bool] | None = None
    # Searches with several hypotheses a sentence: all of them, best first, `tokens` among them. Computed when called;
    # scores are comparable only where the search was `scored`.
    ranked: Callable[[], list[Ranked]] | None = dataclasses.field(default=None, repr=False, compare=False)


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


# The networks that a search works with, by role: models of `nn/models.py`, whose class is known only when a bundle is
# opened.
Networks = Mapping[str, Any]


class IncrementalDecoder(Protocol):
    """An autoregressive decoder that reads one position at a time and keeps its states.

    Rows are hypotheses: equally many for each sentence, next to each other; one at the start.
    """

    def step(self, tokens: Tensor) -> Tensor:
        """Read one token a row, (N,) int64. Logits (N, V) for the next one, which callers may overwrite."""

    def steps(self, tokens: Tensor) -> Tensor:
        """Read a block of tokens (N, m) int64 in one pass. Logits (N, m, V), those of m single steps.

        Shorter rows may end with any tokens, also behind the model's last position; `rewind` takes them back.
        """

    def rewind(self, positions: Tensor) -> None:
        """Make each row forget all but the first `positions` (N,) int64 of the tokens that it has read.

        At most the tokens of the last `steps` can be forgotten. `positions` are best on the CPU, which needs to know
        them; decoders of fixed shapes want them on their device.
        """

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


class LanguageModel(Hashable, Protocol):
    """Probabilities of words one after another. States are opaque."""

    @property
    def start(self) -> Any:
        """The state before the first word."""

    def step(self, state: Any, word: int) -> tuple[float, Any]:
        """log p(word | state) in nats, and the state after it; EOS ends a sentence."""
