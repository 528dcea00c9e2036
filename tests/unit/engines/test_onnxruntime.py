"""Graphs in ONNX Runtime against eager inference of the same random models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from miniatures import ending, lvm, nat, refiner, translate_batch

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.latent import delta_step, gradient_step, length_mask
from workflow_src.engines import onnxruntime
from workflow_src.engines.onnxruntime import FastLatent, choose_engine, open_networks
from workflow_src.types import EOS

onnx = pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
SEARCHES = [("prior-mean", 0), ("delta", 2), ("score", 3)]


def models(positions: bool = True, end_symbol: bool = False, **more):
    """A latent-variable model and a score network, with or without `positions`, in float32."""
    network = refiner("score", positions=positions, **{k: v for k, v in more.items() if k == "norm"})
    return (ending if end_symbol else lvm)(**more).float(), network.float()


@pytest.fixture(scope="module")
def pair():
    return models()


@pytest.fixture(scope="module")
def engine(pair):
    return FastLatent(*pair, threads=1)


@pytest.fixture(scope="module")
def narrow_engine(pair):
    return FastLatent(*pair, threads=1, int8=True)


def sentences(number: int, longest: int = 25, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(3, 13, draw.integers(1, longest)).tolist() for _ in range(number)]


def eager(pair, sources, search, steps, **more):
    return translate_batch(pair[0], pad(sources, eos=True), search, steps, refiner=pair[1], **more)


@torch.no_grad()
def margins(sources, search, steps) -> torch.Tensor:
    """By how much the best word of a sentence leads at least, over positions and steps, in float64."""
    model, network = lvm(), refiner("score")
    memory = model.encode(pad(sources, eos=True))
    mask = length_mask(model.predict_lengths(memory))
    z = model.prior(memory, mask)[0]
    move = delta_step(model, memory, mask) if search == "delta" else gradient_step(network, memory, mask, 1.0)
    found = []
    for _ in range(steps + 1):
        best = model.decode(memory, z, mask)[..., 3:].topk(2).values
        found.append((best[..., 0] - best[..., 1]).masked_fill(~mask, 1).amin(1))
        z = move(z)
    return torch.stack(found).amin(0)


@pytest.mark.parametrize(("search", "steps"), SEARCHES)
def test_tokens_are_those_of_eager_inference(pair, engine, search, steps):
    drawn = sentences(560)
    # Random models nearly tie now and then; there, rounding may decide either way.
    sources = [row for row, lead in zip(drawn, margins(drawn, search, steps), strict=True) if lead > 1e-5][:500]
    assert len(sources) == 500
    wanted = eager(pair, sources, search, steps)
    # In batches of equal and of different lengths, and alone, where the graph has no masks.
    for size in (1, 50):
        parts = [engine.search(sources[i : i + size], search, steps) for i in range(0, 500, size)]
        assert [row for part in parts for row in part.tokens] == wanted.tokens
        assert [score for part in parts for score in part.scores] == pytest.approx(wanted.scores, abs=1e-5)
        assert parts[0].steps == [steps] * size
    assert len({len(row) for row in wanted.tokens}) > 10 and len({tuple(row) for row in wanted.tokens}) > 100


KINDS = [
    {"norm": "post"},
    {"joint": True, "target_size": 13},
    {"max_positions": 30},
    {"end_symbol": True},
    {"end_symbol": True, "max_positions": 30},
    {"decoder_skip": True},
    {"decoder_skip": True, "norm": "post"},
    {"length_pooling": "attention"},
    {"positions": False},
    {"end_symbol": True, "decoder_skip": True, "length_pooling": "attention", "positions": False},
]


@pytest.mark.parametrize("more", KINDS, ids=str)
@pytest.mark.parametrize(("search", "steps"), SEARCHES)
def test_every_kind_of_model(more, search, steps):
    pair = models(**more)
    if "max_positions" in more:
        # Lengths are cut at the model's positions, one of them an end symbol's; its score network has more of them.
        with torch.no_grad():
            pair[0].length.outer.bias[-1] += 100
            # There a word may stand.
            pair[0].output_bias[EOS] -= 1000
    made, sources = FastLatent(*pair, threads=1), [*sentences(15), [5] * 29]
    # Long steps of a random network leave no end symbol.
    size = 0.1 if "end_symbol" in more else 1.0
    wanted = eager(pair, sources, search, steps, step_size=size)
    together = made.search(sources, search, steps, size)
    alone = [made.search([source], search, steps, size) for source in sources]
    assert together.tokens == [found.tokens[0] for found in alone] == wanted.tokens
    assert together.scores == pytest.approx(wanted.scores, abs=1e-5)
    assert [found.scores[0] for found in alone] == pytest.approx(wanted.scores, abs=1e-5)
    if "max_positions" in more:
        assert len(wanted.tokens[-1]) == 30
    elif "end_symbol" in more:
        lengths = pair[0].predict_lengths(pair[0].encode(pad(sources, eos=True))).tolist()
        # Both words and end symbols, which are dropped, were put out.
        assert 0 < sum(map(len, wanted.tokens)) < sum(lengths) + len(sources)


@pytest.mark.parametrize("setting", ["decoder_skip", "length_pooling", "positions"])
def test_the_kinds_of_models_are_not_the_same(setting):
    """Else the graphs above could leave out what they have to compute."""
    sources, (made, change) = sentences(15), (models(), {"length_pooling": "attention"})
    if setting == "length_pooling":
        other = models(**change)
        # Equal but for the pooling.
        other[0].load_state_dict(made[0].state_dict(), strict=False)
    else:
        other = models(**{setting: setting == "decoder_skip"})
    source, steps = pad(sources, eos=True), 3
    found = [translate_batch(model, source, "score", steps, refiner=network) for model, network in (made, other)]
    assert found[0].tokens != found[1].tokens


@pytest.mark.parametrize("quantile", [None, 0.7])
@pytest.mark.parametrize("more", [{}, KINDS[-1], {"max_positions": 30, "end_symbol": True}], ids=str)
def test_lengths_may_be_longer_than_predicted(more, quantile):
    pair, sources, seen = models(**more), sentences(20, seed=3), []
    made = FastLatent(*pair, threads=1)
    for lengthening in (0.0, 0.06, 0.11, 0.5, 1.5, 1e30):
        settings = {"length_quantile": quantile, "lengthening": lengthening}
        wanted = eager(pair, sources, "score", 1, **settings)
        together = made.search(sources, "score", 1, **settings)
        alone = [made.search([source], "score", 1, **settings) for source in sources]
        assert together.tokens == [found.tokens[0] for found in alone] == wanted.tokens
        assert together.scores == pytest.approx(wanted.scores, abs=1e-5)
        seen.append(sum(map(len, wanted.tokens)))
    assert len(set(seen)) >= 5


def test_steps_and_their_size_are_inputs(pair, engine):
    sources = sentences(30)
    seen = set()
    for steps, size in ((0, 1.0), (1, 1.0), (1, 30.0), (4, 30.0)):
        found = engine.search(sources, "score", steps, size).tokens
        assert found == eager(pair, sources, "score", steps, step_size=size).tokens
        seen.add(str(found))
    assert engine.search(sources, "score", 0).tokens == engine.search(sources, "prior-mean", 4).tokens
    assert len(seen) > 2


@pytest.mark.parametrize(("search", "steps"), SEARCHES)
def test_without_scores_tokens_are_the_same_and_special_symbols_never_words(search, steps):
    pair = models()
    with torch.no_grad():
        pair[0].output_bias[:3] += 100
    made, sources = FastLatent(*pair, threads=1), sentences(20)
    scored, bare = (made.search(sources, search, steps, scored=wanted) for wanted in (True, False))
    assert scored.tokens == bare.tokens == eager(pair, sources, search, steps).tokens
    assert bare.scores == [0.0] * 20 and max(scored.scores) < -50
    assert made.search(sources[:1], search, steps, scored=False).tokens == scored.tokens[:1]
    assert min(min(row) for row in scored.tokens) > 2


@pytest.mark.parametrize("size", [1, 40])
def test_lengths_may_be_a_quantile_of_the_predicted_ones(pair, engine, narrow_engine, size):
    sources, seen = sentences(40, seed=2), set()
    for quantile in (0.1, 0.5, 0.9, 0.99999999):
        found = [
            made.search(sources[i : i + size], "score", 1, length_quantile=quantile).tokens
            for made in (engine, narrow_engine)
            for i in range(0, 40, size)
        ]
        lengths = [len(row) for rows in found for row in rows]
        wanted = eager(pair, sources, "score", 1, length_quantile=quantile).tokens
        assert [row for rows in found for row in rows][:40] == wanted
        # Lengths come from float32 heads over 8-bit layers: few differ.
        assert np.mean(np.equal(lengths[40:], lengths[:40])) > 0.7
        seen.add(sum(lengths[:40]))
    assert len(seen) == 4


@pytest.mark.parametrize(("search", "steps"), SEARCHES)
def test_8_bit_products_change_few_words_and_batches_none(pair, narrow_engine, search, steps):
    sources = sentences(40)
    found = narrow_engine.search(sources, search, steps)
    alone = [narrow_engine.search([source], search, steps) for source in sources]
    assert found.tokens == [one.tokens[0] for one in alone] and found.scores == [one.scores[0] for one in alone]
    wanted = eager(pair, sources, search, steps)
    same = [a == b for x, y in zip(found.tokens, wanted.tokens, strict=True) for a, b in zip(x, y, strict=False)]
    # Not all of them: it is another arithmetic.
    assert 0.85 < sum(same) / len(same) < 1
    assert 0 < np.abs(np.subtract(found.scores, wanted.scores)).mean() < 0.1


@pytest.mark.parametrize(("search", "steps"), SEARCHES)
def test_8_bits_of_a_model_with_every_setting(search, steps):
    pair = models(**KINDS[-1])
    made, sources = FastLatent(*pair, threads=1, int8=True), sentences(40)
    found = made.search(sources, search, steps, lengthening=0.1)
    alone = [made.search([source], search, steps, lengthening=0.1) for source in sources]
    assert found.tokens == [one.tokens[0] for one in alone] and found.scores == [one.scores[0] for one in alone]
    wanted = eager(pair, sources, search, steps, lengthening=0.1)
    assert np.mean([a == b for a, b in zip(found.tokens, wanted.tokens, strict=True)]) > 0.3
    assert np.mean(np.abs(np.subtract(*(list(map(len, made.tokens)) for made in (found, wanted))))) < 1
    assert 0 < np.abs(np.subtract(found.scores, wanted.scores)).mean() < 0.1


def test_narrow_rounds_to_the_nearest_of_255_steps_a_column():
    from workflow_src.engines.onnx_graph import narrow

    weight = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32) * np.array([1, 10, 0.1, 5, 0], np.float32)
    rounded, scale = narrow(weight)
    assert rounded.dtype == np.int8 and (np.abs(rounded).max(0)[:4] == 127).all()
    assert (np.abs(rounded * scale - weight) <= scale / 2 * 1.0001).all() and (rounded[:, 4] == 0).all()


@pytest.mark.parametrize("int8", [False, True])
def test_a_graph_holds_every_weight_once_though_the_decoder_runs_twice(int8):
    from workflow_src.engines.onnx_latent import build

    big = lvm(dim=64, feed_forward=256, source_size=500, target_size=500).float()
    part = FastLatent(big, threads=1)._lvm
    made = onnx.load_from_string(build(part, None, "delta", False, False, int8))
    onnx.checker.check_model(made)
    names = [node.op_type for node in made.graph.node]
    assert names.count("Loop") == 1 and ("DynamicQuantizeMatMul" in names) is int8
    used = sum(p.numel() for n, p in big.named_parameters())
    constants = sum(int(np.prod(tensor.dims)) for tensor in made.graph.initializer)
    # Beside the weights: scaled embeddings, position codes and a product of them, biases without special symbols.
    extra = 500 * 64 + 64 * 64 + 64 * 192 + 4 * 500
    assert constants < used + extra + 2000
    assert len(made.SerializeToString()) < (2.5 if int8 else 4.1) * (used + extra)


def test_threads_follow_the_setting(pair, engine):
    assert engine._session("delta", False, False, 4, False, False).get_session_options().intra_op_num_threads == 1
    two = FastLatent(*pair, threads=2)
    sources = sentences(9)
    assert two.search(sources, "delta", 1).tokens == engine.search(sources, "delta", 1).tokens
    assert two._session("delta", True, True, 1, False, False).get_session_options().intra_op_num_threads == 2


def test_what_cannot_be_searched_is_named(pair, engine):
    with pytest.raises(ValueError, match='^unknown search "energy"; allowed: prior-mean, delta, score.$'):
        engine.search([[5]], "energy", 1)
    with pytest.raises(ValueError, match="^search score needs a score network; this system has none.$"):
        FastLatent(pair[0], threads=1).search([[5]], "score", 1)


REFUSED = [
    (("quick", "cpu", "float32", True), 'unknown engine "quick"; allowed: auto, eager, fast, fast-int8.'),
    (("fats", "cpu", "float32", True), 'unknown engine "fats"; allowed: auto, eager, fast, fast-int8. Did you mean '
                                       '"fast"?'),
    (("fast", "cpu", "float32", False), 'engine "fast" serves searches that have a program, and this system has '
                                        "none; use engine eager."),
    (("fast-int8", "cuda:0", "float32", True), 'engine "fast-int8" runs on CPUs, and the device is cuda:0; use '
                                               "engine eager."),
    (("fast-int8", "cpu", "bfloat16", True), 'engine "fast-int8" reads float32 weights, and the precision is bfloat16; '
                                             "use engine eager."),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=str)
def test_an_engine_that_cannot_serve_is_refused_and_auto_takes_the_eager_one(given, message):
    with pytest.raises(ValueError) as caught:
        choose_engine(*given)
    assert str(caught.value) == message
    if "unknown" not in message:
        assert choose_engine("auto", *given[1:]) == choose_engine("eager", *given[1:]) == "eager"


def test_without_the_packages_auto_is_eager(monkeypatch):
    assert choose_engine("auto", "cpu", "float32", True) in ("fast", "fast-int8")
    monkeypatch.setattr(onnxruntime.importlib.util, "find_spec", lambda name: None)
    assert choose_engine("auto", "cpu", "float32", True) == "eager"
    with pytest.raises(ValueError) as caught:
        choose_engine("fast", "cpu", "float32", True)
    message = 'engine "fast" needs onnx and onnxruntime (the extra "fast"); use engine eager.'
    assert str(caught.value) == message


def test_8_bits_on_processors_that_saturate_come_with_a_warning(monkeypatch, caplog):
    assert choose_engine("auto", "cpu", "float32", True) == "fast" and not caplog.records
    monkeypatch.setattr(onnxruntime, "int8_is_safe", lambda: False)
    assert choose_engine("fast-int8", "cpu", "float32", True) == "fast-int8"
    assert "this processor lacks VNNI instructions; its 8-bit products may overflow" in caplog.text


def test_graphs_that_lose_to_our_own_code_in_batches_are_known():
    latent = open_networks({"lvm": lvm().float()}, "fast", torch.device("cpu"))
    slots = open_networks({"nat": nat().float()}, "fast", torch.device("cpu"))
    gains = lambda engine, name: engine.gains_in_batches(registry.searches()[name].settings())  # noqa: E731
    assert not gains(latent, "prior-mean") and not gains(slots, "mask-predict")
    assert gains(slots, "ctc-greedy") and gains(slots, "prior-mean")
