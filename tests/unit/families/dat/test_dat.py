"""The loss of the directed acyclic Transformer against enumeration of paths, and what glancing shows."""

from __future__ import annotations

import math

import pytest
import torch
from graphs import log_probability, paths
from miniatures import context, dat, gradients, one, padded, pairs

from workflow_src.decoding.search import open_search
from workflow_src.families.dat import DatObjectiveConfig
from workflow_src.families.dat.model import DirectedAcyclicTransformer
from workflow_src.families.dat.objective import path_loss, paths_of, sentence_losses, shown_symbols
from workflow_src.families.dat.validation import validate
from workflow_src.losses.draws import sentence_keys
from workflow_src.losses.matches import path_match_score
from workflow_src.losses.paths import posterior
from workflow_src.nn.copying import NOT_SHOWN
from workflow_src.searches.graph_path import GraphPathSettings
from workflow_src.types import BOS, EOS, Batch

NO_GLANCING = DatObjectiveConfig(glance_share=0, glance_end=0)
# Of the third sentence, with 4 vertices, the target has 7 symbols.
PAIRS = pairs([4, 3, 1, 2], [3, 4, 5, 0])


def enumerated(model: DirectedAcyclicTransformer, batch: Batch, row: int) -> torch.Tensor:
    """-log p(y|x) / M of a sentence, summed over its paths one by one."""
    pair = one(batch, row)
    hidden, mask = model.hidden(model.encode(pair.source))
    scores = (hidden @ model.target_embedding.weight.T + model.output_bias).log_softmax(-1)[0]
    symbols = [BOS, *pair.target[0].tolist(), EOS]
    transitions = model.transitions(hidden, mask)[0]
    all_paths = paths(mask.size(1), len(symbols))
    totals = [log_probability(scores[:, symbols], transitions, path) for path in all_paths]
    return -torch.stack(totals).logsumexp(0) / len(symbols)


@pytest.mark.parametrize("inputs", ["soft", "positions"])
def test_the_loss_is_that_of_all_paths_and_so_are_its_gradients(inputs, monkeypatch):
    model = dat(inputs=inputs)
    terms = path_loss(model, PAIRS, context(), NO_GLANCING)
    # The third sentence has no path and adds nothing.
    expected = sum(enumerated(model, PAIRS, row) for row in (0, 1, 3)) / 4
    assert terms.count == 4 and terms.figures["unreachable"].item() == pytest.approx(1 / 4)
    assert terms.loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert terms.figures["nll"].item() == pytest.approx(expected.item(), rel=1e-12)
    # Vertices that are hardly visited have no gradient of their symbols.
    hidden, mask = model.hidden(model.encode(PAIRS.source))
    monkeypatch.setattr("workflow_src.families.dat.objective.LEAST_VISITS", 0.0)
    losses, _ = sentence_losses(model, hidden, mask, paths_of(model, PAIRS))
    exact, wanted = gradients(model, losses.mean()), gradients(model, expected)
    near = gradients(model, terms.loss)
    for name, gradient in wanted.items():
        assert torch.allclose(exact[name], gradient, atol=1e-12), name
        assert torch.allclose(near[name], gradient, atol=1e-3), name


def test_parts_of_a_batch_have_the_gradient_of_the_whole():
    """Also where a part is a pair without a path."""
    model = dat(seed=4)
    for config in (NO_GLANCING, DatObjectiveConfig()):
        whole = path_loss(model, PAIRS, context(), config)
        parts = [path_loss(model, one(PAIRS, row), context(), config) for row in range(4)]
        assert sum(part.count for part in parts) == whole.count
        total = sum(part.loss * part.count for part in parts) / whole.count
        actual, expected = gradients(model, total), gradients(model, whole.loss)
        for name, gradient in expected.items():
            assert torch.allclose(actual[name], gradient, atol=1e-12), name


def test_symbols_of_vertices_that_are_visited_less_than_once_in_10_000_times_have_no_gradient():
    model = dat(vertices=4.0)
    with torch.no_grad():
        model.target_embedding.weight.mul_(8)
        model.transition.query.weight.mul_(4)
    batch = pairs([14], [30])
    paths_of_batch = paths_of(model, batch)
    hidden, mask = model.hidden(model.encode(batch.source))
    scores = (hidden @ model.target_embedding.weight.T + model.output_bias).log_softmax(-1)
    emissions = scores.gather(2, paths_of_batch.symbols[:, None].expand(-1, mask.size(1), -1))
    visits = posterior(emissions, model.transitions(hidden, mask), paths_of_batch).visits.sum(-1)[0]
    learned, kept = hidden.detach().requires_grad_(), model.transitions(hidden, mask).detach()
    model.transitions = lambda _hidden, _mask: kept
    losses, _ = sentence_losses(model, learned, mask, paths_of_batch)
    (gradient,) = torch.autograd.grad(losses.sum(), learned)
    assert torch.equal(gradient[0].abs().amax(-1) > 0, visits > 1e-4)
    # Neither are visits that are few beside the symbols of the target.
    symbols = paths_of_batch.counts.item()
    assert (visits <= 1e-4).any() and ((visits > 1e-4) & (visits <= 1e-4 * symbols)).any()


@pytest.mark.parametrize("size", [1, 2])
def test_matches_of_ngrams_learn_words_and_transitions(size):
    model = dat()
    terms = path_loss(model, PAIRS, context(), DatObjectiveConfig(ngrams=size))
    hidden, mask = model.hidden(model.encode(PAIRS.source))
    words = model.logits(hidden).softmax(-1).gather(-1, PAIRS.target[:, None].expand(-1, mask.size(1), -1))
    words = words * PAIRS.target_mask[:, None] * mask[..., None]
    scores = path_match_score(words, model.transitions(hidden, mask).exp(), mask.sum(1), PAIRS.target, size)
    assert terms.count == 4 and terms.figures["matches"].item() == pytest.approx(scores.mean().item(), rel=1e-12)
    assert terms.loss.item() == pytest.approx(1 - scores.mean().item(), rel=1e-12)
    actual, expected = gradients(model, terms.loss), gradients(model, -scores.mean())
    for name, gradient in expected.items():
        assert torch.allclose(actual[name], gradient, atol=1e-12), name


def test_a_batch_whose_targets_have_no_path_adds_nothing():
    model = dat()
    terms = path_loss(model, one(PAIRS, 2), context(), DatObjectiveConfig())
    assert terms.count == 1 and terms.loss.item() == 0 and terms.figures["unreachable"].item() == 1
    for name, gradient in gradients(model, terms.loss).items():
        assert gradient is None or not gradient.any(), name


def test_there_are_vertices_for_each_subword_but_at_least_two_and_no_more_than_positions():
    lengths = torch.tensor([1, 2, 3, 40])
    assert dat(vertices=1.5).vertices_of(lengths).tolist() == [2, 3, 5, 60]
    assert dat(vertices=1.0, max_positions=32).vertices_of(lengths).tolist() == [2, 2, 3, 32]


def test_gradients_are_finite_where_the_best_vertices_are_out_of_reach():
    """Of long graphs, the gradient by probabilities of transitions would be larger than float32 holds."""
    model = dat(vertices=8.0, max_positions=512).float()
    torch.nn.init.normal_(model.output_bias, std=8.0)
    source, target = torch.randint(4, 11, (3, 40)), torch.randint(4, 11, (3, 200))
    hidden, mask = model.hidden(model.encode(source))
    paths_of_batch = paths_of(model, Batch(source, target, (0, 1, 2)))
    losses, _ = sentence_losses(model, 4 * hidden, mask, paths_of_batch)
    assert paths_of_batch.reachable.all() and (losses > 1).all()
    for name, gradient in gradients(model, losses.sum()).items():
        assert torch.isfinite(gradient).all(), name


def glanced(model, batch, share: float, seed: int = 0):
    memory = model.encode(batch.source)
    return shown_symbols(model, memory, paths_of(model, batch), sentence_keys(batch, seed), share)


def best_of_all_paths(model, batch, row: int) -> tuple[tuple[int, ...], list[int], int]:
    """The most probable path of a target, its symbols, and how many of them are not the best of their vertices."""
    pair = one(batch, row)
    hidden, mask = model.hidden(model.encode(pair.source))
    scores = (hidden @ model.target_embedding.weight.T + model.output_bias).log_softmax(-1)[0]
    symbols = [BOS, *pair.target[0].tolist(), EOS]
    transitions = model.transitions(hidden, mask)[0]
    all_paths = list(paths(mask.size(1), len(symbols)))
    path = max(all_paths, key=lambda path: log_probability(scores[:, symbols], transitions, path).item())
    wrong = sum(scores[vertex].argmax().item() != symbol for vertex, symbol in zip(path, symbols, strict=True))
    return path, symbols, wrong


@pytest.mark.parametrize("share", [0.3, 0.5, 1.0])
def test_glancing_shows_a_share_of_what_is_wrong_at_the_vertices_of_the_best_path(share):
    model = dat(seed=4)
    shown, wrong = glanced(model, PAIRS, share)
    for row in (0, 1, 3):
        path, symbols, mistakes = best_of_all_paths(model, PAIRS, row)
        assert wrong[row].item() == mistakes
        here = {vertex: symbol for vertex, symbol in enumerate(shown[row].tolist()) if symbol != NOT_SHOWN}
        assert len(here) == math.floor(mistakes * share + 0.5)
        assert here.items() <= dict(zip(path, symbols, strict=True)).items()
    # A target without a path has nothing to show.
    assert (shown[2] == NOT_SHOWN).all() and wrong[2] == 0


def test_what_is_shown_depends_on_the_sentence_and_the_seed_alone():
    model = dat(seed=4)
    shown, _ = glanced(model, PAIRS, 0.5)
    wider, _ = glanced(model, padded(PAIRS), 0.5)
    assert torch.equal(shown, wider[:, : shown.size(1)]) and (wider[:, shown.size(1) :] == NOT_SHOWN).all()
    for row in (0, 1, 3):
        alone, _ = glanced(model, one(PAIRS, row), 0.5)
        assert torch.equal(alone[0], shown[row, : alone.size(1)])
    others = [glanced(model, PAIRS, 0.5, seed)[0] for seed in range(1, 5)]
    assert any(not torch.equal(shown, other) for other in others)


def test_both_passes_of_glancing_drop_the_same():
    """With all that is wrong left unshown, an update with glancing is that without."""
    model = dat(dropout=0.3).train()
    torch.manual_seed(5)
    plain = path_loss(model, PAIRS, context(), NO_GLANCING).loss
    torch.manual_seed(5)
    # So small a share of a few symbols is none.
    glancing = path_loss(model, PAIRS, context(), DatObjectiveConfig(glance_share=0.01, glance_end=0.01))
    assert glancing.figures["glanced"] == 0 and torch.equal(plain, glancing.loss)


def test_the_share_falls_from_the_first_to_the_last_update():
    model, config = dat(seed=4), DatObjectiveConfig(glance_share=1.0, glance_end=0.0)
    shares = [path_loss(model, PAIRS, context(step), config).figures.get("glanced", 0.0) for step in (0, 50, 100)]
    assert shares[0] > shares[1] > shares[2] == 0


@pytest.mark.parametrize("step", [0, 50, 100])
def test_a_share_of_0_switches_glancing_off_whatever_the_share_at_the_end(step):
    model = dat(seed=4)
    terms = path_loss(model, PAIRS, context(step), DatObjectiveConfig(glance_share=0))
    assert "glanced" not in terms.figures
    assert torch.equal(terms.loss, path_loss(model, PAIRS, context(step), NO_GLANCING).loss)


def test_dev_figures_are_means_over_sentences_that_have_paths():
    model = dat()
    figures = validate(DatObjectiveConfig())
    means = figures.measure(model, PAIRS, torch.zeros(4)).means
    expected = sum(enumerated(model, PAIRS, row) for row in (0, 1, 3))
    loss, count = means["dev_loss"]
    assert loss.item() == pytest.approx(expected.item()) and count == 3
    assert float(means["dev_unreachable"][0]) / float(means["dev_unreachable"][1]) == 1 / 4
    # A batch with no path at all counts for nothing.
    total, sentences = figures.measure(model, one(PAIRS, 2), torch.zeros(1)).means["dev_loss"]
    assert float(total) == float(sentences) == 0
    best = figures.searches["dev_bleu"](model, PAIRS.source).tokens
    search = open_search({"model": model}, GraphPathSettings(), scored=False)
    assert best == search.translate(PAIRS.source).tokens


def test_shown_symbols_stand_in_place_of_source_states():
    model = dat()
    memory = model.encode(PAIRS.source)
    plain, mask = model.hidden(memory)
    nothing = torch.full(mask.shape, NOT_SHOWN)
    assert torch.equal(model.hidden(memory, nothing)[0], plain)
    changed, _ = model.hidden(memory, nothing.index_fill(1, torch.tensor([1]), 6))
    assert (changed - plain).abs().amax((1, 2)).min() > 1e-3 and torch.isfinite(changed).all()
