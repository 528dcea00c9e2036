"""How much of a corpus's batches is padding, and the least that batches can have which tell nothing of the label.

    python tests/benchmarks/padding.py --corpus results/tatoeba/encoded/distilled-by-teacher/train

A batch is padded to its longest source X and its longest target Y. Row i is padded by (X - x_i) + (Y - y_i), which is
at least |(Y - X) - (y_i - x_i)|. If a batch has the differences y - x of all rows with the same source length, or the
same longer side, padding is at least their mean absolute deviation from the median.
"""

from __future__ import annotations

import argparse

import numpy as np

from workflow_src.data.batching import epoch_batches, padding_waste
from workflow_src.data.encoded import EncodedCorpus


def least(positions: np.ndarray, difference: np.ndarray, known: np.ndarray) -> float:
    """The least share of padding, where batches tell `known` (N,) of a row and nothing else of its difference (N,).

    `positions` (N,) are those of both sides.
    """
    padding = 0.0
    for value in np.unique(known):
        same = difference[known == value]
        padding += np.abs(same - np.median(same)).sum()
    return float(padding / (positions.sum() + padding))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="prefix of an encoded corpus")
    parser.add_argument("--batch-tokens", type=int, default=2000)
    arguments = parser.parse_args()
    corpus = EncodedCorpus.open(arguments.corpus)
    # Sources have an end symbol, as `collate` adds it.
    source, target = corpus.source_lengths.astype(np.int64) + 1, corpus.target_lengths.astype(np.int64)
    batches = epoch_batches(corpus, arguments.batch_tokens, 1, 0)
    print(f"padding {padding_waste(corpus, batches):.1%}")
    known = {
        "nothing": np.zeros_like(source),
        "the source's length": source,
        "the longer side": np.maximum(source, target),
    }
    for name, values in known.items():
        print(f"at least, where a batch tells {name}: {least(source + target, target - source, values):.1%}")


if __name__ == "__main__":
    main()
