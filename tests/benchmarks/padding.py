"""How much of a corpus's batches is padding, and the least that batches can have which say nothing of the label.

    python tests/benchmarks/padding.py --corpus results/tatoeba/encoded/distilled-by-teacher/train

A batch is padded to its longest source X and its longest target Y. Row i is padded by (X - x_i) + (Y - y_i), which is
at least |(Y - X) - (y_i - x_i)|. If a batch has the differences y - x of all rows with the same source length, or the
same longer side, padding is at least their mean absolute deviation from the median.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from workflow_src.data.batching import Pairs, epoch_batches
from workflow_src.data.encoded import EncodedCorpus


def least(positions: np.ndarray, difference: np.ndarray, features: np.ndarray) -> float:
    """The least share of padding, where batches say `features` (N,) of a row and nothing else of its difference (N,).

    `positions` (N,) are those of both sides.
    """
    padding = 0.0
    for value in np.unique(features):
        same = difference[features == value]
        padding += np.abs(same - np.median(same)).sum()
    return float(padding / (positions.sum() + padding))


def padding_waste(corpus: Pairs, batches: Sequence[np.ndarray]) -> float:
    """Share of PAD in the tensors that `collate` makes of these batches, over both sides."""
    sizes = np.array([len(batch) for batch in batches], dtype=np.int64)
    rows = np.concatenate(batches)
    starts = np.append(0, np.cumsum(sizes)[:-1])
    cells = real = 0
    for lengths, end_symbol in ((corpus.source_lengths, 1), (corpus.target_lengths, 0)):
        chosen = lengths[rows].astype(np.int64) + end_symbol
        cells += int((np.maximum(np.maximum.reduceat(chosen, starts), 1) * sizes).sum())
        real += int(chosen.sum())
    return 1 - real / cells


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
    features_by_name = {
        "nothing": np.zeros_like(source),
        "the source's length": source,
        "the longer side": np.maximum(source, target),
    }
    for name, values in features_by_name.items():
        print(f"at least, where a batch says {name}: {least(source + target, target - source, values):.1%}")


if __name__ == "__main__":
    main()
