"""Searches of all families in ONNX Runtime, against our own code: sentence by sentence, and some in batches."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import yaml
from miniatures import cmlm, dat, inat, lanmt, lively, lvm, nat, refiner, searched, tokens
from sessions import opened, request, translated

from workflow_src import registry
from workflow_src.decoding.ngram import estimate
from workflow_src.decoding.search import graph_key
from workflow_src.families.build import build
from workflow_src.spec import MODEL, REFINER
from workflow_src.types import EOS, PAD

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
pytest.importorskip("onnxscript", reason="needs the extra fast")

SIZE = 9
SOURCE = tokens([3, 1, 5, 2], SIZE, end=True)
LINES = [[i for i in row if i not in (PAD, EOS)] for row in SOURCE.tolist()]
# What takes time is the exporter, which goes from operator to operator.
SMALL = {"encoder_layers": 1, "layers": 1}


def slots(**fields):
    wide = {"latent_dim": 3} if fields.get("latent") else {}
    return nat(SIZE, SIZE, max_length_difference=4, seed=38, **SMALL, **fields, **wide)


def directed(**fields):
    network = dat(SIZE, SIZE, seed=3, vertices=3.0, **fields)
    with torch.no_grad():
        network.transition.query.weight.mul_(4)
    return network


def latents(**fields):
    return lanmt(SIZE, SIZE, **({"seed": 14} | SMALL | fields))


def recurrent():
    """Two layers on each side: the second reads the outputs of both directions of the first."""
    preset = yaml.safe_load(registry.families()["tagger"].presets.read_text(encoding="utf-8"))["miniature"]
    layers = {"source_layers": 2, "target_layers": 2, "max_length_difference": 4}
    torch.manual_seed(6)
    network = lively(build("tagger", preset | layers, {"source": SIZE, "target": SIZE, "joint": True}), 6, 0.3)
    with torch.no_grad():
        network.projection.weight.mul_(10)
        network.projection.bias.zero_()
    return network


# With the decoder of the authors' released code, and its place for the length.
RELEASED = {"length_reads": "states", "decoder_input": "scaled", "decoder_skip": True, "first_position": 0}
VAE = {"latent": "vae"}
MASKED = ("cmlm", lambda: cmlm(SIZE, SIZE, seed=38, **SMALL))
ITERATIVE = ("inat", lambda: inat(SIZE, SIZE, seed=4, **SMALL))
# Search, family, network and settings. What takes time is the export: a case has the graph of single sentences, or that
# of batches, which have padding, and one case of each kind of search has both.
ALONE = [
    ("npd", "nat", lambda: slots(**VAE, loss="ce"), {"draws": 3, "temperature": 2.0}),
    ("ctc-beam", "nat", lambda: slots(**VAE), {"beam": 3, "draws": 3, "temperature": 2.0}),
    ("delta", "nat", lambda: slots(**VAE), {"steps": 1}),
    ("score", "nat", lambda: slots(**VAE), {"steps": 2}),
    ("graph-path", "dat", lambda: directed(inputs="positions"), {"lookahead": 0.0, "merge_equal": True}),
    ("graph-viterbi", "dat", directed, {"length_penalty": 2.0}),
    # Outputs of this model leave positions empty before the last step, which a posterior must not read.
    ("delta", "lanmt", lambda: latents(seed=3), {"steps": 2}),
    ("npd", "lanmt", latents, {"draws": 3, "temperature": 3.0}),
    ("mask-predict", *MASKED, {"iterations": 3, "length_beam": 1, "lengthening": 0.5}),
    ("iterative-refinement", *ITERATIVE, {"passes": 3}),
    ("argmax", "tagger", recurrent, {"lengths": 1}),
]
TOGETHER = [
    ("argmax", "nat", lambda: slots(**VAE, loss="axe"), {"lengths": 3, "rescorer": "teacher"}),
    ("graph-path", "dat", directed, {}),
    ("score", "lanmt", lambda: latents(**RELEASED), {"steps": 1, "length_quantile": 0.8, "lengthening": 0.3}),
    (
        "delta",
        "lvm",
        lambda: lvm(length_pooling="attention", decoder_skip=True, norm="post", **SMALL),
        {"steps": 1, "length_quantile": 0.6, "lengthening": 0.1},
    ),
    ("mask-predict", *MASKED, {"iterations": 2, "length_beam": 3, "length_penalty": 2.0}),
    ("iterative-refinement", *ITERATIVE, {"passes": 2, "lengths": 3}),
    ("argmax", "tagger", recurrent, {"lengths": 3}),
]
BOTH = [
    ("ctc-greedy", "nat", slots, {"blank_penalty": 1.5}),
    ("graph-beam", "dat", directed, {"beam": 3, "word_bonus": 0.5, "language_model": "lm"}),
    (
        "score",
        "lvm",
        lambda: lvm(length_pooling="attention", end_symbol=True, **SMALL),
        {"steps": 2, "step_size": 0.5, "length_quantile": 0.6, "lengthening": 0.1},
    ),
    ("mask-predict", *MASKED, {"iterations": 2, "length_beam": 3, "rescorer": "teacher"}),
]
LENGTHS = np.random.default_rng(0).integers(1, 9, 60)


class LanguageModel:
    scorer = estimate(np.random.default_rng(1).integers(3, SIZE, LENGTHS.sum()), np.cumsum([0, *LENGTHS]), SIZE, 3)


@pytest.mark.graphs
@pytest.mark.parametrize(
    ("case", "together"),
    [*((case, False) for case in (*ALONE, *BOTH)), *((case, True) for case in (*TOGETHER, *BOTH))],
)
@pytest.mark.usefixtures("graphs")
def test_outputs_scores_and_steps_are_those_of_our_own_code(case, together, rescorer):
    name, family, make, fields = case
    search = registry.searches()[name]
    settings = search.settings(**fields)
    assert registry.engines()["onnxruntime"].serves(registry.families()[family], search, settings) is None
    models = {family: make().float()}
    networks = {MODEL: models[family]}
    if "rescorer" in fields:
        networks["rescorer"] = rescorer
    if "language_model" in fields:
        networks["language_model"] = LanguageModel()
    if REFINER in search.needs:
        networks[REFINER] = models["score"] = refiner("score", seed=3).float()
    with torch.no_grad():
        expected = searched(networks, SOURCE, settings)
    assert len({word for row in expected.tokens for word in row}) > 1
    engine = opened(dict(reversed(models.items())))
    batches = [LINES] if together else [[line] for line in LINES]
    actual = [translated(engine, batch, settings, True, networks) for batch in batches]
    assert [row for hypotheses in actual for row in hypotheses.tokens] == expected.tokens
    assert [score for hypotheses in actual for score in hypotheses.scores] == pytest.approx(expected.scores, abs=1e-4)
    if expected.steps:
        assert [steps for hypotheses in actual for steps in hypotheses.steps] == expected.steps


@pytest.mark.graphs
@pytest.mark.usefixtures("graphs")
def test_words_of_earlier_passes_stay():
    """The last pass would predict others in their place."""
    model = cmlm(30, 30, seed=3).float()
    settings = registry.searches()["mask-predict"].settings(iterations=4, length_beam=1)
    random = np.random.default_rng(1)
    sources = [random.integers(4, 30, length).tolist() for length in random.integers(3, 14, 40)]
    with torch.no_grad():
        expected = [searched({MODEL: model}, torch.tensor([[*source, EOS]]), settings).tokens[0] for source in sources]
    session = opened({"cmlm": model})
    assert [translated(session, [source], settings).tokens[0] for source in sources] == expected


@pytest.mark.graphs
@pytest.mark.usefixtures("graphs")
def test_all_passes_of_a_graph_share_the_weights():
    """Of each feed-forward layer there is one matrix."""
    import onnx

    (fields,) = (fields for name, *_, fields in ALONE if name == "mask-predict")
    model, settings = MASKED[1]().float(), registry.searches()["mask-predict"].settings(**fields)
    session = opened({"cmlm": model})
    translated(session, LINES[:1], settings, True)
    graph = onnx.load(session._path(graph_key(settings, True, True))).graph
    shapes = [sorted(tensor.dims) for tensor in graph.initializer]
    assert shapes.count([16, 24]) == 2 * (model.config.encoder_layers + model.config.layers)


@pytest.mark.graphs
@pytest.mark.usefixtures("graphs")
def test_in_8_bits_outputs_have_the_lengths_that_float32_has():
    """Only large products are rounded, so words may change with random weights, but not lengths."""
    model = cmlm(64, 64, seed=5, dim=32, feed_forward=64, **SMALL).float()
    settings = registry.searches()["mask-predict"].settings(iterations=3, length_beam=1)
    with torch.no_grad():
        expected = searched({MODEL: model}, SOURCE, settings)
    session = opened({"cmlm": model}, "fast-int8")
    several = dataclasses.replace(request(session, settings, scored=True), n_best=2)
    hypotheses = session.search(LINES, several)
    assert [len(row) for row in hypotheses.tokens] == [len(row) for row in expected.tokens]
    assert hypotheses.scores == pytest.approx(expected.scores, abs=0.3) and hypotheses.scores != expected.scores
    # Sentences are computed one at a time; their lists of hypotheses are put together too.
    assert [pairs[0] for pairs in hypotheses.ranked()] == [*zip(hypotheses.scores, hypotheses.tokens, strict=True)]


@pytest.mark.parametrize(
    ("family", "name", "fields"),
    [
        ("lanmt", "delta", {"steps": 3, "stop_unchanged": True}),
        ("lvm", "delta", {"stop_threshold": 0.1}),
        ("inat", "iterative-refinement", {"stop": "adaptive"}),
        ("lvm", "latent-search", {}),
    ],
)
def test_what_stops_by_values_or_has_no_program_is_not_served(family, name, fields):
    search = registry.searches()[name]
    reason = registry.engines()["onnxruntime"].serves(registry.families()[family], search, search.settings(**fields))
    assert name in reason and all(field in reason for field in fields if field.startswith("stop"))
