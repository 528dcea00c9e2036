"""What searches, losses and analyses call of models: the bases of all networks that translate or move latents.

A family's model inherits what it can do: `EncoderDecoder` the embeddings, encoder and output projection of a
Transformer; the other bases say which methods a kind of model adds. Shapes: the legend in `types.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workflow_src.data.batching import pad
from workflow_src.nn.layers import Embedding, Memory, Stack, attention_bias, check_length, marked
from workflow_src.nn.length import MOST_PROBABLE, LengthChoice, LengthHead
from workflow_src.nn.recurrent import WordEmbedding
from workflow_src.runtime.device import on_device
from workflow_src.types import PAD, Batch, FixedDecoder, IncrementalDecoder, Symbols, wide, with_end


def mean_gains(logits: Tensor, mask: Tensor) -> Tensor:
    """Mean log-probability (B,) of the best symbols of logits (B, N, V) over the positions of mask (B, N)."""
    logits = wide(logits)
    return ((logits.amax(-1) - logits.logsumexp(-1)) * mask).sum(1) / mask.sum(1)


class Model(nn.Module):
    """A network that reads a source and puts out symbols of the target's vocabulary."""

    config: Any
    # Symbols of the family, set where the model is built (`families/build.py`).
    symbols: Symbols
    output_bias: nn.Parameter

    def encode(self, source: Tensor) -> Any:
        """Source (B, S) -> states for the other methods; their `select(rows)` gives those of some sentences."""
        raise NotImplementedError

    def encode_batch(self, batch: Batch) -> Any:
        """`encode` of a batch's sources, where a network may use their lengths, which are on the CPU."""
        return self.encode(batch.source)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, (..., D) -> (..., V), -inf for symbols that may not be put out."""
        raise NotImplementedError

    def output(self, symbols: Tensor, mask: Tensor) -> Tensor:
        """The outputs (B, N), padded, of symbols (B, N) at the positions of mask (B, N)."""
        return torch.where(mask, symbols, PAD)

    def read_symbols(self, logits: Tensor, mask: Tensor, scored: bool) -> tuple[Tensor, Tensor]:
        """Outputs (B, N), padded, of the best symbols of logits (B, N, V), and, if `scored`, their mean log-probability
        (B,), else 0. Both kinds of scores are NaN where logits are."""
        outputs = self.output(logits.argmax(-1), mask)
        if scored:
            return outputs, mean_gains(logits, mask)
        # Latents that left the range of numbers must be noticed. Attention spreads them to all positions.
        return outputs, 0 * wide(logits[:, 0].amax(-1))


class EncoderDecoder(Model):
    """The part that Transformers share: one embedding for source, target and output where the vocabulary is joint.

    Symbols that are `barred` may not be put out. A subclass adds its decoders, and calls `initialise` at the end.
    """

    source_embedding: Embedding
    target_embedding: Embedding
    barred: Tensor | None

    def __init__(self, config: Any, source_size: int, target_size: int, joint: bool, barred: Iterable[int] = ()):
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(source_size, config)
        self.target_embedding = self.source_embedding if joint else Embedding(target_size, config)
        self.encoder = Stack(config, config.encoder_layers, cross=False)
        self.output_bias = nn.Parameter(torch.zeros(target_size))
        ids = list(barred)
        self.register_buffer("barred", marked(target_size, ids) if ids else None, persistent=False)

    def encode(self, source: Tensor) -> Memory:
        """Source (B, S) -> states (B, S, D) for the decoders."""
        mask = source != PAD
        bias = attention_bias(mask)
        embedded = self.source_embedding(source)
        return Memory(self.encoder(embedded, bias), mask, bias, source, embedded)

    def symbol_bias(self) -> Tensor:
        """The output bias (V,), -inf for symbols that may not be put out.

        Changing the bias, which is small, costs less than changing logits (…, V).
        """
        return self.output_bias if self.barred is None else self.output_bias.masked_fill(self.barred, float("-inf"))

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.target_embedding.weight, self.symbol_bias())


class Scorer(nn.Module):
    """A model with the trait `scorer`: p(y|x) of any output, as ranking calls it."""

    config: Any
    # Whether the states of one sentence broadcast over several outputs.
    shares_source = False

    def scoring_states(self, source: Tensor) -> Any:
        """States that depend on source (B, S) alone; `select(rows)` gives those of some sentences."""
        raise NotImplementedError

    def log_probability(self, states: Any, target: Tensor) -> Tensor:
        """log p(y|x) of target (B, T), an end symbol counted where there is one, (B,); -inf for impossible targets."""
        raise NotImplementedError


class AutoregressiveModel(Model, Scorer):
    """p(y|x) = product over t of p(y_t | y_<t, x). A subclass's embedding of targets is its output projection."""

    target_embedding: Embedding | WordEmbedding
    # Whether it has `start_fixed`, by which engines capture steps and blocks.
    can_start_fixed = False

    def hidden(self, memory: Any, target: Tensor) -> Tensor:
        """Last decoder states (B, T+1, D) when the decoder reads BOS and then target.

        Target: ids (B, T) int64, or distributions over the vocabulary (B, T, V), each of which is read as the mean of
        the embeddings under it. Tokens at padding change no position before them.
        """
        raise NotImplementedError

    def start(self, memory: Any) -> IncrementalDecoder:
        """The decoder one position or block at a time, as searches use it; here one that keeps no states."""
        return RereadingDecoder(self, memory)

    def start_fixed(self, memory: Any, width: int, length: int, cache: Tensor | None = None) -> FixedDecoder:
        """The decoder with shapes that depend on no value: `width` rows a sentence, room for `length` positions.

        `cache` is that of an earlier one with the same shapes, which is used again.
        """
        raise NotImplementedError

    def log_probabilities(self, source: Tensor, target: Tensor) -> Tensor:
        """log p(y_t | y_<t, x) of target (B, T) and of its end symbol, (B, T+1); 0 at padding."""
        return self._log_probabilities(self.encode(source), target)

    def _log_probabilities(self, memory: Any, target: Tensor) -> Tensor:
        labels = with_end(target)
        scores = wide(self.logits(self.hidden(memory, target))).log_softmax(-1)
        return scores.gather(-1, labels[..., None])[..., 0] * (labels != PAD)

    def scoring_states(self, source: Tensor) -> Any:
        return self.encode(source)

    def log_probability(self, states: Any, target: Tensor) -> Tensor:
        return self._log_probabilities(states, target).sum(1)

    def relaxed_logits(self, states: Any, target: Tensor) -> Tensor:
        """Logits of p(. | y_<t, x), (B, T+1, V), where y are distributions over words, target (B, T, V).

        `states` are those of `scoring_states`. Position t comes from the first t distributions; the last position comes
        after all of them, where a full row ends. One-hot distributions give the same as their words (Tu et al. 2020,
        section 3.1). The result has gradients with respect to `target`, also where all parameters are frozen.
        """
        return self.logits(self.hidden(states, target))


class BlockModel(AutoregressiveModel):
    """An autoregressive model that reads a block of tokens as one function of tensors, which engines can compile.

    Callers keep what it has read: keys and values of the source and of tokens, in tensors of the same form
    (layers, 2, B or rows, H, positions, D/H). Rows are those of an `IncrementalDecoder`.
    """

    def read_source(self, source: Tensor) -> Tensor:
        """Keys and values (layers, 2, B, H, S, D/H) of source (B, S)."""
        raise NotImplementedError

    def read_block(
        self, source: Tensor, source_keys_values: Tensor, past: Tensor, begins: Tensor, tokens: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits (N, m, V) after tokens (N, m), and their keys and values (layers, 2, N, H, m, D/H).

        Rows have read the first `begins` (N,) positions of `past` (layers, 2, N, H, P, D/H); tokens may stand behind
        the model's last position. `source` (B, S) is that of `source_keys_values`.
        """
        raise NotImplementedError


class RereadingDecoder:
    """An `IncrementalDecoder` of any autoregressive model: every call reads all tokens again."""

    def __init__(self, model: AutoregressiveModel, memory: Any):
        self.model = model
        self.memory = memory
        self.sentences = 0
        # Tokens that each row has read.
        self.read: list[list[int]] = []

    def step(self, tokens: Tensor) -> Tensor:
        check_length(1 + max(map(len, self.read), default=0), self.model.config.max_positions)
        return self.steps(tokens[:, None])[:, 0]

    def steps(self, tokens: Tensor) -> Tensor:
        count = tokens.size(0)
        self.sentences = self.sentences or count
        self.read = self.read or [[] for _ in range(count)]
        begins = on_device([len(row) for row in self.read], tokens.device)
        self.read = [row + block for row, block in zip(self.read, tokens.tolist(), strict=True)]
        limit = self.model.config.max_positions
        # The model reads the start symbol by itself.
        target = pad([row[1:limit] for row in self.read], eos=False).to(tokens.device)
        sentences = torch.arange(self.sentences, device=tokens.device)
        memory = self.memory.select(sentences.repeat_interleave(count // self.sentences))
        logits = self.model.logits(self.model.hidden(memory, target))
        places = begins[:, None] + torch.arange(tokens.size(1), device=tokens.device)
        places = places.clamp(max=logits.size(1) - 1)
        return logits.gather(1, places[..., None].expand(-1, -1, logits.size(2)))

    def rewind(self, positions: Tensor) -> None:
        self.read = [row[:length] for row, length in zip(self.read, positions.tolist(), strict=True)]

    def reorder(self, rows: Tensor) -> None:
        numbers = rows.tolist()
        if not self.read:
            # Before the first token, one row a sentence.
            self.sentences = 1 + max(numbers)
            self.read = [[] for _ in range(self.sentences)]
        self.read = [list(self.read[row]) for row in numbers]

    def keep(self, sentences: Tensor) -> None:
        self.reorder(rows_of(sentences, len(self.read) // self.sentences))
        self.memory, self.sentences = self.memory.select(sentences), sentences.numel()


def rows_of(sentences: Tensor, width: int) -> Tensor:
    """Rows (R * width,) of sentences (R,), each of which has `width` rows side by side."""
    return (sentences[:, None] * width + torch.arange(width, device=sentences.device)).view(-1)


class OnePassModel(Model):
    """A model that puts out all words at once, at a given length."""

    length: LengthHead

    def hidden(self, memory: Any, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """States (B, N, D) of outputs of these lengths (B,), and the mask (B, N)."""
        raise NotImplementedError


class MaskedModel(OnePassModel):
    """A model that predicts masked subwords; the states of `hidden` are those with all positions masked."""

    # The id that stands at masked positions of a target.
    mask_symbol: int

    def states(self, memory: Memory, target: Tensor, mask: Tensor) -> Tensor:
        """Last decoder states (C, N, D) of target (C, N), some of it the mask symbol, at the positions of mask (C, N).

        C is the B of the memory, or a multiple: the rows of a sentence then stand side by side, as many for each.
        """
        raise NotImplementedError


class IterativeModel(OnePassModel):
    """A model that refines its output pass by pass: `hidden` is the first pass, `refine` each later one."""

    def refine(self, memory: Memory, guess: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        """States (B, N, D) of a later pass, from a guess (B, N) at the positions of mask (B, N), and the states
        (B, N, D) of the pass that made it."""
        raise NotImplementedError


class LatentModel(Model):
    """A model with one Gaussian latent at every position of the target, or of the source.

    p(y|x) is the integral of p(y|z,x) p(z|x) dz; latents are (B, P, Z), and masks (B, P) are True at real ones.
    """

    # Positions of an output beside those of its words: 1 where targets have an end symbol.
    extra_positions: int = 0

    def whole_target(self, target: Tensor) -> Tensor:
        """Target (B, T), padded, as the posterior reads it."""
        return target

    def batch_mask(self, batch: Batch) -> Tensor:
        """Mask (B, P) of the latents of pairs."""
        raise NotImplementedError

    def latent_mask(self, memory: Memory, choice: LengthChoice = MOST_PROBABLE) -> Tensor:
        """Mask (B, P) of the latents that a translation begins with; where they are the target's, at lengths by
        `choice`."""
        raise NotImplementedError

    def prior(self, memory: Memory, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of p(z|x), each (B, P, Z)."""
        raise NotImplementedError

    def posterior(self, memory: Memory, target: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q(z|x,y), each (B, P, Z), of y as `whole_target` or `read` return it."""
        raise NotImplementedError

    def read(
        self, memory: Memory, z: Tensor, mask: Tensor, choice: LengthChoice = MOST_PROBABLE, scored: bool = False
    ) -> tuple[Tensor, Tensor]:
        """argmax p(y|z,x), (B, N), padded, and, if `scored`, the mean log-probability of its symbols (B,), else 0.

        Where latents say the length, it is that of `choice`.
        """
        raise NotImplementedError

    def log_likelihood(self, memory: Memory, z: Tensor, target: Tensor) -> Tensor:
        """log p(y|x,z), (B,) nats, of targets (B, T), padded; that of the length is part of it where z says it."""
        raise NotImplementedError


class AlignedModel(Model):
    """A model whose outputs are read off slots, as with CTC; it may have latents of source positions."""

    # The id that a slot without a subword puts out.
    blank: int
    target_embedding: Embedding

    def hidden(self, memory: Memory, slots: Tensor | None = None, z: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """States (B, N, D) at the slots, and the mask (B, N).

        `slots` (B,) replace those that the model counts or predicts, latents z (B, S, Z) the prior's mean.
        """
        raise NotImplementedError

    def logits(self, hidden: Tensor, blank_penalty: float = 0.0) -> Tensor:
        """Scores over the vocabulary, (..., V); `blank_penalty` is taken off the blank's."""
        raise NotImplementedError

    def slot_origins(self, lengths: Tensor, slots: Tensor, indices: Tensor) -> Tensor:
        """The source position (B, N) that each slot begins with: slots with indices (N,), sources of lengths (B,)."""
        raise NotImplementedError


class GraphModel(Model):
    """A model whose outputs are paths through a directed acyclic graph.

    A path begins at the first vertex of a sentence and ends at its last one. These two put out no word, every other
    vertex on the path puts out one.
    """

    target_embedding: Embedding

    def hidden(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """States (B, L, D) at the vertices, and the mask (B, L)."""
        raise NotImplementedError

    def transitions(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """log p(next vertex | vertex), (B, L, L), at least float32, of states (B, L, D) at the vertices of mask (B, L);
        `NEVER` of `nn/logarithms.py` where there is no transition."""
        raise NotImplementedError

    def vertex_origins(self, lengths: Tensor, vertices: Tensor, indices: Tensor) -> Tensor:
        """The source position (B, L) of each vertex: numbers of vertices (B,) with indices (L,), sources of lengths
        (B,)."""
        raise NotImplementedError


class Refiner(nn.Module):
    """A network that moves latents."""

    def direction(self, memory: Memory, z: Tensor, mask: Tensor, differentiable: bool = False) -> Tensor:
        """The direction (B, P, Z) to be added to latents z (B, P, Z).

        `differentiable`: a loss of the direction trains the network.
        """
        raise NotImplementedError
