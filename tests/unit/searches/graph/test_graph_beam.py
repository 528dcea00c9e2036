"""Beam and Viterbi search of graphs against enumeration of all outputs and paths."""

from __future__ import annotations

import collections
import itertools
import math

import numpy as np
import pytest
import torch
from miniatures import dat, one, pairs, searched, transformer
from refusals import refuses

from workflow_src.data.batching import pad
from workflow_src.decoding.compiled import interpreted
from workflow_src.decoding.ngram import estimate
from workflow_src.decoding.ranking import rescored
from workflow_src.decoding.search import open_search
from workflow_src.decoding.slots import Row
from workflow_src.errors import InputError
from workflow_src.searches.graph_beam import GraphBeamSettings
from workflow_src.searches.graph_beam.search import PrefixBeam
from workflow_src.searches.graph_path import GraphPathSettings
from workflow_src.searches.graph_viterbi import GraphViterbiSettings, compiled
from workflow_src.types import EOS, PAD

# Words are 3 to 6.
SIZE = 7
PAIRS = pairs([1, 2, 1], [1, 1, 1], (SIZE, SIZE))
EVERYTHING = {"beam": 2000, "min_ratio": 0.0, "beam_threshold": None}


class Carried:
    """A system whose `scorer` is a language model."""

    def __init__(self, scorer):
        self.scorer = scorer


class Wrapped:
    """A language model that is no n-gram model, for which nothing is compiled."""

    def __init__(self, model):
        self.start, self.step = model.start, model.step


@pytest.fixture(scope="module")
def language_model():
    generator = np.random.default_rng(0)
    return estimate(generator.integers(3, SIZE, 60), np.arange(0, 61, 4), SIZE, 3)


def sharp(seed: int = 1, vertices: float = 2.0, **fields):
    network = dat(SIZE, SIZE, seed=seed, vertices=vertices, **fields)
    with torch.no_grad():
        network.target_embedding.weight.mul_(3)
        network.transition.query.weight.mul_(2)
    return network


@pytest.fixture(scope="module")
def model():
    return sharp()


def outputs_and_paths(model, source: torch.Tensor):
    """Every output of a source (1, S), log p of it together with a path that puts it out, and the vertices between."""
    hidden, mask = model.hidden(model.encode(source))
    words = model.logits(hidden)[0].log_softmax(-1).tolist()
    transitions, last = model.transitions(hidden, mask)[0].tolist(), mask.size(1) - 1
    for count in range(last):
        for middle in itertools.combinations(range(1, last), count):
            moves = sum(transitions[i][j] for i, j in itertools.pairwise((0, *middle, last)))
            for output in itertools.product(range(EOS + 1, SIZE), repeat=count):
                gains = sum(words[vertex][word] for vertex, word in zip(middle, output, strict=True))
                yield output, moves + gains, middle


def summed(model, source: torch.Tensor) -> dict[tuple[int, ...], float]:
    """log p(y|x) of every output, summed over its paths."""
    totals = collections.Counter()
    for output, score, _ in outputs_and_paths(model, source):
        totals[output] += math.exp(score)
    return {output: math.log(total) for output, total in totals.items()}


def with_words(scores, language_model, lm_weight: float, bonus: float, penalty: float):
    """The scores of outputs with those of a language model and of their lengths."""
    return {
        output: (
            score
            + bonus * len(output)
            + (lm_weight * language_model.log_probability(output) if language_model else 0.0)
        )
        / (len(output) + 1) ** penalty
        for output, score in scores.items()
    }


@pytest.mark.parametrize("kind", ["none", "n-gram", "other"])
@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_an_unlimited_beam_finds_every_output_with_its_sum_over_paths(model, language_model, kind, penalty):
    fields = {} if kind == "none" else {"language_model": "lm", "lm_weight": 0.4}
    settings = GraphBeamSettings(**EVERYTHING, word_bonus=0.3, length_penalty=penalty, **fields)
    networks = {"model": model}
    if kind != "none":
        networks["language_model"] = Carried(language_model if kind == "n-gram" else Wrapped(language_model))
    hypotheses = searched(networks, PAIRS.source, settings)
    for row, ranked in enumerate(hypotheses.ranked()):
        scores = summed(model, one(PAIRS, row).source)
        expected = with_words(scores, language_model if fields else None, 0.4, 0.3, penalty)
        actual = {tuple(output): score for score, output in ranked}
        assert actual.keys() == expected.keys() and len(actual) > 20
        for output, score in actual.items():
            assert score == pytest.approx(expected[output], abs=1e-9)
        assert tuple(hypotheses.tokens[row]) == max(expected, key=expected.__getitem__)
        assert hypotheses.candidates[row] == len(expected)


def test_probabilities_of_all_outputs_sum_to_1(model):
    (ranked, *_) = searched({"model": model}, PAIRS.source, GraphBeamSettings(**EVERYTHING)).ranked()
    assert sum(math.exp(score) for score, _ in ranked) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_narrow_beam_keeps_the_best_prefixes_of_each_length(beam, seed):
    """As a plain search over sums of outputs that begin with a prefix."""
    model = sharp(seed, 3.0)
    settings = GraphBeamSettings(beam=beam, min_ratio=0.0, beam_threshold=None)
    hypotheses = searched({"model": model}, PAIRS.source, settings)
    for row in range(3):
        scores = summed(model, one(PAIRS, row).source)
        begins = collections.Counter()
        for output, score in scores.items():
            for length in range(len(output) + 1):
                begins[output[:length]] += math.exp(score)
        live = [()]
        visited = {}
        while live:
            visited |= {prefix: scores[prefix] for prefix in live}
            longer = [(*prefix, word) for prefix in live for word in range(EOS + 1, SIZE)]
            live = sorted((prefix for prefix in longer if prefix in begins), key=begins.__getitem__)[-beam:]
        best = sorted(visited, key=visited.__getitem__, reverse=True)[:beam]
        actual = [tuple(output) for _, output in hypotheses.ranked()[row]]
        assert actual == best


def test_given_outputs_are_scored_by_the_sum_over_their_paths(model):
    """All outputs that there are, beside each other and padded, and one that is too long."""
    states = model.scoring_states(PAIRS.source)
    for row in range(len(PAIRS.source)):
        expected = summed(model, one(PAIRS, row).source)
        outputs = list(expected)
        longer = [EOS + 1] * (1 + max(map(len, outputs)))
        target = pad([*outputs, longer], eos=False)
        scores = model.log_probability(states.select(torch.full((len(target),), row)), target)
        assert scores.tolist() == pytest.approx([*expected.values(), -math.inf], abs=1e-9)


def test_it_ranks_the_outputs_of_another_system(model):
    scores = [summed(model, one(PAIRS, row).source) for row in range(len(PAIRS.source))]
    candidates = [dict.fromkeys([*own][:9], 0.0) for own in scores]
    for own, ranked in zip(scores, rescored(model, PAIRS.source, candidates), strict=True):
        expected = {output: own[output] / (len(output) + 1) for output in ranked}
        assert len(ranked) == 9 and ranked == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("inputs", ["soft", "positions"])
@pytest.mark.parametrize("rows", [2, 512])
@pytest.mark.parametrize("settings", [GraphPathSettings(), GraphViterbiSettings(), GraphBeamSettings(beam=9)])
def test_words_come_from_the_vertices_of_their_most_probable_path(settings, rows, inputs, monkeypatch):
    monkeypatch.setattr("workflow_src.losses.path_scores.ROWS", rows)
    network = sharp(vertices=3.0, inputs=inputs)
    source = PAIRS.source
    search = open_search({"model": network}, settings)
    hypotheses = search.translate(source)
    ranked = hypotheses.ranked() if hypotheses.ranked else [[(0.0, tokens)] for tokens in hypotheses.tokens]
    outputs = [[tokens for _, tokens in own] for own in ranked]
    origins, seen = search.origins(source, outputs), set()
    for row, (own, positions) in enumerate(zip(outputs, origins, strict=True)):
        size = int((source[row] != PAD).sum())
        vertices = 3 * size
        best = collections.defaultdict(lambda: (-math.inf, ()))
        for output, score, middle in outputs_and_paths(network, one(PAIRS, row).source):
            best[output] = max(best[output], (score, middle))
        for output, actual in zip(own, positions, strict=True):
            centres = [(vertex + 0.5) * size / vertices - 0.5 for vertex in best[tuple(output)][1]]
            assert len(centres) == len(actual) == len(output)
            assert all(abs(centre - origin) <= 0.5 for centre, origin in zip(centres, actual, strict=True))
            seen.update(actual)
    assert len(seen) > 1


def test_words_of_the_first_and_the_last_vertex_do_not_count():
    """These would prefer 4, and the only vertex between them prefers 3."""
    row = Row(np.array([1, 2, 1]), np.array([4, 3, 4, 4]), np.log([1.0, 1.0, 0.48 / 0.52, 1.0]), 0.0)
    transitions = np.log(np.array([[0.0, 0.9, 0.1], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]) + 1e-300)
    beam = PrefixBeam(GraphBeamSettings(beam=1, beam_threshold=None), SIZE, None)
    assert beam(row, np.log([1.0, 0.52, 1.0]), transitions) == {(3,): pytest.approx(math.log(0.9 * 0.52))}


def test_thresholds_leave_out_what_is_improbable_alone(model):
    whole = searched({"model": model}, PAIRS.source, GraphBeamSettings(**EVERYTHING))
    cut = searched({"model": model}, PAIRS.source, GraphBeamSettings(beam=2000, min_ratio=0.0, beam_threshold=3.0))
    assert cut.tokens == whole.tokens and cut.scores == pytest.approx(whole.scores)
    assert all(few < all_ for few, all_ in zip(cut.candidates, whole.candidates, strict=True))
    pruned = searched({"model": model}, PAIRS.source, GraphBeamSettings(beam=2000, min_ratio=0.5, beam_threshold=None))
    assert all(few < all_ for few, all_ in zip(pruned.candidates, whole.candidates, strict=True))
    assert all(score <= best + 1e-9 for score, best in zip(pruned.scores, whole.scores, strict=True))


def chain(first: float, second: float, ends: float, vertices: int):
    """A row, gains and transitions of vertices that put out 3 and lead to the next one. The first vertex ends with
    probability `ends`; its successor puts out its word with probability `first`, the one after that with `second`.
    """
    transitions = np.eye(vertices, k=1)
    transitions[0, 1], transitions[0, -1] = 1 - ends, ends
    gains = np.zeros(vertices)
    gains[1:3] = math.log(first), math.log(second)
    row = Row(np.ones(vertices, int), np.full(vertices, 3), np.zeros(vertices), 0.0)
    return row, gains, np.log(transitions + 1e-300)


def test_thresholds_keep_prefixes_whose_scores_are_best_at_greater_lengths():
    beam = PrefixBeam(GraphBeamSettings(length_penalty=1.1, beam_threshold=0.1), SIZE, None)
    outputs = beam(*chain(first=1e-4, second=1.0, ends=0.1, vertices=30))
    expected = math.log(0.9 * 1e-4) / 29**1.1
    assert max(outputs, key=outputs.__getitem__) == (3,) * 28 and outputs[(3,) * 28] == pytest.approx(expected)
    # Not even the greatest length brings it within the threshold.
    hopeless = beam(*chain(first=1e-60, second=1.0, ends=0.1, vertices=30))
    assert list(hopeless) == [()]


def test_thresholds_compare_scores_that_have_the_bonus_of_the_word():
    graph = chain(first=0.4, second=1.0, ends=0.9, vertices=3)
    outputs = PrefixBeam(GraphBeamSettings(word_bonus=3.0, beam_threshold=3.0), SIZE, None)(*graph)
    assert outputs[(3,)] == pytest.approx(math.log(0.1 * 0.4) + 3)
    kept = PrefixBeam(GraphBeamSettings(word_bonus=-3.0, beam_threshold=7.0), SIZE, None)(*graph)
    dropped = PrefixBeam(GraphBeamSettings(word_bonus=-3.0, beam_threshold=4.0), SIZE, None)(*graph)
    assert (3,) in kept and (3,) not in dropped


def test_thresholds_divide_scores_above_0_by_the_least_length():
    def outputs(second: float):
        row, gains, transitions = chain(first=1.0, second=second, ends=0.5, vertices=6)
        # Outputs have two words at most, of the four vertices that a longer one could visit.
        transitions[1, [2, -1]] = math.log(0.5)
        transitions[2] = transitions[-1]
        transitions[2, -1] = 0.0
        settings = GraphBeamSettings(word_bonus=5.0, length_penalty=1.0, beam_threshold=1.0)
        return PrefixBeam(settings, SIZE, None)(row, gains, transitions)

    best = (math.log(0.25) + 5) / 2
    for score, kept in ((best - 0.9, True), (best - 1.1, False)):
        scores = outputs(math.exp(3 * score - 10) / 0.25)
        assert scores[(3,)] == pytest.approx(best)
        assert ((3, 3) in scores) == kept


@pytest.mark.parametrize("settings", [GraphBeamSettings(beam=3), GraphViterbiSettings(), GraphPathSettings()])
def test_how_many_sentences_are_computed_at_once_changes_nothing(model, settings, monkeypatch):
    expected = searched({"model": model}, PAIRS.source, settings)
    monkeypatch.setattr("workflow_src.decoding.search.ROWS", 2)
    # The parts have graphs of other sizes.
    parts = searched({"model": model}, PAIRS.source[[0, 2, 1]], settings)
    assert [parts.tokens[row] for row in (0, 2, 1)] == expected.tokens
    assert [parts.scores[row] for row in (0, 2, 1)] == pytest.approx(expected.scores, abs=1e-9)


def test_a_rescorer_ranks_the_outputs(model):
    rescorer = transformer(SIZE, SIZE, seed=2)
    settings = GraphBeamSettings(beam=4, rescorer="teacher")
    hypotheses = searched({"model": model, "rescorer": rescorer}, PAIRS.source, settings)
    alone = searched({"model": model}, PAIRS.source, GraphBeamSettings(beam=4))
    for row in range(3):
        outputs = [output for _, output in alone.ranked()[row]]
        source = one(PAIRS, row).source
        scores = {
            tuple(output): rescorer.log_probabilities(source, torch.tensor([output], dtype=torch.long)).sum().item()
            / (len(output) + 1)
            for output in outputs
        }
        assert tuple(hypotheses.tokens[row]) == max(scores, key=scores.__getitem__)
        assert hypotheses.scores[row] == pytest.approx(max(scores.values()), abs=1e-9)


@pytest.mark.parametrize("penalty", [0.0, 0.5, 1.0, 3.0])
def test_viterbi_finds_the_best_words_and_path_together(penalty):
    # With four vertices a subword, some outputs are longer than twice the source; three subwords have too many.
    model = sharp(vertices=4.0 if penalty > 1 else 2.0)
    settings = GraphViterbiSettings(length_penalty=penalty)
    hypotheses = searched({"model": model}, PAIRS.source, settings)
    for row in (0, 2) if penalty > 1 else range(3):
        source = one(PAIRS, row).source
        scores = [
            (score / (len(output) + 1) ** penalty, output)
            for output, score, _ in outputs_and_paths(model, source)
            if len(output) <= 2 * source.size(1)
        ]
        score, output = max(scores)
        assert tuple(hypotheses.tokens[row]) == output and hypotheses.scores[row] == pytest.approx(score, abs=1e-9)
    assert penalty < 3 or len(hypotheses.tokens[0]) == 2 * 2


def test_viterbi_refuses_words_that_have_no_probability():
    """It would put out nothing, with a finite score."""
    model = dat()
    with torch.no_grad():
        model.output_bias.fill_(math.nan)
    with refuses(InputError, subject="search graph-viterbi"):
        searched({"model": model}, PAIRS.source, GraphViterbiSettings())


def test_viterbi_merges_equal_neighbours_where_the_setting_says_so_alone():
    model = dat(SIZE, SIZE, vertices=3.0)
    torch.nn.init.zeros_(model.target_embedding.weight)
    with torch.no_grad():
        model.output_bias[5] = 50.0
    long = {"length_penalty": 3.0}
    kept = searched({"model": model}, PAIRS.source, GraphViterbiSettings(**long)).tokens
    merged = searched({"model": model}, PAIRS.source, GraphViterbiSettings(**long, merge_equal=True)).tokens
    assert all(len(row) > 1 for row in kept) and merged == [[5]] * 3


def test_nothing_is_compiled_for_a_language_model_of_another_kind(model, language_model, monkeypatch):
    from workflow_src.searches.graph_beam import search

    monkeypatch.setattr(search, "usable", lambda *_: pytest.fail("compiled"))
    networks = {"model": model, "language_model": Carried(Wrapped(language_model))}
    settings = GraphBeamSettings(beam=2, language_model="lm")
    assert searched(networks, PAIRS.source, settings).tokens


@pytest.mark.parametrize("kind", ["n-gram", "none"])
def test_without_numba_outputs_are_the_same(model, language_model, kind, monkeypatch):
    from workflow_src.searches.graph_beam import search

    networks, fields = {"model": model}, {}
    if kind == "n-gram":
        networks["language_model"], fields = Carried(language_model), {"language_model": "lm"}
    settings = GraphBeamSettings(beam=3, word_bonus=0.5, **fields)
    expected = searched(networks, PAIRS.source, settings)
    search.beam_of.cache_clear()
    monkeypatch.setattr(search, "usable", lambda *_: False)
    actual = searched(networks, PAIRS.source, settings)
    search.beam_of.cache_clear()
    assert actual.tokens == expected.tokens and actual.scores == pytest.approx(expected.scores, abs=1e-12)


def test_the_compiled_search_for_the_best_path_is_the_uncompiled_one():
    draw = np.random.default_rng(0)
    for vertices, longest in ((2, 3), (3, 0), (6, 2), (9, 20)):
        gains, scores = draw.normal(size=vertices), draw.normal(size=(vertices, vertices))
        transitions = np.where(np.triu(np.ones_like(scores), 1) > 0, scores, -np.inf)
        for penalty in (0.0, 1.0):
            arguments = gains, transitions, longest, penalty
            (score, path), (other, other_path) = compiled.search(*arguments), interpreted(compiled.search)(*arguments)
            assert score == pytest.approx(other, abs=1e-12) and path.tolist() == other_path.tolist()
