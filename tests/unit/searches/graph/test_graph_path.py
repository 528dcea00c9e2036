"""Greedy and lookahead paths against walking the graph vertex by vertex."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from miniatures import dat, one, pairs
from miniatures import searched as searched_by

from workflow_src.decoding.search import open_search
from workflow_src.errors import InputError
from workflow_src.searches.graph_path import GraphPathSettings
from workflow_src.spec import MODEL
from workflow_src.types import EOS

PAIRS = pairs([4, 1, 6, 3], [1, 1, 1, 1])


def searched(model, source: torch.Tensor, settings, scored: bool = True):
    return searched_by({"model": model}, source, settings, scored)


def sure(seed: int = 0):
    """A model whose vertices prefer some words and some vertices much."""
    model = dat(seed=seed, vertices=3.0)
    with torch.no_grad():
        model.target_embedding.weight.mul_(4)
        model.transition.query.weight.mul_(4)
    return model


def walked(model, source: torch.Tensor, lookahead: float) -> tuple[list[int], float]:
    """The output of one source (1, S) and the mean log-probability of its words and moves."""
    hidden, mask = model.hidden(model.encode(source))
    words = model.logits(hidden)[0].log_softmax(-1)
    transitions, last = model.transitions(hidden, mask)[0], mask.size(1) - 1
    vertex, output, total, count = 0, [], 0.0, 0
    while vertex != last:
        choices = range(vertex + 1, last + 1)
        gains = {j: 0.0 if j == last else words[j].max().item() for j in choices}
        chosen = max(choices, key=lambda j: transitions[vertex, j].item() + lookahead * gains[j])
        total += transitions[vertex, chosen].item() + gains[chosen]
        count += 1
        if chosen != last:
            output.append(words[chosen].argmax().item())
        vertex = chosen
    return output, total / count


@pytest.mark.parametrize("lookahead", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_every_vertex_is_the_best_next_one(lookahead, seed):
    model = sure(seed)
    hypotheses = searched(model, PAIRS.source, GraphPathSettings(lookahead=lookahead))
    for row in range(4):
        output, score = walked(model, one(PAIRS, row).source, lookahead)
        assert hypotheses.tokens[row] == output and all(word > EOS for word in output)
        assert hypotheses.scores[row] == pytest.approx(score, abs=1e-9)
    assert sum(map(len, hypotheses.tokens)) >= 4


def test_equal_neighbours_are_merged_where_the_setting_says_so_alone():
    # All vertices put out the same word.
    model = dat(vertices=3.0)
    torch.nn.init.zeros_(model.target_embedding.weight)
    with torch.no_grad():
        model.output_bias[7] = 50.0
    kept = searched(model, PAIRS.source, GraphPathSettings()).tokens
    merged = searched(model, PAIRS.source, GraphPathSettings(merge_equal=True)).tokens
    assert max(map(len, kept)) > 2 and all(set(row) <= {7} for row in kept)
    assert merged == [[word for word, _ in itertools.groupby(row)] for row in kept]


def test_without_scores_they_are_0():
    model = dat()
    assert searched(model, PAIRS.source, GraphPathSettings(), scored=False).scores == [0.0] * 4
    assert all(math.isfinite(score) for score in searched(model, PAIRS.source, GraphPathSettings()).scores)


@pytest.mark.parametrize("following", [[0, 1, 2], [1, 0, 2], [2, 2, 1]])
def test_a_graph_whose_transitions_are_no_numbers_has_no_path(following):
    """Engines differ in the largest of values that are no numbers: it may be the first of all."""
    search = open_search({MODEL: sure()}, GraphPathSettings())
    outputs = torch.full((1, 3), 5), torch.tensor([following]), torch.full((1, 3), math.nan)
    with pytest.raises(InputError, match="no numbers"):
        search.hypotheses(PAIRS.source[:1], outputs)
