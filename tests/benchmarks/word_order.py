"""BLEU by the length of the source, and by how far its translation changes the order of words. A benchmark.

    python tests/benchmarks/word_order.py --encoded results/tanaka/encoded/raw \
        --reference results/tanaka/corpus/test.reference.en \
        --translations beam=results/tanaka/translations/teacher-long/seed-1/beam-4/test.txt \
                       one-pass=results/tanaka/translations/ctc/seed-1/ctc-greedy/test.txt

Subwords are aligned by IBM model 1 (Brown et al. 1993), learned from the training pairs in both directions. A link is
that of a subword to the most probable one of the other side, where both directions have it. The order of a sentence is
the share of pairs of links that cross, 0 where it has no pair. Groups are thirds of the sentences.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import sacrebleu

from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.lines import read_lines

ROUNDS = 5
GROUPS = 3


class Links:
    """The K pairs of a source and a target subword of the sentences of `corpora`, one sentence after the other.

    places  (K,) number of the target subword among all
    words   (K,) number of the pair of subwords in `kinds`, the different ones
    shapes  target and source subwords (T, S) of each sentence
    """

    def __init__(self, corpora: list[EncodedCorpus]):
        sources, targets, places = [], [], []
        self.shapes = []
        place = 0
        for corpus in corpora:
            for row in range(len(corpus)):
                source, target = corpus.source(row), corpus.target(row)
                sources.append(np.tile(source, len(target)))
                targets.append(np.repeat(target, len(source)))
                places.append(np.repeat(np.arange(place, place + len(target)), len(source)))
                place += len(target)
                self.shapes.append((len(target), len(source)))
        self.places = np.concatenate(places)
        pairs = np.concatenate(sources).astype(np.int64) * 2**32 + np.concatenate(targets)
        self.kinds, self.words = np.unique(pairs, return_inverse=True)

    def probabilities(self) -> np.ndarray:
        """Of each pair, the probability that its source subword is the origin of its target subword, (K,)."""
        kind_sources = self.kinds // 2**32
        table = np.ones(len(self.kinds))
        for _ in range(ROUNDS):
            shares = table[self.words]
            shares = shares / np.bincount(self.places, shares)[self.places]
            counts = np.bincount(self.words, shares)
            table = counts / np.bincount(kind_sources, counts)[kind_sources]
        return shares

    def best(self) -> list[np.ndarray]:
        """Of each sentence, (T, S) bool: the most probable origin of every target subword."""
        shares = self.probabilities()
        result, start = [], 0
        for rows, columns in self.shapes:
            cells = shares[start : start + rows * columns].reshape(rows, columns)
            start += rows * columns
            best = np.zeros((rows, columns), dtype=bool)
            if cells.size:
                best[np.arange(rows), cells.argmax(1)] = True
            result.append(best)
        return result


def crossing(links: np.ndarray) -> float:
    """The share of pairs of links (T, S) that cross, of those that differ on both sides; 0 where there is none."""
    targets, sources = np.nonzero(links)
    order = np.sign(targets[:, None] - targets) * np.sign(sources[:, None] - sources)
    different = (order != 0).sum()
    return float((order < 0).sum() / different) if different else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoded", required=True, type=Path, help="folder of the encoded texts")
    parser.add_argument("--split", default="test")
    parser.add_argument("--reference", required=True)
    parser.add_argument("--translations", nargs="+", required=True, help="NAME=FILE")
    arguments = parser.parse_args()
    corpora = [EncodedCorpus.open(arguments.encoded / split) for split in ("train", arguments.split)]
    forward = Links(corpora).best()
    backward = Links([corpus.reversed() for corpus in corpora]).best()
    count = len(corpora[1])
    both = [there & back.T for there, back in zip(forward[-count:], backward[-count:], strict=True)]
    references = list(read_lines(arguments.reference))
    texts = dict(item.split("=", 1) for item in arguments.translations)
    translations = {name: list(read_lines(path)) for name, path in texts.items()}
    lengths = np.array([len(corpora[1].source(row)) for row in range(count)])
    orders = np.array([crossing(links) for links in both])
    if not all(len(lines) == count for lines in (references, *translations.values())):
        raise SystemExit(f"the files have not {count} lines each")
    print("| thirds by | mean | " + " | ".join(texts) + " |\n| -- | -: |" + " -: |" * len(texts))
    for name, values in (("length", lengths), ("crossing links", orders)):
        for group in np.array_split(np.argsort(values, kind="stable"), GROUPS):
            scores = [
                sacrebleu.corpus_bleu([lines[i] for i in group], [[references[i] for i in group]]).score
                for lines in translations.values()
            ]
            print(f"| {name} | {values[group].mean():.2f} | " + " | ".join(f"{score:.1f}" for score in scores) + " |")


if __name__ == "__main__":
    main()
