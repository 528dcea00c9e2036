"""Do latents follow the word order of a translation? (Gu & Kong 2021, Figure 6)

Two translations of one sentence give two posteriors at the same source positions. Where the second translation puts
words in another order, its means may be those of the first at other positions: an assignment of the least total
distance finds them. Where outputs are read off slots, the most probable alignment says where each translation has
its subwords.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch

from workflow_src.evaluation.analyses.inputs import BATCH, Inputs, read_outputs, target_ids
from workflow_src.evaluation.analyses.networks import posterior_latents
from workflow_src.evaluation.analyses.reordering import ReorderingSettings
from workflow_src.jobs import log
from workflow_src.losses.aligned import own_symbols
from workflow_src.losses.ctc import Lattice, viterbi
from workflow_src.serving.translator import Translator
from workflow_src.types import EOS, wide


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Sentences with two translations, as subword ids and as texts: the references and those that are compared.

    `orders` are the disagreements of the sentences that are compared, by their places. `numbers` are lines.
    """

    numbers: list[int]
    sources: list[list[int]]
    sides: tuple[list[list[int]], list[list[int]]]
    texts: tuple[list[str], list[str]]
    orders: dict[int, float]


def measure(inputs: Inputs, settings: ReorderingSettings) -> dict[str, Any]:
    subwords = inputs.translator(inputs.searches[0]["system"]).subwords
    pairs = _pairs(inputs, settings)
    example = _example(pairs, settings.positions)
    rows, panels = [], []
    for entry in inputs.searches:
        figures, panel = _compared(inputs.translator(entry["system"]), entry, pairs, example)
        rows += [{"system": entry["system"]} | group for group in summary(figures, list(pairs.orders.values()))]
        panels += [panel] if panel else []
    example_content = None
    if example is not None:
        names = subwords.names()["source"]
        example_content = {
            "sentence": pairs.numbers[example],
            "order": pairs.orders[example],
            "pieces": [names[i] for i in [*pairs.sources[example], EOS]],
            "texts": [side[example] for side in pairs.texts],
            "target_pieces": [subwords.pieces_target(side[example]) for side in pairs.sides],
            "panels": panels,
        }
    return {
        "sentences": len(pairs.sources),
        "compared": len(pairs.orders),
        "translations": {key: inputs.rows[0][key] for key in ("system", "name")},
        "rows": rows,
        "example": example_content,
    }


def _pairs(inputs: Inputs, settings: ReorderingSettings) -> Pairs:
    (row,) = inputs.rows
    path, subwords = Path(row["details"]), inputs.translator(inputs.searches[0]["system"]).subwords
    sentences = inputs.sentences(settings.sentences)
    translations = read_outputs(path, target_ids(subwords), sentences.lines)
    targets = subwords.encode_target(sentences.targets, sentences.sources)
    sides = targets, [translations[number] for number in sentences.numbers]
    texts = subwords.decode_target(sides[0], sentences.sources), subwords.decode_target(sides[1], sentences.sources)
    disagreements = (disagreement(a.split(), b.split()) for a, b in zip(*texts, strict=True))
    # Equal translations have equal latents, and an order needs two words.
    orders = {i: order for i, order in enumerate(disagreements) if order is not None and texts[0][i] != texts[1][i]}
    if not orders:
        # As of systems that are hardly trained: the run goes on.
        log.warning(
            "warning: no translation of %s differs from its reference and shares two words with it: nothing is "
            "compared. Raise analyses.reordering.sentences, or name another system in analyses.reordering.system.",
            path,
        )
    return Pairs(sentences.numbers, subwords.encode_source(sentences.sources), sides, texts, orders)


def _example(pairs: Pairs, positions: int) -> int | None:
    """The place of the sentence that is drawn: of short sources the most reordered one, else the shortest source."""
    short = [i for i in pairs.orders if len(pairs.sources[i]) < positions]
    if short:
        return max(short, key=lambda i: pairs.orders[i])
    return min(pairs.orders, key=lambda i: len(pairs.sources[i]), default=None)


def _compared(
    translator: Translator, entry: dict[str, Any], pairs: Pairs, example: int | None
) -> tuple[list[dict[str, float]], dict[str, Any] | None]:
    """Figures of every compared sentence under a system, and the panel of the example."""
    network: Any = translator.network
    device, panel = translator.runtime.device, None
    sources = [pairs.sources[i] for i in pairs.orders]
    means = [
        [mean for mean, _ in posterior_latents(network, sources, [side[i] for i in pairs.orders], BATCH, device)]
        for side in pairs.sides
    ]
    figures = []
    for i, first, second in zip(pairs.orders, *means, strict=True):
        distances = distances_between(first, second)
        assigned = assignment(distances)
        figures.append(moves(distances, assigned))
        if i == example:
            panel = entry | {"distances": distances.tolist(), "assigned": assigned}
            if entry.get("aligned"):
                ids = [*pairs.sources[i], EOS]
                panel["alignments"] = [alignment(network, ids, side[i], device) for side in pairs.sides]
    return figures, panel


def disagreement(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Share of the pairs of words that two texts have in opposite orders, in [0, 1].

    This is Kendall's distance over words that both translations have exactly once; None for fewer than two of them.
    """
    places = {word: place for place, word in enumerate(second) if second.count(word) == 1}
    order = [places[word] for word in first if word in places and first.count(word) == 1]
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
    columns = [matched[row] - size for row in range(size)]
    total = distances[np.arange(size), columns].sum()
    return list(range(size)) if np.trace(distances) <= total * (1 + 1e-9) else columns


def distances_between(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Euclidean distances (S, S) between the rows of two sets of means (S, Z)."""
    return np.linalg.norm(first[:, None] - second[None], axis=-1)


@torch.no_grad()
def alignment(model: Any, source: Sequence[int], target: Sequence[int], device: torch.device) -> dict[str, Any]:
    """The most probable alignment of target (subword ids) with the slots of source (with its end symbol).

    Latents are the mean of q(z|x,y) with the target as y. `slots` is the number N of slots, and `places` has for each
    subword the slots that hold it, from 0, one after the other; None where the slots do not suffice. Slot n lies at
    (n + 1/2) S / N of the S source subwords, as slots are upsampled.
    """
    memory = model.encode(torch.tensor([list(source)], device=device))
    words = torch.tensor([list(target)], dtype=torch.int64, device=device)
    z, _ = model.posterior(memory, words, memory.mask)
    hidden, mask = model.hidden(memory, z=z)
    logits = model.logits(hidden)
    lattice, symbols = Lattice(words, mask.sum(1)), own_symbols(words, model.blank)
    if not bool(lattice.reachable):
        return {"slots": int(lattice.slots), "places": None}
    scores = wide(logits).log_softmax(-1).gather(2, symbols[:, None].expand(-1, logits.size(1), -1))
    path = viterbi(scores, lattice)[0].tolist()
    places = [[slot for slot, symbol in enumerate(path) if symbol == number] for number in range(1, len(target) + 1)]
    return {"slots": int(lattice.slots), "places": places}


def moves(distances: np.ndarray, assigned: Sequence[int]) -> dict[str, float]:
    """Of one sentence, the share of latents that move, by how many positions, and the mean distance at the same
    position (`change`) and at others (`spread`)."""
    shifts = np.abs(np.asarray(assigned) - np.arange(len(assigned)))
    elsewhere = distances[~np.eye(len(distances), dtype=bool)]
    return {
        "moved": float((shifts > 0).mean()),
        "displacement": float(shifts.mean()),
        "change": float(np.diag(distances).mean()),
        "spread": float(elsewhere.mean()) if elsewhere.size else 0.0,
    }


def summary(sentences: Sequence[dict[str, float]], orders: Sequence[float]) -> list[dict[str, Any]]:
    """Means over the sentences whose translations have the same order, and over others, from the figures of each
    sentence and its disagreement in order. `correlation` is Pearson's of displacement and disagreement over all."""
    shifts, differences = np.array([row["displacement"] for row in sentences]), np.array(orders)
    varies = len(sentences) > 1 and shifts.std() > 0 and differences.std() > 0
    correlation = float(np.corrcoef(shifts, differences)[0, 1]) if varies else None
    groups = []
    for words, same in (("the same", True), ("another", False)):
        group = [row for row, order in zip(sentences, orders, strict=True) if (order == 0) == same]
        if group:
            means: dict[str, Any] = {key: float(np.mean([row[key] for row in group])) for key in group[0]}
            change, spread = means.pop("change"), means.pop("spread")
            means["relative_change"] = change / spread if spread else None
            groups.append({"order": words, "sentences": len(group), **means, "correlation": correlation})
    return groups
