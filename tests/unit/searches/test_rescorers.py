"""Rescorers of every kind against sorting by probabilities that are computed one output at a time."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from miniatures import beam_search, ctc_beam, lvm, nat, one, pairs, searched, transformer

from workflow_src.decoding import ranking
from workflow_src.decoding.candidates import winners
from workflow_src.decoding.ctc import collapse
from workflow_src.decoding.ranking import best_of, rescored
from workflow_src.nn.models import Scorer
from workflow_src.searches.beam import BeamSettings
from workflow_src.searches.ctc_beam import CtcBeamSettings
from workflow_src.searches.latent_search import LatentSearchSettings

V = 6
BATCH = pairs([1, 2, 1], [1, 1, 1], (V, V))
SOURCE = BATCH.source
OUTPUTS = [words for n in range(4) for words in itertools.product(range(3, V), repeat=n)]


def one_pass(**options):
    """Its vocabulary has the blank beside V subwords."""
    return nat(V, V + 1, upsample=1.5, seed=3, **options)


@torch.no_grad()
def by_alignments(model, source, _outputs=None) -> dict[tuple[int, ...], float]:
    """log p(y|x) / (|y| + 1) of every output that has an alignment, by enumeration, of one sentence without padding."""
    hidden, mask = model.hidden(model.encode(source))
    assert mask.all()
    logits = hidden[0] @ model.target_embedding.weight.T + model.output_bias
    # Padding, start and end symbols are never put out.
    scores = torch.cat([torch.full((len(logits), 3), -math.inf), logits[:, 3:].log_softmax(-1)], -1)
    probabilities: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(3, V + 1), repeat=len(scores)):
        output = tuple(collapse(list(path), model.blank))
        p = math.exp(sum(float(scores[slot, symbol]) for slot, symbol in enumerate(path)))
        probabilities[output] = probabilities.get(output, 0.0) + p
    return {output: math.log(p) / (len(output) + 1) for output, p in probabilities.items()}


@torch.no_grad()
def word_by_word(model, source, outputs=OUTPUTS) -> dict[tuple[int, ...], float]:
    scores = {}
    for words in outputs:
        values = model.log_probabilities(source, torch.tensor([words], dtype=torch.int64))
        scores[words] = float(values.sum()) / (len(words) + 1)
    return scores


KINDS = {"nat": (one_pass, by_alignments), "transformer": (lambda: transformer(V, V, seed=2), word_by_word)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_ranked_list_is_sorted_by_brute_force(kind):
    make, expected_scores = KINDS[kind]
    model = make()
    with torch.no_grad():
        actual = rescored(model, SOURCE, [dict.fromkeys(OUTPUTS, 0.0)] * 3)
    for row in range(3):
        right = expected_scores(model, one(BATCH, row).source)
        scorable = [words for words in OUTPUTS if words in right]
        assert [actual[row][words] for words in scorable] == pytest.approx(
            [right[words] for words in scorable], abs=1e-9
        )
        ranked = sorted(OUTPUTS, key=actual[row].__getitem__, reverse=True)
        assert ranked[: len(scorable)] == sorted(scorable, key=right.__getitem__, reverse=True)
        # Outputs without an alignment come last.
        assert all(actual[row][words] == -math.inf for words in ranked[len(scorable) :])


def test_a_one_pass_model_scores_its_outputs_as_it_scored_them_when_it_searched():
    """Also where special symbols, which it may not put out, are probable."""
    model = one_pass()
    with torch.no_grad():
        model.output_bias[:3] += 2
    hypotheses = ctc_beam(model, SOURCE, CtcBeamSettings(beam=10**6, min_ratio=0.0, word_bonus=0.0))
    candidates = [{tuple(words): 0.0} for words in hypotheses.tokens]
    for row, (scores,) in enumerate(map(dict.items, rescored(model, SOURCE, candidates))):
        words, score = scores
        assert score * (len(words) + 1) == pytest.approx(hypotheses.scores[row], abs=1e-9)


def test_nobody_is_asked_about_an_only_candidate_unless_its_score_is(monkeypatch):
    model, sources = transformer(V, V, seed=2), []
    states = model.scoring_states
    monkeypatch.setattr(model, "scoring_states", lambda source: (sources.append(source.tolist()), states(source))[1])
    candidates = [{OUTPUTS[1]: -7.0}, dict.fromkeys(OUTPUTS[2:5], 0.0), {OUTPUTS[3]: -9.0}]
    with torch.no_grad():
        expected = rescored(model, SOURCE, candidates)
        ranked = rescored(model, SOURCE, candidates, scored=False)
        assert len(sources) == 2 and len(sources[1]) == 1
        assert rescored(model, SOURCE[:1], candidates[:1], scored=False) == candidates[:1]
    assert len(sources) == 2
    assert best_of(ranked).tokens == best_of(expected).tokens and best_of(ranked).candidates == [1, 3, 1]
    assert ranked[1] == pytest.approx(expected[1]) and ranked[0] == candidates[0] != expected[0]


@pytest.mark.parametrize("weight", [None, 0.0, 0.4, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_beam_ranked_by_a_rescorer_finds_the_best_sum(kind, weight, monkeypatch):
    """A beam that holds every output of up to three words."""
    monkeypatch.setattr(
        "workflow_src.decoding.steps.limits", lambda source, _ratio, _most: torch.full((len(source),), 3)
    )
    (make, right), model = KINDS[kind], transformer(V, V, seed=9)
    rescorer = make()
    settings = BeamSettings(beam=V**3, rescorer="other", rescorer_weight=weight)
    hypotheses = searched({"model": model, "rescorer": rescorer}, SOURCE, settings)
    for row in range(3):
        source = one(BATCH, row).source
        beam_scores, rescorer_scores = word_by_word(model, source), right(rescorer, source)
        ranked = (
            {
                words: rescorer_scores.get(words, -math.inf)
                if weight is None
                else beam_scores[words] + weight * rescorer_scores.get(words, -math.inf)
                for words in OUTPUTS
            }
            if weight != 0
            else beam_scores
        )
        best = max(ranked, key=ranked.__getitem__)
        assert tuple(hypotheses.tokens[row]) == best and hypotheses.scores[row] == pytest.approx(ranked[best], abs=1e-9)
        assert hypotheses.candidates[row] == len(OUTPUTS)
    if weight == 0:
        assert hypotheses.tokens == searched({"model": model}, SOURCE, BeamSettings(beam=V**3)).tokens


def test_a_beams_list_has_its_best_hypotheses_in_order():
    model = transformer(V, V, seed=9)
    for beam in (1, 3):
        for row, actual in enumerate(beam_search(model, SOURCE, beam).ranked()):
            scores = [score for score, _ in actual]
            assert len(actual) == beam == len({tuple(words) for _, words in actual})
            assert scores == sorted(scores, reverse=True)
            alone = beam_search(model, one(BATCH, row).source, beam).ranked()[0]
            assert [words for _, words in alone] == [words for _, words in actual]


def test_candidates_that_a_rescorer_cannot_score_keep_their_own_scores():
    model, long = one_pass(), (3, 4, 5, 3, 4, 5, 3)
    # A sentence of one subword and its end has three slots.
    candidates = [{long: -1.0, (*long, 3): -0.5}, {long: -9.0, (3,): -10.0}, {}]
    with torch.no_grad():
        ranked = rescored(model, SOURCE, candidates, weight=2.0)
    assert ranked[0] == candidates[0] and ranked[2] == {}
    assert ranked[1][long] == -math.inf and math.isfinite(ranked[1][3,])
    assert best_of(ranked[:2]).tokens == [[*long, 3], [3]]


@pytest.mark.parametrize("kind", KINDS)
def test_prefixes_of_a_one_pass_model_are_ranked_by_any_scorer(kind):
    (make, right), model = KINDS[kind], one_pass(copy_source="uniform")
    settings = CtcBeamSettings(beam=10**6, min_ratio=0.0, rescorer="other")
    rescorer = make()
    hypotheses = ctc_beam(model, SOURCE, settings, rescorer=rescorer)
    for row in range(3):
        source = one(BATCH, row).source
        ranked = right(rescorer, source, by_alignments(model, source))
        best = max(ranked, key=ranked.__getitem__)
        assert tuple(hypotheses.tokens[row]) == best and hypotheses.scores[row] == pytest.approx(ranked[best], abs=1e-9)


def test_latent_search_is_ranked_by_a_one_pass_model():
    model, rescorer = lvm(V, V), one_pass()
    settings = LatentSearchSettings(lengths=3, samples=4, steps=0, rescorer="other")
    networks = {"model": model, "rescorer": rescorer}
    hypotheses = searched(networks, SOURCE, settings)
    for row in range(3):
        source = one(BATCH, row).source
        alone = searched(networks, source, settings)
        right = by_alignments(rescorer, source)
        assert alone.tokens[0] == hypotheses.tokens[row]
        assert hypotheses.scores[row] == pytest.approx(right[tuple(hypotheses.tokens[row])], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_by_itself_is_scored_without_padding(kind, monkeypatch):
    """Candidates are scored in parts; engines have another graph for single sentences, which knows no padding."""
    rescorer, sources = KINDS[kind][0](), []
    monkeypatch.setattr(ranking, "ROWS", 5)
    forward = ranking.Scoring.forward

    def watched(self, source, rows, target):
        sources.append(source)
        return forward(self, source, rows, target)

    monkeypatch.setattr(ranking.Scoring, "forward", watched)
    candidates = [dict.fromkeys(OUTPUTS[1:3], 0.0) for _ in SOURCE]
    ranked = rescored(rescorer, SOURCE, candidates)
    assert any(len(source) == 1 and source.size(1) < SOURCE.size(1) for source in sources)
    assert all((source != 0).any(0).all() for source in sources)
    batched = [
        rescored(rescorer, SOURCE[row][SOURCE[row] != 0][None], candidates[row : row + 1])[0]
        for row in range(len(SOURCE))
    ]
    for scores, expected in zip(ranked, batched, strict=True):
        assert scores == pytest.approx(expected, abs=1e-9)


class Counted(Scorer):
    """A rescorer that counts scored outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.config = model.config
        self.count = 0

    def scoring_states(self, source):
        return self.model.scoring_states(source)

    def log_probability(self, states, target):
        self.count += len(target)
        return self.model.log_probability(states, target)


@torch.no_grad()
def test_equal_candidates_are_ranked_only_where_scores_are_wanted():
    rescorer = Counted(transformer(V, V, seed=2))
    # The first and the last sentence have one output twice.
    outputs = torch.tensor([[3, 4], [3, 4], [3, 4], [4, 4], [5, 0], [5, 0]])
    scores = torch.tensor([-1.0, -0.5, -2.0, -3.0, -1.5, -1.0])
    expected = winners(outputs, scores, SOURCE, rescorer)
    assert rescorer.count == 4
    ranked = winners(outputs, scores, SOURCE, rescorer, scored=False)
    assert rescorer.count == 4 + 2 and ranked.tokens == expected.tokens and ranked.candidates == [1, 2, 1]
    assert ranked.scores == pytest.approx([-0.5, expected.scores[1], -1.0], abs=1e-12)


@torch.no_grad()
def test_latent_search_asks_about_different_outputs_alone():
    network, rescorer = lvm(V, V, seed=1), Counted(transformer(V, V, seed=2))
    settings = LatentSearchSettings(lengths=1, samples=1, mean_first=True, steps=0, rescorer="other")
    networks = {"model": network, "rescorer": rescorer}
    scored_always = searched(networks, SOURCE, settings)
    assert rescorer.count == 3
    hypotheses = searched(networks, SOURCE, settings, scored=False)
    assert rescorer.count == 3 and hypotheses.tokens == scored_always.tokens


def test_a_sentence_beyond_the_rescorers_positions_keeps_its_own_scores():
    """Its candidates keep their scores, like candidates that are too long; the other sentences are ranked."""
    sentences = pairs([7, 2], [1, 1], (V, V)).source
    outputs = OUTPUTS[5:9]
    candidates = [dict(zip(outputs, (-1.0, -2.0, -3.0, -4.0), strict=True)) for _ in range(2)]
    small = transformer(V, V, seed=2, max_positions=7)
    for weight in (None, 0.5):
        actual = rescored(small, sentences, candidates, weight)
        assert actual[0] == candidates[0]
        expected = word_by_word(small, sentences[1:, :3], outputs)
        for words in outputs:
            ranked = expected[words] if weight is None else candidates[1][words] + weight * expected[words]
            assert actual[1][words] == pytest.approx(ranked, rel=1e-4)
