"""Several encoded texts that a system learns from together, each with the share of its pairs that an epoch has."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from workflow_src.data.encoded import EncodedCorpus
from workflow_src.records.atomic import fingerprint


class Mixture:
    """Encoded texts as one: rows number the pairs of all texts, one text after the other in the order of their names.

    A text of weight w has w times its pairs in each epoch. Its pairs follow each other in passes, each pass over all of
    them in a random order, and epochs take their pairs from where the last one ended: with weight 0.5, two epochs have
    every pair once; with weight 2, each epoch has every pair twice.
    """

    def __init__(self, texts: Mapping[str, EncodedCorpus], weights: Mapping[str, float]):
        self.names = sorted(texts)
        self.texts = [texts[name] for name in self.names]
        # By their decimal digits, so that ten epochs of weight 0.1 are one pass exactly.
        self.weights = [Fraction(repr(weights[name])) for name in self.names]
        self.firsts = np.cumsum([0, *map(len, self.texts)]).tolist()

    def __len__(self) -> int:
        return self.firsts[-1]

    @property
    def prefix(self) -> str:
        """Prefixes of the texts in the order of rows, for messages."""
        return " and ".join(text.prefix for text in self.texts)

    @property
    def digest(self) -> str:
        return fingerprint([text.digest for text in self.texts])

    @functools.cached_property
    def source_lengths(self) -> np.ndarray:
        """Subwords of every source sentence, without EOS (int32)."""
        return np.concatenate([text.source_lengths for text in self.texts])

    @functools.cached_property
    def target_lengths(self) -> np.ndarray:
        """Subwords of every target sentence, without EOS (int32)."""
        return np.concatenate([text.target_lengths for text in self.texts])

    @property
    def epoch_tokens(self) -> int:
        """Target tokens of an epoch on average, end symbols counted."""
        return round(sum(weight * text.epoch_tokens for text, weight in zip(self.texts, self.weights, strict=True)))

    def counts(self) -> dict[str, dict[str, float]]:
        """Pairs, weight, and pairs in an epoch on average of each text by its name."""
        return {
            name: {"pairs": len(text), "weight": float(weight), "pairs_an_epoch": round(float(weight * len(text)), 2)}
            for name, text, weight in zip(self.names, self.texts, self.weights, strict=True)
        }

    def epoch_rows(self, seed: int, epoch: int) -> np.ndarray:
        """Rows of the pairs of an epoch, the same for the same (seed, epoch); those of weights above 1 come again."""
        return np.concatenate([self._drawn(number, seed, epoch) for number in range(len(self.texts))])

    def most_rows(self) -> np.ndarray:
        """Rows as often as an epoch may have them."""
        # An epoch begins anywhere in a pass, by multiples of the weight.
        times = [math.ceil(weight + 1 - Fraction(1, weight.denominator)) for weight in self.weights]
        rows = zip(self.firsts, self.texts, times, strict=False)
        return np.concatenate([np.repeat(first + np.arange(len(text)), count) for first, text, count in rows])

    def _drawn(self, number: int, seed: int, epoch: int) -> np.ndarray:
        """Rows of one text in an epoch."""
        pairs = len(self.texts[number])
        begin, end = (int(turn * self.weights[number] * pairs) for turn in (epoch, epoch + 1))
        chunks = [np.zeros(0, np.int64)]
        while begin < end:
            turn, place = divmod(begin, pairs)
            # The last number keeps this from being the generator of an epoch's batches.
            order = np.random.Generator(np.random.PCG64([seed, turn, number + 1])).permutation(pairs)
            chunks.append(order[place : place + end - begin])
            begin += len(chunks[-1])
        return np.concatenate(chunks) + self.firsts[number]

    def gather(self, side: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ids of the rows, one after another, and their lengths."""
        lengths = (self.source_lengths if side == "source" else self.target_lengths)[rows].astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        flat = np.zeros(int(lengths.sum()), np.int64)
        for number, text in enumerate(self.texts):
            first, last = self.firsts[number : number + 2]
            places = np.flatnonzero((rows >= first) & (rows < last))
            ids, id_lengths = text.gather(side, rows[places] - first)
            # Position in the result = position in this text's ids + (start in the result - start in these ids).
            shift = np.repeat(starts[places] - (np.cumsum(id_lengths) - id_lengths), id_lengths)
            flat[np.arange(len(ids)) + shift] = ids
        return flat, lengths

    def verify(self) -> None:
        """Compare all content with the digests of the texts. Raises ArtifactError where they differ."""
        for text in self.texts:
            text.verify()
