"""Do latents follow the word order of a translation? (Gu & Kong 2021, Figure 6)

Two translations of one sentence give two posteriors at the same source positions. Where the second translation puts
words in another order, its means may be those of the first at other positions: an assignment of the least total
distance tells which. Where outputs are read off slots, the most probable alignment tells where each translation has
its subwords.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import networkx
import numpy as np
import torch

from workflow_src.losses.ctc import Lattice, viterbi
from workflow_src.losses.own_symbols import own_symbols
from workflow_src.types import AlignedLatentModel, wide


def disagreement(one: Sequence[str], other: Sequence[str]) -> float | None:
    """Share of the pairs of words that stand in one order here and in the opposite order there, in [0, 1].

    This is Kendall's distance over words that both translations have exactly once; None for fewer than two of them.
    """
    places = {word: place for place, word in enumerate(other) if other.count(word) == 1}
    order = [places[word] for word in one if word in places and one.count(word) == 1]
    pairs = list(itertools.combinations(order, 2))
    return sum(a > b for a, b in pairs) / len(pairs) if pairs else None


def assignment(distances: np.ndarray) -> list[int]:
    """For each row of distances (S, S) a column of its own, so that their sum is the least there is.

    Where leaving every row at its own column is as good, none moves.
    """
    size = len(distances)
    graph = networkx.Graph()
    graph.add_weighted_edges_from(
        # A matching of all rows has the greatest weight where its distances are least.
        (row, size + column, -float(distances[row, column]))
        for row, column in itertools.product(range(size), repeat=2)
    )
    matched = dict(map(sorted, networkx.max_weight_matching(graph, maxcardinality=True)))
    found = [matched[row] - size for row in range(size)]
    least = distances[np.arange(size), found].sum()
    return list(range(size)) if np.trace(distances) <= least * (1 + 1e-9) else found


def distances_between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Euclidean distances (S, S) between the rows of two sets of means (S, Z)."""
    return np.linalg.norm(one[:, None] - other[None], axis=-1)


@torch.no_grad()
def alignment(
    model: AlignedLatentModel, source: Sequence[int], target: Sequence[int], device: torch.device
) -> dict[str, Any]:
    """The most probable alignment of target (subword ids) with the slots of source (with its end symbol).

    Latents are the mean of q(z|x,y), y being that target, so that the decoder is told what it says. `slots` is the
    number N of slots, and `places` has for each subword the slots that hold it, from 0, one after the other; None where
    the slots do not suffice. Slot n lies at (n + 1/2) S / N of the S source subwords, as slots are upsampled.
    """
    memory = model.encode(torch.tensor([list(source)], device=device))
    words = torch.tensor([list(target)], dtype=torch.int64, device=device)
    logits, mask = model.decode(memory, model.posterior(memory, words)[0])
    lattice, symbols = Lattice(words, mask.sum(1)), own_symbols(words, model.blank)
    if not bool(lattice.reachable):
        return {"slots": int(lattice.slots), "places": None}
    scores = wide(logits).log_softmax(-1).gather(2, symbols[:, None].expand(-1, logits.size(1), -1))
    path = viterbi(scores, lattice)[0].tolist()
    places = [[slot for slot, own in enumerate(path) if own == number] for number in range(1, len(target) + 1)]
    return {"slots": int(lattice.slots), "places": places}


def told(distances: np.ndarray, assigned: Sequence[int]) -> dict[str, float]:
    """One sentence: the share of latents that move, how far in positions, and distances in and between positions."""
    moves = np.abs(np.asarray(assigned) - np.arange(len(assigned)))
    elsewhere = distances[~np.eye(len(distances), dtype=bool)]
    return {
        "moved": float((moves > 0).mean()),
        "displacement": float(moves.mean()),
        "change": float(np.diag(distances).mean()),
        "spread": float(elsewhere.mean()) if elsewhere.size else 0.0,
    }


def summary(sentences: Sequence[dict[str, float]], orders: Sequence[float]) -> dict[str, Any]:
    """Means over sentences in the `same` order and in `other` orders, and over all the correlation with the order.

    `orders` are the sentences' disagreements. A group without sentences is None, as is a correlation (Pearson's, of
    displacement and disagreement) where either does not vary.
    """

    def means(rows: list[dict[str, float]]) -> dict[str, Any] | None:
        if not rows:
            return None
        return {"sentences": len(rows)} | {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}

    pairs = list(zip(sentences, orders, strict=True))
    moves, differences = np.array([row["displacement"] for row in sentences]), np.array(orders)
    varies = len(pairs) > 1 and moves.std() > 0 and differences.std() > 0
    return {
        "same": means([row for row, order in pairs if order == 0]),
        "other": means([row for row, order in pairs if order > 0]),
        "correlation": float(np.corrcoef(moves, differences)[0, 1]) if varies else None,
    }
