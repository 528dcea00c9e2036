"""Drafts that are checked by exported graphs, against greedy search and the eager passes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from miniatures import cmlm, greedy, lanmt, lvm, nat, ngram, pairs, peaked, searched, transformer
from sessions import request, translated
from threads import in_threads

from workflow_src.data.batching import pad
from workflow_src.decoding.drafts import DraftSearch
from workflow_src.decoding.settings import DRAFTER, LM
from workflow_src.engines.exported import ExportedDecoder
from workflow_src.searches.verified import VerifiedSettings
from workflow_src.spec import MODEL

V = 40
SHALLOW = {"encoder_layers": 1, "layers": 1}
# Those whose search for drafts has no other test of its graph; every family drafts in tests/unit/searches/verified.
DRAFTERS = {
    "ctc": lambda: nat(V, V + 1, **SHALLOW),
    "latents": lambda: lvm(V, V, **SHALLOW),
    "source latents": lambda: lanmt(V, V, **SHALLOW),
    "masked": lambda: cmlm(V, V + 1, **SHALLOW),
}


def verifier(end: float = 0.0, **settings):
    """A model whose outputs have many lengths, wide enough for products in 8 bits."""
    sizes = {"dim": 32, "feed_forward": 64, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    return peaked(transformer(V, V, seed=5, **sizes, **settings), end)


def settings(**fields) -> VerifiedSettings:
    return VerifiedSettings(drafter="drafter", **fields)


# Every word of a draft is accepted.
ACCEPTING = settings(tolerance=1e6, top=V)


def sentences(number: int, longest: int = 12, seed: int = 1) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(3, V) for _ in range(draw.randrange(1, longest))] for _ in range(number)]


def drafts_of(outputs: list[list[int]], number: int, seed: int = 0) -> list[list[list[int]]]:
    """Outputs with words changed and left out; nothing; what is far too long; any symbols."""
    draw = random.Random(seed)
    kinds = (
        lambda words: [draw.randrange(3, V) if draw.random() < 0.2 else w for w in words if draw.random() > 0.1],
        lambda words: [],
        lambda words: words + [draw.randrange(3, V) for _ in range(60)],
        lambda words: [draw.randrange(V) for _ in range(9)],
    )
    return [[draw.choice(kinds)(words) for _ in range(number)] for words in outputs]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("width", [1, 3])
@torch.no_grad()
def test_kept_keys_and_values_give_what_the_models_own_decoder_gives(norm, width):
    """Whatever rows read, forget and continue, and whoever leaves; also where nothing was read, or only one token."""
    model, source = verifier(norm=norm).double(), pairs([4, 1, 6, 2], [1] * 4, (V, V)).source
    for seed in range(8):
        draw = torch.Generator().manual_seed(seed)
        number = lambda low, high, size, draw=draw: torch.randint(low, high, size, generator=draw)  # noqa: E731
        expected = model.start(model.encode(source))
        actual = ExportedDecoder(lambda ids: [model.read_source(ids)], model.read_block, source)
        wide = torch.arange(4).repeat_interleave(width)
        for decoder in (expected, actual):
            decoder.reorder(wide)
        rows, kept, read = 4 * width, 4, torch.zeros(4 * width, dtype=torch.int64)
        for step in range(6):
            block = number(3, V, (rows, int(number(1, 6, (1,)))))
            logits = [decoder.steps(block.clone()) for decoder in (expected, actual)]
            torch.testing.assert_close(logits[1], logits[0], atol=1e-12, rtol=0)
            # As in a search, the rows of a sentence continue one of them.
            sentences_of_rows = torch.arange(kept).repeat_interleave(width)
            winners = sentences_of_rows * width + number(0, width, (kept,)).repeat_interleave(width)
            # Once, nothing is forgotten: rows go on at places of their own.
            forgets = step != 2
            fewest = 0 if forgets else block.size(1)
            read = read + number(fewest, block.size(1) + 1, (kept,)).repeat_interleave(width)
            for decoder in (expected, actual):
                decoder.reorder(winners)
            if step % 2 and kept > 1:
                left = torch.tensor([place for place in range(kept) if place != step % kept])
                for decoder in (expected, actual):
                    decoder.keep(left)
                read, kept = read.view(kept, width)[left].flatten(), kept - 1
                rows = kept * width
            for decoder in (expected, actual) if forgets else ():
                decoder.rewind(read)


def engine_of(networks, folder: Path, int8: bool = False):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="needs the extra fast")
    from workflow_src.engines.exported import ExportedGraphs

    return ExportedGraphs({"transformer": networks[MODEL]}, 1, int8, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def networks():
    return {MODEL: verifier().float(), DRAFTER: DRAFTERS["ctc"]().float()}


@pytest.fixture
def any_drafts(monkeypatch):
    """Searches check drafts of all kinds, from the outputs of greedy search; those of the drafter are made too."""

    def drafts(search, sources, translate):
        translate(list(sources))
        outputs = greedy(search.model, pad(sources, eos=True)).tokens
        return [
            drafts_of([words], search.settings.drafts, sum(source))[0]
            for words, source in zip(outputs, sources, strict=True)
        ]

    monkeypatch.setattr(DraftSearch, "drafts", drafts)


@pytest.mark.graphs
@pytest.mark.parametrize(
    "fields",
    [{}, {"block": 1}, {"block": 50}, {"drafts": 3}, {"max_length_ratio": 0.01}, {"tolerance": 2.0, "top": 3}],
    ids=str,
)
@torch.no_grad()
def test_graphs_check_drafts_as_the_eager_search_does(fields, networks, folder, any_drafts):
    """Of batches whose sentences end in different passes, and of single sentences; more than fit into one pass, too."""
    chosen, sources = settings(**fields), sentences(70)
    engine = engine_of(networks, folder)
    for part in (sources, sources[:5], *([source] for source in sources[:6])):
        expected = searched(networks, pad(part, eos=True), chosen)
        actual = translated(engine, part, chosen, True, networks)
        assert (actual.tokens, actual.steps) == (expected.tokens, expected.steps)
        assert actual.scores == pytest.approx(expected.scores, abs=1e-5)
        if "tolerance" not in fields:
            ratio = chosen.max_length_ratio
            assert actual.tokens == greedy(networks[MODEL], pad(part, eos=True), ratio).tokens


@pytest.mark.graphs
@torch.no_grad()
def test_in_8_bits_drafts_and_batches_change_nothing(networks, folder, any_drafts):
    """The output is that of the same graphs when they read one word after another, but not that of float32."""
    engine, sources = engine_of(networks, folder, int8=True), sentences(30)
    words_one_by_one = translated(engine, sources, settings(block=1), True, networks)
    assert len(set(map(len, words_one_by_one.tokens))) > 3
    for fields in ({"block": 3}, {"block": 8}, {"block": 50}, {"drafts": 3}):
        actual = translated(engine, sources, settings(**fields), True, networks)
        assert actual.tokens == words_one_by_one.tokens
        assert actual.scores == pytest.approx(words_one_by_one.scores, abs=1e-5)
        assert sum(actual.steps) < sum(words_one_by_one.steps)
    in_float32 = translated(engine_of(networks, folder), sources, settings(), True, networks)
    differences = [abs(a - b) for a, b in zip(words_one_by_one.scores, in_float32.scores, strict=True)]
    assert max(differences) > 1e-4 and sorted(differences)[len(differences) // 2] < 0.3


@pytest.mark.graphs
@pytest.mark.parametrize("drafter", DRAFTERS)
@torch.no_grad()
def test_graphs_of_a_drafter_draft_as_the_eager_drafter_does(drafter, networks, folder):
    drafted = networks | {DRAFTER: DRAFTERS[drafter]().float()}
    engine = engine_of(drafted, folder)
    assert not engine.ready(request(engine, settings(), True, drafted), True) or drafter == "ctc"
    for source in sentences(5, seed=2):
        for chosen in (settings(), ACCEPTING):
            expected = searched(drafted, pad([source], eos=True), chosen)
            actual = translated(engine, [source], chosen, True, drafted)
            assert (actual.tokens, actual.steps) == (expected.tokens, expected.steps)
    assert engine.ready(request(engine, settings(), True, drafted), True)


@pytest.mark.graphs
@torch.no_grad()
def test_the_same_graphs_draft_with_a_language_model(networks, folder):
    with_model, engine = networks | {LM: ngram(V)}, engine_of(networks, folder)
    chosen = settings(language_model="lm", lm_weight=2.0, tolerance=1e6, top=V)
    beam = settings(draft_search="ctc-beam", tolerance=1e6, top=V)
    outputs = [translated(engine, [source], beam, True, networks).tokens for source in sentences(5)]
    assert engine.ready(request(engine, chosen, True, with_model), True)
    drafted = [translated(engine, [source], chosen, True, with_model).tokens for source in sentences(5)]
    assert drafted == [searched(with_model, pad([source], eos=True), chosen).tokens for source in sentences(5)]
    assert drafted != outputs


@pytest.mark.graphs
@torch.no_grad()
def test_each_drafter_makes_its_own_drafts(networks, folder):
    """Also where graphs of another one with the same settings are open."""
    other = networks | {DRAFTER: nat(V, V + 1, seed=7, **SHALLOW).float()}
    engine, outputs = engine_of(networks, folder), []
    for drafted in (networks, other, networks):
        outputs.append([translated(engine, [source], ACCEPTING, True, drafted).tokens for source in sentences(3)])
    assert outputs[0] == outputs[2] != outputs[1]


@pytest.mark.graphs
@torch.no_grad()
def test_a_batch_of_which_one_sentence_is_drafted_needs_no_further_graph(networks, tmp_path):
    """The other sentence is too long for the drafter."""
    short = networks | {DRAFTER: nat(V, V + 1, max_positions=16, **SHALLOW).float()}
    engine, sources = engine_of(short, tmp_path), [sentences(1)[0], [5] * 20]
    engine.prepare(request(engine, ACCEPTING, True, short), False)
    graphs = set(tmp_path.rglob("*"))
    expected = searched(short, pad(sources, eos=True), ACCEPTING)
    assert translated(engine, sources, ACCEPTING, True, short).tokens == expected.tokens
    assert graphs and set(tmp_path.rglob("*")) == graphs


@pytest.mark.graphs
@torch.no_grad()
def test_threads_export_the_graphs_of_their_drafters_at_once(networks, folder):
    """The exporter serves one thread of a process."""
    engine, source = engine_of(networks, folder), sentences(1)[0]
    drafters = [networks | {DRAFTER: nat(V, V + 1, seed=seed, **SHALLOW).float()} for seed in (8, 9)]
    assert not any(engine.ready(request(engine, ACCEPTING, True, drafted), True) for drafted in drafters)
    outputs = [[] for _ in drafters]

    def work(number):
        outputs[number] += translated(engine, [source], ACCEPTING, True, drafters[number]).tokens

    in_threads(work, len(drafters))
    assert outputs == [searched(drafted, pad([source], eos=True), ACCEPTING).tokens for drafted in drafters]


@pytest.mark.parametrize("scale", [1.0, 1e30])
def test_a_product_that_is_rounded_by_row_does_not_depend_on_other_rows(scale):
    """Against the rounding of its declaration, in whole numbers; a row of zeros gives the bias."""
    onnx = pytest.importorskip("onnx", reason="needs the extra fast")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra fast")
    from onnx import helper, numpy_helper

    from workflow_src.engines.onnx_narrow import narrowed_by_row

    draw = np.random.default_rng(1)
    first, second = draw.normal(size=(96, 64)).astype(np.float32), draw.normal(size=(96, 40)).astype(np.float32)
    bias, rows = draw.normal(size=96).astype(np.float32), scale * draw.normal(size=(7, 64)).astype(np.float32)
    rows[3] = 0
    rows[5] *= 100
    nodes = [
        helper.make_node("Gemm", ["rows", "first", "bias"], ["linear"], "one", transB=1),
        helper.make_node("MatMul", ["linear", "second"], ["linear_1"], "two"),
    ]
    constants = {"first": first, "bias": bias, "second": second}
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("rows", "linear_1", "linear")
    ]
    initializers = [numpy_helper.from_array(content, name) for name, content in constants.items()]
    graph = helper.make_graph(nodes, "products", values[:1], values[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    content = narrowed_by_row(model).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def rounded(matrix: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
        steps = np.maximum(np.abs(matrix).max(axis, keepdims=True).astype(np.float64) / 127, 1e-300)
        return np.round(matrix / steps), steps

    second_outputs, outputs = session.run(None, {"rows": rows})
    for row in range(len(rows)):
        alone = session.run(None, {"rows": rows[row : row + 1]})
        np.testing.assert_array_equal(alone[0][0], second_outputs[row])
        np.testing.assert_array_equal(alone[1][0], outputs[row])
    np.testing.assert_array_equal(outputs[3], bias)
    whole, steps = rounded(rows, 1)
    whole_weights, weight_steps = rounded(first.T, 0)
    expected = (whole @ whole_weights) * steps * weight_steps
    np.testing.assert_allclose(outputs - bias, expected, rtol=2e-3, atol=1e-5 * max(1.0, np.abs(expected).max()))
    exact = rows.astype(np.float64) @ first.T
    assert np.abs(outputs - bias - exact)[[0, 1, 5]].mean() < 0.02 * np.abs(exact)[[0, 1, 5]].mean()
