"""Graphs that are exported for any search with a program, against eager inference. No engine knows the toy family."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from miniatures import inat, lively, lvm, nat, searched, transformer, translate
from outside import working_in
from refusals import fields_of
from sessions import request, translated

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.search import graph_key
from workflow_src.engines.choose import int8_is_safe
from workflow_src.engines.graph_folder import code_digest, delete_old
from workflow_src.errors import ConfigError
from workflow_src.spec import MODEL
from workflow_src.types import EOS

onnx = pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
pytest.importorskip("onnxscript", reason="needs the extra fast")

DECLARATIONS = """
from pathlib import Path

from pydantic import Field

from workflow_src.nn.settings import StackConfig
from workflow_src.spec import Family, Frozen, Plugin, Search, SearchSettings


class Model(StackConfig):
    encoder_layers: int = Field(1, gt=0)
    upsample: int = 2


class Settings(SearchSettings):
    blank: int = Field(3, ge=0, description="the symbol for no word")


FAMILY = Family(
    name="upsampler", title="Upsampling decoder", model=Model, objective=Frozen,
    presets=Path(__file__).with_name("presets.yaml"),
    build="upsampled.code:Upsampler", loss="upsampled.code:Upsampler", validation="upsampled.code:collapse",
    searches=("collapse",), traits=frozenset({"upsampling"}),
)
SEARCH = Search(
    name="collapse", title="collapse", settings=Settings, module="upsampled.code:Collapse", program=True,
)
PLUGIN = Plugin("upsampled", "1", families=(FAMILY,), searches=(SEARCH,))
"""
CODE = '''
import torch

from workflow_src.decoding.ctc import collapse
from workflow_src.decoding.search import SearchModule
from workflow_src.nn.layers import Stack, attention_bias, initialise
from workflow_src.nn.models import EncoderDecoder
from workflow_src.types import PAD, Hypotheses


class Upsampler(EncoderDecoder):
    """Every source state `upsample` times, a non-causal decoder over them, and the embedding as output projection."""

    def __init__(self, config, source_size, target_size, joint):
        super().__init__(config, source_size, target_size, joint)
        self.decoder = Stack(config, config.encoder_layers, cross=True)
        initialise(self)

    def forward(self, source):
        """Logits (B, T, V) and the mask (B, T) of real positions, T = upsample * S."""
        memory, more = self.encode(source), self.config.upsample
        inputs = memory.states[:, :, None].expand(-1, -1, more, -1).flatten(1, 2)
        mask = memory.mask[:, :, None].expand(-1, -1, more).flatten(1, 2)
        inputs = inputs + self.target_embedding.positions[: inputs.size(1)]
        return self.logits(self.decoder(inputs, attention_bias(mask), memory)), mask


class Collapse(SearchModule):
    outputs = ("symbols", "scores")
    steps = 0

    def forward(self, source, lengths=None, watch=None):
        logits, mask = self.model(source)
        best, symbols = logits.log_softmax(-1).max(-1)
        return torch.where(mask, symbols, PAD), (best * mask).sum(1) / mask.sum(1)

    def hypotheses(self, source, outputs):
        symbols, scores = outputs
        lengths = (source != PAD).sum(1) * self.model.config.upsample
        rows = [row[:count] for row, count in zip(symbols.tolist(), lengths.tolist())]
        tokens = [collapse(row, self.settings.blank) for row in rows]
        return Hypotheses(tokens, scores.tolist(), [0] * len(rows))
'''


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """The toy family, declared by a package outside of the tree."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "upsampled").mkdir()
    for name, text in (("__init__.py", DECLARATIONS), ("code.py", CODE), ("presets.yaml", "tiny: {dim: 32}\n")):
        (folder / "upsampled" / name).write_text(text)
    with working_in(folder):
        registry.use(["upsampled"])
        yield registry.families()["upsampler"]


@pytest.fixture(scope="module")
def model(family):
    torch.manual_seed(0)
    config = family.model(dim=32, feed_forward=48, heads=4, dropout=0.1, max_positions=64)
    return lively(registry.import_object(family.build)(config, 40, 40, True)).float()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def settings():
    return registry.searches()["collapse"].settings(blank=5)


def graphs(models, folder, **options):
    from workflow_src.engines.exported import ExportedGraphs

    return ExportedGraphs(models, 1, folder=folder, **options)


def sentences(number: int = 30, size: int = 40) -> list[list[int]]:
    draw = np.random.default_rng(0)
    return [draw.integers(3, size, draw.integers(1, 15)).tolist() for _ in range(number)]


@torch.no_grad()
def eager(model, sources, settings):
    return searched({MODEL: model}, pad(sources, eos=True), settings)


@pytest.fixture(scope="module")
def engine(model, folder, settings):
    """An engine that has exported the graphs of batches and of single sentences, with scores."""
    engine = graphs({"upsampler": model}, folder)
    assert not engine.ready(request(engine, settings, True), True)
    translated(engine, [[7, 8]], settings, True)
    translated(engine, [[7, 8], [9]], settings, True)
    assert engine.ready(request(engine, settings, True), True) and not engine.ready(
        request(engine, settings, False), True
    )
    return engine


@pytest.mark.graphs
def test_a_family_that_no_engine_knows_translates_as_eager_inference_does(engine, model, settings):
    sources = sentences()
    expected = eager(model, sources, settings)
    batched = translated(engine, sources, settings, True)
    singles = [translated(engine, [source], settings, True) for source in sources]
    assert batched.tokens == [single.tokens[0] for single in singles] == expected.tokens
    assert batched.scores == pytest.approx(expected.scores, abs=1e-5)
    assert [single.scores[0] for single in singles] == pytest.approx(expected.scores, abs=1e-5)
    # Some outputs were collapsed, but not all.
    lengths = [2 * len(source) + 2 for source in sources]
    assert 0 < sum(map(len, expected.tokens)) < sum(lengths)


@pytest.mark.graphs
def test_graphs_are_exported_once_for_all_processes(engine, model, folder, settings, monkeypatch):
    from workflow_src.engines import onnx_export

    def never(*_):
        raise AssertionError("exported again")

    monkeypatch.setattr(onnx_export, "export", never)
    second_engine = graphs({"upsampler": model}, folder)
    assert second_engine.ready(request(second_engine, settings, True), True)
    assert (
        translated(second_engine, [[7, 8, 9]], settings, True).tokens
        == translated(engine, [[7, 8, 9]], settings, True).tokens
    )


@pytest.mark.graphs
@pytest.mark.parametrize("change", ["weights", "settings", "int8"])
@pytest.mark.usefixtures("engine")
def test_other_weights_settings_and_precision_have_graphs_of_their_own(model, folder, settings, change):
    import copy

    changed = copy.deepcopy(model)
    if change == "weights":
        with torch.no_grad():
            changed.output_bias[9] += 1
    elif change == "settings":
        settings = settings.model_copy(update={"blank": 6})
    engine = graphs({"upsampler": changed}, folder, int8=change == "int8")
    assert not engine.ready(request(engine, settings, True), True)


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("families/lvm/model.py", True),
        ("engines/onnx_narrow.py", True),
        ("serving/command.py", False),
    ],
)
def test_graphs_depend_on_code_that_computes(name, matters, tmp_path):
    copies = [shutil.copytree(registry.PACKAGE, tmp_path / copy) for copy in ("a", "b")]
    assert code_digest(copies[0]) == code_digest(registry.PACKAGE)
    with open(copies[1] / name, "a") as file:
        file.write("# Another line.\n")
    assert (code_digest(copies[1]) != code_digest(copies[0])) == matters


def test_graphs_that_were_not_used_for_longest_are_deleted(tmp_path):
    for age, name in enumerate(["new", "used", "old", "older"]):
        (tmp_path / f"{name}.onnx").write_bytes(b"x" * 10)
        os.utime(tmp_path / f"{name}.onnx", (1000 - age, 1000 - age))
    (tmp_path / "note.txt").write_bytes(b"x" * 100)
    delete_old(tmp_path, 20)
    assert {path.name for path in tmp_path.iterdir()} == {"new.onnx", "used.onnx", "note.txt"}
    delete_old(tmp_path, 1)
    assert {path.name for path in tmp_path.iterdir()} == {"new.onnx", "note.txt"}


@pytest.mark.graphs
def test_a_damaged_graph_is_exported_again(engine, model, folder, settings, monkeypatch, caplog):
    from workflow_src.engines import onnx_export

    path = engine._path(graph_key(settings, True, True))
    content = path.read_bytes()
    monkeypatch.setattr(onnx_export, "export", lambda *_words: content)
    path.write_bytes(content[: len(content) // 2])
    with caplog.at_level(logging.WARNING):
        hypotheses = translated(graphs({"upsampler": model}, folder), [[7, 8, 9]], settings, True)
    assert hypotheses.tokens == translated(engine, [[7, 8, 9]], settings, True).tokens
    assert "exporting it again" in caplog.text and path.read_bytes() == content


@pytest.mark.graphs
def test_8_bit_products_change_few_words_and_batches_none(model, folder, settings):
    engine, sources = graphs({"upsampler": model}, folder, int8=True), sentences(20)
    hypotheses = translated(engine, sources, settings, False)
    assert hypotheses.tokens == [translated(engine, [source], settings, False).tokens[0] for source in sources]
    expected = eager(model, sources, settings).tokens
    equal_share = np.mean([a == b for a, b in zip(hypotheses.tokens, expected, strict=True)])
    # Without VNNI instructions, 8-bit products may overflow.
    assert equal_share < 1 and (equal_share > 0.1 or not int8_is_safe())
    content = onnx.load_from_string(engine._path(graph_key(settings, False, True)).read_bytes())
    kinds = [node.op_type for node in content.graph.node]
    # Every product of the toy is large: queries, keys and values, attention's output, feed-forward layers, words.
    assert kinds.count("MatMulInteger") == 3 + 6 + 1 and "MatMul" not in kinds
    # Self-attention without a mask is one operator with its product.
    assert kinds.count("QAttention") == 2 and kinds.count("MultiHeadAttention") == 1


@pytest.mark.graphs
def test_self_attention_in_one_operator_gives_what_its_parts_give(engine, settings, monkeypatch):
    import onnxruntime

    from workflow_src.engines import onnx_narrow

    content = engine._path(graph_key(settings, True, True)).read_bytes()
    joined = onnx_narrow.narrowed(onnx.load_from_string(content)).SerializeToString()
    monkeypatch.setattr(onnx_narrow, "narrow_attention", lambda _graph: None)
    separate = onnx_narrow.narrowed(onnx.load_from_string(content)).SerializeToString()
    assert b"QAttention" in joined and b"QAttention" not in separate
    sessions = [onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"]) for graph in (joined, separate)]
    for source in sentences(20):
        ids = np.array([[*source, EOS]])
        for actual, expected in zip(*(session.run(None, {"source": ids}) for session in sessions), strict=True):
            np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.graphs
def test_a_sentence_beyond_the_models_positions_is_refused_in_words(engine, settings):
    with pytest.raises(ConfigError) as refused:
        translated(engine, [[7] * 40], settings, True)
    fields = {"setting": "engine", "mentions": ("search collapse", "41 subwords")}
    assert fields_of(refused.value, fields) == fields


@pytest.mark.graphs
def test_outputs_end_at_the_models_positions_and_special_symbols_are_no_words(tmp_path):
    model = lvm(max_positions=30, layers=1, encoder_layers=1).float()
    with torch.no_grad():
        model.length.outer.bias[-1] += 100
        model.output_bias[:3] += 100
    engine, sources = graphs({"lvm": model}, tmp_path), [*sentences(8, 13), [5] * 29]
    settings = registry.searches()["prior-mean"].settings(lengthening=1e30)
    expected = translate(model, pad(sources, eos=True), "prior-mean", lengthening=1e30)
    hypotheses = translated(engine, sources, settings, False)
    assert hypotheses.tokens == expected.tokens and {len(row) for row in hypotheses.tokens} == {30}
    assert [translated(engine, [source], settings, False).tokens[0] for source in sources] == expected.tokens
    assert min(min(row) for row in hypotheses.tokens) > 2


@pytest.fixture(scope="module")
def one_pass():
    """A one-pass model, a rescorer, and settings of a beam that it ranks."""
    network = nat(target_size=13, source_size=13, seed=4, encoder_layers=1, layers=1)
    pair = network.float(), transformer(13, 13, seed=2, encoder_layers=1, decoder_layers=1).float()
    return *pair, registry.searches()["ctc-beam"].settings(beam=4, min_ratio=0.05, word_bonus=0.3, rescorer="teacher")


@pytest.fixture(scope="module")
def ranking_graphs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ranking")


def ranked(engine, one_pass, sources):
    model, rescorer, settings = one_pass
    return translated(engine, sources, settings, True, {MODEL: model, "rescorer": rescorer})


@pytest.mark.graphs
def test_candidates_are_ranked_by_a_graph_of_the_rescorer(one_pass, ranking_graphs, monkeypatch):
    model, rescorer, settings = one_pass
    networks, sources = {MODEL: model, "rescorer": rescorer}, sentences(12, 13)
    with torch.no_grad():
        expected = searched(networks, pad(sources, eos=True), settings)
    engine = graphs({"nat": model}, ranking_graphs)
    assert not engine.ready(request(engine, settings, True, networks), True)
    ranked(engine, one_pass, [[7, 8]])
    assert engine.ready(request(engine, settings, True, networks), True)
    ranked(engine, one_pass, [[7, 8], [9]])
    # Nothing of the rescorer is computed eagerly.
    monkeypatch.setattr(type(rescorer), "log_probabilities", None)
    batched = ranked(engine, one_pass, sources)
    singles = [ranked(engine, one_pass, [source]) for source in sources]
    assert batched.tokens == [single.tokens[0] for single in singles] == expected.tokens
    assert batched.scores == pytest.approx(expected.scores, abs=1e-5)
    assert [single.scores[0] for single in singles] == pytest.approx(expected.scores, abs=1e-5)
    assert batched.candidates == expected.candidates and max(expected.candidates) > 1


@pytest.mark.graphs
def test_another_rescorer_has_a_graph_of_its_own(one_pass, ranking_graphs):
    model, _, settings = one_pass
    engine = graphs({"nat": model}, ranking_graphs)
    other_rescorer = transformer(13, 13, seed=3, encoder_layers=1, decoder_layers=1).float()
    first = ranked(engine, one_pass, [[7, 8, 9]])
    earlier_graphs = set(ranking_graphs.glob("*.onnx"))
    second = ranked(engine, (model, other_rescorer, settings), [[7, 8, 9]])
    assert first.scores != second.scores
    assert ranked(engine, one_pass, [[7, 8, 9]]) == first
    assert len(set(ranking_graphs.glob("*.onnx")) - earlier_graphs) == 1


@pytest.mark.graphs
def test_candidates_are_ranked_by_their_scores_whoever_ranked_them_before(one_pass, ranking_graphs):
    # The graph for a rescorer computes no scores where nobody asks for any.
    model = inat(13, 13, seed=4, encoder_layers=1, layers=1).float()
    search = registry.searches()["iterative-refinement"]
    without_rescorer, ranked_by = (
        search.settings(passes=1, lengths=3, **fields) for fields in ({}, {"rescorer": "teacher"})
    )
    networks, sources = {MODEL: model}, sentences(8, 13)
    rescored = networks | {"rescorer": one_pass[1]}
    translated(graphs({"inat": model}, ranking_graphs), sources[:1], ranked_by, False, rescored)
    with torch.no_grad():
        expected = searched(networks, pad(sources, eos=True), without_rescorer, False)
    engine = graphs({"inat": model}, ranking_graphs)
    actual = [translated(engine, [source], without_rescorer, False, networks) for source in sources]
    assert [single.tokens[0] for single in actual] == expected.tokens
    assert [single.scores[0] for single in actual] == pytest.approx(expected.scores, abs=1e-5)


@pytest.mark.parametrize("name", ["argmax", "iterative-refinement", "npd"])
def test_a_graph_without_scores_is_not_taken_for_one_that_ranks(name):
    search = registry.searches()[name]
    graph = lambda **fields: search.graph(search.settings(**fields))  # noqa: E731
    assert graph(rescorer="one") == graph(rescorer="another") != graph()


@pytest.mark.graphs
def test_ranking_in_8_bits_changes_no_translation_by_its_batch(one_pass, tmp_path):
    engine, sources = graphs({"nat": one_pass[0]}, tmp_path, int8=True), sentences(6, 13)
    batched = ranked(engine, one_pass, sources)
    singles = [ranked(engine, one_pass, [source]) for source in sources]
    assert batched.tokens == [single.tokens[0] for single in singles]
    assert batched.scores == [single.scores[0] for single in singles]


def failing(failure):
    def fail(*_):
        raise failure

    return fail


@pytest.mark.parametrize(
    ("export", "kind"),
    [
        (failing(RuntimeError("torch.export\nfailed")), "RuntimeError"),
        (failing(TypeError("no rule")), "TypeError"),
        # What the library cannot read.
        (lambda *_: b"nonsense", "InvalidProtobuf"),
    ],
)
def test_an_export_that_fails_is_one_sentence(model, settings, tmp_path, monkeypatch, export, kind):
    from workflow_src.engines import onnx_export

    monkeypatch.setattr(onnx_export, "export", export)
    engine = graphs({"upsampler": model}, tmp_path)
    with pytest.raises(ConfigError) as refused:
        translated(engine, [[7, 8]], settings, True)
    fields = {"setting": "engine", "mentions": ("search collapse", kind), "hint": "use engine eager"}
    assert fields_of(refused.value, fields) == fields and "\n" not in str(refused.value)
    with pytest.raises(ConfigError):
        engine.prepare(request(engine, settings, True), True)
    assert list(tmp_path.iterdir()) == []


# Rewrites


def graph_of(nodes, constants, inputs, outputs):
    from onnx import TensorProto, helper, numpy_helper

    described = lambda names: [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]  # noqa: E731
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "test", described(inputs), described(outputs), tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def computed(model, x):
    import onnxruntime

    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})


def test_products_are_joined_and_turned_without_changing_what_they_give():
    from onnx import helper

    from workflow_src.engines import onnx_export

    draw = np.random.default_rng(0)
    constants = {f"w{i}": draw.normal(size=(4, 3 + i)).astype(np.float32) for i in range(2)}
    constants |= {f"b{i}": draw.normal(size=3 + i).astype(np.float32) for i in range(2)}
    constants["turned"] = draw.normal(size=(3, 3)).astype(np.float32)
    node = helper.make_node
    nodes = [node("Transpose", ["turned"], ["t"], perm=[1, 0])]
    for i in range(2):
        nodes += [node("MatMul", ["x", f"w{i}"], [f"p{i}"]), node("Add", [f"p{i}", f"b{i}"], [f"s{i}"])]
    nodes += [node("MatMul", ["s0", "t"], ["y0"]), node("Relu", ["s1"], ["y1"]), node("Sigmoid", ["s0"], ["y2"])]
    model, x = graph_of(nodes, constants, ["x"], ["y0", "y1", "y2"]), draw.normal(size=(2, 5, 4)).astype(np.float32)
    expected_outputs = computed(model, x)
    onnx_export.turn_constants(model.graph)
    onnx_export.join_products(model.graph)
    kinds = [node.op_type for node in model.graph.node]
    assert sorted(kinds) == ["Add", "MatMul", "MatMul", "Relu", "Sigmoid", "Split"]
    for actual, expected in zip(computed(model, x), expected_outputs, strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_a_matrix_that_two_products_share_is_turned_once():
    """Like a length head in every refinement step: its weights are in the graph once."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    from workflow_src.engines.onnx_narrow import narrowed

    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(7, 3)).astype(np.float32), random.normal(size=7).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", [name, "weight", *bias_names], [f"out_{name}"], f"gemm_{name}", transB=1)
        for name, bias_names in (("a", ["bias"]), ("b", []))
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("a", "b")]
    outs = [helper.make_tensor_value_info(f"out_{name}", TensorProto.FLOAT, [1, 7]) for name in ("a", "b")]
    content = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")]
    graph = helper.make_graph(nodes, "two", info, outs, content)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    a, b = random.normal(size=(2, 1, 3)).astype(np.float32)
    content = narrowed(model).SerializeToString()
    actual = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"a": a, "b": b})
    # Products of pooled states stay in float32.
    assert actual[0] == pytest.approx(a @ weight.T + bias, abs=1e-6)
    assert actual[1] == pytest.approx(b @ weight.T, abs=1e-6)


def packed(outputs=("y",), axis=-1, sizes=(4, 4, 4), mask=(), zero=False, **attributes):
    """A graph of a product in 8 bits for queries, keys and values, and their attention."""
    from onnx import helper

    draw, node = np.random.default_rng(0), helper.make_node
    constants = {
        "w": draw.integers(-127, 128, (4, 12)).astype(np.int8),
        "s": draw.random(12).astype(np.float32) / 100,
        "b": draw.normal(size=12).astype(np.float32),
        "sizes": np.array(sizes),
        "zero": np.zeros(12, np.int8),
        "mask": np.ones((1, 5), np.int32),
    }
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["n", "xs", "xz"]),
        node("MatMulInteger", ["n", "w", "xz", *(["zero"] if zero else [])], ["i"]),
        node("Cast", ["i"], ["f"], to=1),
        node("Mul", ["xs", "s"], ["scale"]),
        node("Mul", ["f", "scale"], ["p"]),
        node("Add", ["p", "b"], ["sum"]),
        node("Split", ["sum", "sizes"], ["q", "k", "v"], axis=axis),
        node(
            "MultiHeadAttention",
            ["q", "k", "v", *mask],
            ["y"],
            "attention",
            domain="com.microsoft",
            num_heads=2,
            **attributes,
        ),
    ]
    model = graph_of(nodes, constants, ["x"], outputs)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def test_an_attention_that_is_joined_with_its_product_puts_out_the_same():
    from workflow_src.engines.onnx_narrow import narrow_attention

    model, x = packed(), np.random.default_rng(1).normal(size=(1, 5, 4)).astype(np.float32)
    (expected,) = computed(model, x)
    narrow_attention(model.graph)
    assert [node.op_type for node in model.graph.node] == ["DynamicQuantizeLinear", "QAttention"]
    np.testing.assert_allclose(computed(model, x)[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": ("", "mask")},
        {"outputs": ("y", "k")},
        {"outputs": ("y", "p")},
        {"zero": True},
        {"sizes": (4, 2, 6)},
        {"axis": 1},
        {"scale": 0.5},
        {"unidirectional": 1},
    ],
)
def test_what_one_operator_would_compute_otherwise_stays_in_parts(changes):
    """Masks, values that are read elsewhere, weights that are not symmetric, other widths, other settings."""
    from workflow_src.engines.onnx_narrow import narrow_attention

    model = packed(**changes)
    operators = [node.op_type for node in model.graph.node]
    narrow_attention(model.graph)
    assert [node.op_type for node in model.graph.node] == operators
