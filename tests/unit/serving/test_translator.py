"""Translating with an exported folder, in Python and as a command: translations and errors."""

import json
import os
import pickle
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import fields_of
from stage_server import STAGE_SERVER, python_module

from workflow_src import cli
from workflow_src.config.preparation import SubwordsConfig
from workflow_src.data import subwords
from workflow_src.data.placeholders import SYMBOLS
from workflow_src.engines import exported
from workflow_src.engines.eager import EagerSession
from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.records.atomic import load_tensors, save_tensors, sha256
from workflow_src.searches.verified import VerifiedSettings
from workflow_src.serving import command
from workflow_src.serving.text import TextProcessor
from workflow_src.serving.translator import Translator
from workflow_src.types import Hypotheses

PROJECT = Path(__file__).resolve().parents[3]
SEARCHES = [
    ("transformer", {"search": "greedy"}),
    ("transformer", {"search": "beam", "beam": 3}),
    ("lvm", {"search": "prior-mean"}),
    ("lvm", {"search": "delta", "steps": 2}),
    ("score", {"search": "score", "steps": 2}),
    ("energy", {"search": "energy", "steps": 2}),
    ("score", {"search": "score", "steps": 4, "stop_threshold": 0.5}),
    ("score", {"search": "latent-search", "steps": 1, "lengths": 3, "samples": 2}),
    ("score", {"search": "score", "steps": 2, "lengthening": 0.4, "length_quantile": 0.6}),
]
LINES = ["der Hund ruht heute", "", "kein Vogel kommt dort noch heute", "  ", "Baum", "ein Mann bleibt noch"] * 3


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """The folder of graphs for the tests of this file, because exports take time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTINUUM_CACHE", str(tmp_path_factory.mktemp("graphs")))
        yield


@pytest.fixture(scope="module")
def fast_score(tiny_bundles, graphs):
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="needs the extra fast")
    return Translator.load(tiny_bundles["score"], device="cpu", threads=1, engine="fast")


@pytest.fixture(scope="module")
def translators(tiny_bundles):
    """Our own models, computed as they are written; engines are compared with them."""
    load = lambda folder: Translator.load(folder, device="cpu", threads=1, engine="eager")  # noqa: E731
    return {family: load(folder) for family, folder in tiny_bundles.items()}


@pytest.fixture
def bundle(tiny_bundles, tmp_path):
    """A copy of the latent-variable model's bundle, to be spoilt."""
    return shutil.copytree(tiny_bundles["score"], tmp_path / "bundle")


@pytest.mark.parametrize(("family", "settings"), SEARCHES, ids=str)
def test_a_translation_is_what_the_decode_stage_writes(
    translators, tiny_bundles, tiny, run_stage, tmp_path, family, settings
):
    words = ["--settings", json.dumps(settings), "--bundle", str(tiny_bundles[family]), "--device", "cpu"]
    words += ["--source", str(tiny.corpus / "dev.de"), "--output", str(tmp_path / "dev.txt")]
    run_stage("decode", words)
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    translator, decoded = translators[family], (tmp_path / "dev.txt").read_text().splitlines()
    assert translator.translate(lines, remove_repetitions="none", **settings) == decoded
    details = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    joined = [line["without_repeated_subwords"] for line in details]
    assert translator.translate(lines, remove_repetitions="subwords", **settings) == joined != decoded
    # Non-autoregressive outputs are those that tables score.
    assert translator.translate(lines, **settings) == (decoded if family == "transformer" else joined)


def test_repetitions_are_removed_as_asked(translators, tiny):
    tokens = tiny.subwords.encode_target(["the the dog", "the dog rests"])
    tokens[1] = [token for token in tokens[1] for _ in range(2)]
    text = translators["lvm"].text
    assert text(tokens, "subwords")[1] == "the dog rests" != text(tokens)[1]
    assert text(tokens)[0] == text(tokens, "none")[0] == "the the dog" and text(tokens, "words")[0] == "the dog"
    with pytest.raises(InputError, match=r"^remove_repetitions is 'all'; allowed: none, subwords, words"):
        text(tokens, "all")


@pytest.mark.parametrize("name", ["split", "normalised", "placeholders", "return_scores", "return_origins"])
def test_what_is_on_or_off_takes_no_other_value(translators, name):
    with pytest.raises(InputError, match=f"^{name} is 'no'"):
        translators["lvm"].translate(LINES, **{name: "no"})


@pytest.mark.parametrize(("family", "settings"), SEARCHES, ids=str)
def test_batches_change_no_text_and_empty_lines_stay_empty(translators, family, settings):
    translator = translators[family]
    batched = translator.translate(LINES, batch=64, **settings)
    assert batched == translator.translate(LINES, batch=1, **settings)
    assert batched == [text for line in LINES for text in translator.translate([line], **settings)]
    assert len(batched) == len(LINES) and batched[:6] == batched[6:12]
    assert [text == "" for text in batched[:4]][1::2] == [True, True] and batched[0]
    assert translator.translate([], **settings) == [] and translator.translate(["", " "], **settings) == ["", ""]


def test_white_space_and_invisible_characters_of_input_do_not_matter(translators):
    lines = ["der Hund ruht", "\ufeff der\tHund\u00a0 ruht\u200b \r"]
    first, second = translators["transformer"].translate(lines)
    assert first == second


def test_a_bundle_serves_its_own_default(translators):
    for family, settings in (
        ("transformer", {"search": "beam", "beam": 4}),
        ("lvm", {"search": "delta", "steps": 4}),
        ("score", {"search": "score", "steps": 4}),
        ("energy", {"search": "energy", "steps": 4}),
    ):
        translator = translators[family]
        assert translator.translate(LINES[:3]) == translator.translate(LINES[:3], **settings)
        assert (translator.device, translator.precision) == ("cpu", "float32")
    assert translators["transformer"].searches == ["beam", "greedy", "verified"]
    assert translators["lvm"].searches == ["delta", "prior-mean", "latent-search"]
    assert translators["energy"].searches == ["delta", "prior-mean", "latent-search", "energy"]
    shared = [translators[family].translate(LINES, search="delta", steps=1) for family in ("lvm", "score", "energy")]
    assert shared[0] == shared[1] == shared[2]


@pytest.mark.parametrize(("family", "search"), [("lvm", "delta"), ("score", "score"), ("energy", "energy")])
def test_a_trace_ends_in_the_translation_and_begins_with_the_prior_mean(translators, family, search):
    translator = translators[family]
    traces = translator.trace(LINES, translator.request(search, steps=3))
    assert len(traces) == len(LINES) and all(len(texts) == 4 for texts in traces)
    for step in range(4):
        # With no steps every search is the prior mean.
        request = translator.request(search, steps=step, remove_repetitions="none", split=False)
        assert [texts[step] for texts in traces] == translator.translate(LINES, request)
    prior_mean = translator.request("prior-mean", remove_repetitions="none", split=False)
    assert [texts[0] for texts in traces] == translator.translate(LINES, prior_mean)
    assert translator.trace(["", ""], translator.request(search, steps=2)) == [["", "", ""]] * 2
    assert translator.trace([], translator.request(search, steps=2)) == []


def test_latent_search_is_ranked_by_the_given_translator(translators, tiny_bundles, tiny, run_stage, tmp_path):
    """A decode, Python and the command give the same translations, which differ from those without the rescorer."""
    settings = {"search": "latent-search", "steps": 1, "lengths": 3, "samples": 3, "search_seed": 1}
    lines = (tiny.corpus / "dev.de").read_text().splitlines()
    teacher = translators["transformer"]
    expected = translators["score"].translate(lines, **settings, rescorer=teacher)
    assert expected != translators["score"].translate(lines, **settings)
    assert expected == translators["score"].translate(lines, **settings, rescorer=teacher, batch=3)
    words = ["--settings", json.dumps(settings | {"rescorer": "teacher", "refinement": "score", "step_size": 1.0})]
    words += ["--bundle", str(tiny_bundles["score"]), "--systems", f"rescorer={tiny_bundles['transformer']}"]
    words += ["--device", "cpu", "--source", str(tiny.corpus / "dev.de"), "--output", str(tmp_path / "dev.txt")]
    run_stage("decode", words)
    translations = translators["score"].translate(lines, **settings, rescorer=teacher, remove_repetitions="none")
    assert translations == (tmp_path / "dev.txt").read_text().splitlines()
    details = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    assert [entry["without_repeated_subwords"] for entry in details] == expected
    assert all(1 <= entry["candidates"] <= 9 for entry in details)
    output = tmp_path / "out.txt"
    words = ["--bundle", str(tiny_bundles["score"]), "--rescorer", str(tiny_bundles["transformer"]), "--threads", "1"]
    words += ["--search", "latent-search", "--steps", "1", "--lengths", "3", "--samples", "3", "--device", "cpu"]
    cli.main(["translate", *words, "--input", str(tiny.corpus / "dev.de"), "--output", str(output)])
    assert output.read_text().splitlines() == expected


def test_a_rescorer_that_cannot_rank_is_refused_by_name(translators, tiny_bundles):
    with pytest.raises(ConfigError) as refused:
        translators["score"].translate(["Hund"], search="latent-search", rescorer=translators["lvm"])
    assert (refused.value.setting, refused.value.value) == ("rescorer", "lvm")
    rescorer, others = translators["transformer"], SimpleNamespace(digest="another", placeholders=None)
    other_subwords = Translator(rescorer.description, rescorer.models, others, rescorer.runtime)
    with pytest.raises(ConfigError) as refused:
        translators["score"].translate(["Hund"], search="latent-search", rescorer=other_subwords)
    fields = {"setting": "rescorer", "mentions": ("subwords",)}
    assert fields_of(refused.value, fields) == fields
    for name in ("lengths", "samples"):
        with pytest.raises(ConfigError) as refused:
            translators["score"].translate(["Hund"], search="latent-search", **{name: 0})
        assert (refused.value.setting, refused.value.value) == (name, 0)


def test_a_trace_of_an_autoregressive_search_is_refused(translators):
    with pytest.raises(ConfigError) as refused:
        translators["transformer"].trace(LINES, translators["transformer"].request("beam", beam=2))
    assert (refused.value.setting, refused.value.value) == ("search", "beam")


def test_a_request_that_another_translator_made_is_refused(translators):
    """It has the networks of that one."""
    translator, request = translators["lvm"], translators["score"].request("prior-mean")
    for call in (translator.translate, translator.search):
        with pytest.raises(ConfigError) as refused:
            call(["Baum"], request)
        assert refused.value.setting == "request"


def test_outputs_are_one_line_each_whatever_the_model_wrote(translators, tiny):
    spelt = tiny.subwords.encode_target(["a\nb", "c\r", "\u2028", "a\u0085b"])
    assert translators["lvm"].text(spelt) == ["a b", "c", "", "a b"]


def test_normalised_lines_are_not_normalised_again(bundle):
    """Moses tokenisation of tokenised text is another text: decoding a corpus must not do it twice."""
    description = json.loads((bundle / "bundle.json").read_text())
    description["normalisation"]["moses_tokenise"] = True
    description["languages"] = {"source": "en", "target": "de"}
    (bundle / "bundle.json").write_text(json.dumps(description))
    translator = Translator.load(bundle, device="cpu")
    encoded_lines = []
    real = translator.subwords.encode_source
    translator.subwords.encode_source = lambda lines: encoded_lines.append(list(lines)) or real(lines)
    translator.translate(["Don't rest."])
    tokenised = encoded_lines[0][0]
    assert tokenised == "Don ￭'t rest ￭." and translator.source_text(tokenised) == "Don't rest."
    translator.translate([tokenised], normalised=True)
    translator.translate([tokenised])
    assert encoded_lines[1] == [tokenised] != encoded_lines[2]


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (
            {"search": "scor"},
            {
                "setting": "search",
                "allowed": ("delta", "latent-search", "prior-mean", "score"),
                "nearest": "score",
            },
        ),
        ({"search": "beam"}, {"setting": "search"}),
        ({"steps": -1}, {"setting": "steps", "value": -1}),
        ({"step": 2}, {"setting": "step", "nearest": "steps"}),
        ({"beam": 2}, {"setting": "beam"}),
    ],
    ids=str,
)
def test_settings_that_do_not_serve_are_named(translators, settings, fields):
    with pytest.raises(InputError) as caught:
        translators["score"].translate(LINES, **settings)
    assert fields_of(caught.value, fields) == fields


def test_none_in_words_is_none_where_a_setting_may_be_none(translators):
    """As the help of the command says of them."""
    translator = translators["score"]
    settings = {"search": "score", "steps": 1, "length_quantile": "none"}
    assert translator.request(**settings).settings == translator.request("score", steps=1).settings
    with pytest.raises(ConfigError) as refused:
        translator.request("score", steps="none")
    assert refused.value.setting == "steps"


@pytest.mark.parametrize("family", ["transformer", "energy"])
def test_a_sentence_longer_than_the_models_positions_is_refused_by_its_line_or_cut(translators, tiny, family, caplog):
    translator = translators[family]
    # "Hund" may be one subword or several; the model has 60 positions, one of them for the end symbol.
    line, longest = "Hund", None
    while len(tiny.subwords.encode_source([line])[0]) <= 59:
        line, longest = f"{line} Hund", line
    request = translator.request()
    assert translator.search([longest], request).tokens[0]
    count = len(tiny.subwords.encode_source([line])[0])
    with pytest.raises(InputError) as caught:
        translator.search(["der Hund", "", line], request)
    fields = {"subject": "line 3", "mentions": (f" {count} subwords", " at most 59; ")}
    assert fields_of(caught.value, fields) == fields
    translator.translate([longest], split=False)
    assert " 59 " not in caplog.text
    translator.translate([line], split=False)
    assert " 59 " in caplog.text


def rewrite(bundle, change):
    """Change bundle.json; the checksums of weights follow."""
    description = json.loads((bundle / "bundle.json").read_text())
    change(description)
    for network in description.get("models", {}).values():
        if (bundle / network["weights"]).exists():
            network["sha256"] = sha256(bundle / network["weights"])
    (bundle / "bundle.json").write_text(json.dumps(description))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def other_tensors(bundle, change):
    """Change the weights of a network; the checksum follows."""
    tensors = load_tensors(bundle / "lvm.safetensors")
    change(tensors)
    save_tensors(bundle / "lvm.safetensors", tensors)
    rewrite(bundle, lambda _description: None)


def shorten(tensors):
    tensors["length.outer.bias"] = tensors["length.outer.bias"][:-1]


def poison(tensors):
    tensors["output_bias"][3] = float("nan")


def pickled(bundle):
    (bundle / "score.safetensors").write_bytes(pickle.dumps({"head.weight": [1.0]}))
    rewrite(bundle, lambda _description: None)


def learn_others(bundle):
    """Subwords of another text."""
    text = bundle / "text"
    words = ["zebra quokka xylophone", "jazzy zebras vex", "quokkas fix xylophones", "vexed zebra jazz"]
    text.write_text("".join(f"{a} {b}\n" for a in words for b in words))
    shutil.rmtree(bundle / "subwords")
    subwords.learn(SubwordsConfig(vocabulary_size="auto", joint=True), text, text, bundle / "subwords")


def change_network(bundle, part, **entries):
    rewrite(bundle, lambda description: description["models"]["lvm"][part].update(entries))


# What spoils a bundle, and what of it the sentence names.
SPOILT = {
    "no bundle": (lambda b: (b / "bundle.json").unlink(), "bundle.json"),
    "other format": (lambda b: rewrite(b, lambda d: d.update(format=0)), "bundle.json"),
    "cut description": (lambda b: (b / "bundle.json").write_text('{"format": 1,'), "bundle.json"),
    "deep description": (lambda b: (b / "bundle.json").write_text("[" * 100_000), "bundle.json"),
    "no searches": (lambda b: rewrite(b, lambda d: d.pop("searches")), "searches"),
    "unknown search": (lambda b: rewrite(b, lambda d: d.update(searches=["foo"])), "foo"),
    "no search by default": (lambda b: rewrite(b, lambda d: d.update(defaults={})), "defaults.search"),
    "engine for bundles": (lambda b: rewrite(b, lambda d: d.update(engine="onnxruntime")), "onnxruntime"),
    "no provenance": (lambda b: rewrite(b, lambda d: d.pop("provenance")), "provenance"),
    "no weights": (lambda b: (b / "lvm.safetensors").unlink(), "lvm.safetensors"),
    "flipped bit": (lambda b: flip(b / "score.safetensors"), "score.safetensors"),
    "pickle": (pickled, "score.safetensors"),
    "other shape": (lambda b: other_tensors(b, shorten), "length.outer.bias"),
    "not finite": (lambda b: other_tensors(b, poison), "output_bias"),
    "fewer layers": (lambda b: change_network(b, "model", layers=2), "prior_stack.layers.1"),
    "unknown setting": (lambda b: change_network(b, "model", head=2), "head"),
    "huge network": (lambda b: change_network(b, "model", layers=10**12), "models.lvm.model"),
    "huge positions": (
        lambda b: rewrite(b, lambda d: d["models"]["score"]["model"].update(max_positions=10**12)),
        "models.score",
    ),
    "other sizes": (lambda b: change_network(b, "sizes", joint=False), "models.lvm.sizes"),
    "weights outside": (
        lambda b: rewrite(b, lambda d: d["models"]["lvm"].update(weights="../lvm.safetensors")),
        "models.lvm.weights",
    ),
    "two of one role": (lambda b: rewrite(b, lambda d: d["models"]["lvm"].update(role="model")), "models"),
    "other subwords": (learn_others, "subwords.json"),
    "no subwords": (lambda b: shutil.rmtree(b / "subwords"), "subwords.json"),
    "damaged subwords": (lambda b: flip(b / "subwords/joint.model"), "joint.model"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_bundle_that_is_not_whole_is_refused_in_one_sentence(bundle, how):
    spoil, name = SPOILT[how]
    spoil(bundle)
    with pytest.raises(InputError) as caught:
        Translator.load(bundle, device="cpu")
    assert str(bundle) in str(caught.value) and name in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_that_is_none_and_a_device_that_is_not_there(tiny_bundles, tmp_path):
    with pytest.raises(ArtifactError) as refused:
        Translator.load(tmp_path / "none")
    fields = {"path": str(tmp_path / "none"), "mentions": ("bundle.json",)}
    assert fields_of(refused.value, fields) == fields
    with pytest.raises(ConfigError, match=r"^device is 'cuda:7'"):
        Translator.load(tiny_bundles["lvm"], device="cuda:7")
    with pytest.raises(InputError, match=r"^precision is 'half'"):
        Translator.load(tiny_bundles["lvm"], device="cpu", precision="half")


def test_a_bundle_can_be_moved(tiny_bundles, translators, tmp_path):
    moved = shutil.move(shutil.copytree(tiny_bundles["energy"], tmp_path / "a"), tmp_path / "b c")
    assert Translator.load(moved, device="cpu").translate(LINES) == translators["energy"].translate(LINES)


@pytest.mark.graphs
def test_a_fast_engine_translates_alike(translators, fast_score):
    eager, settings = translators["score"], {"search": "score", "steps": 2}
    assert fast_score.engine == "fast"
    hypotheses, expected = (
        each.search(LINES, each.request(**settings, return_scores=True)) for each in (fast_score, eager)
    )
    assert hypotheses.tokens == expected.tokens and hypotheses.scores == pytest.approx(expected.scores, abs=1e-5)
    assert hypotheses.steps == expected.steps
    # Traces are eager with every engine.
    traces, expected_traces = (each.trace(LINES[:3], each.request(**settings)) for each in (fast_score, eager))
    assert traces == expected_traces
    # Nor does any engine compute a search whose steps depend on values.
    stopping = {"search": "score", "steps": 4, "stop_threshold": 0.5}
    assert fast_score.translate(LINES, **stopping) == eager.translate(LINES, **stopping)


@pytest.mark.graphs
@pytest.mark.usefixtures("graphs")
def test_8_bits_translate_nearly_alike_and_batches_change_nothing(translators, tiny_bundles):
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="needs the extra fast")
    translator = Translator.load(tiny_bundles["lvm"], device="cpu", threads=1, engine="fast-int8")
    assert translator.engine == "fast-int8"
    settings = {"search": "delta", "steps": 1}
    translations = translator.translate(LINES, batch=64, **settings)
    assert translations == translator.translate(LINES, batch=1, **settings)
    expected = translators["lvm"].translate(LINES, **settings)
    words = [
        pair for x, y in zip(translations, expected, strict=True) for pair in zip(x.split(), y.split(), strict=False)
    ]
    assert sum(a == b for a, b in words) > 0.5 * len(words)
    assert [not line for line in translations] == [not line for line in expected]


@pytest.mark.parametrize(("family", "settings"), SEARCHES[1:4], ids=str)
def test_bfloat16_translates_most_words_alike(translators, tiny_bundles, family, settings):
    translator = Translator.load(tiny_bundles[family], device="cpu", precision="bfloat16", threads=1)
    assert (translator.precision, translator.engine) == ("bfloat16", "eager")
    hypotheses, expected = (
        each.search(LINES, each.request(**settings, return_scores=True)) for each in (translator, translators[family])
    )
    assert hypotheses.scores == pytest.approx(expected.scores, abs=0.5)
    equal_words = [
        a == b for x, y in zip(hypotheses.tokens, expected.tokens, strict=True) for a, b in zip(x, y, strict=False)
    ]
    assert sum(equal_words) > 0.5 * len(equal_words)


def test_engines_are_chosen_at_loading(tiny_bundles, translators):
    """An engine may compute some searches of a system and not others."""
    assert translators["transformer"].engine == "eager"
    pytest.importorskip("onnxruntime", reason="needs the extra fast")
    teacher = Translator.load(tiny_bundles["transformer"], device="cpu", engine="fast")
    assert teacher.engine == "fast" and teacher.why_eager(VerifiedSettings(drafter="ctc")) is None
    assert "greedy is computed eagerly" in teacher.why_eager(teacher.request("greedy").settings)


def watch(engine, sizes: list[int]) -> None:
    """Record the batch sizes of an engine's calls."""
    search = engine.search
    engine.search = lambda rows, *words: sizes.append(len(rows)) or search(rows, *words)


@pytest.mark.graphs
@pytest.mark.usefixtures("graphs")
def test_who_names_an_engine_waits_for_its_graph_and_auto_does_not(tiny_bundles, translators, fast_score):
    settings, sizes = {"search": "score", "steps": 2}, []
    expected = translators["score"].translate(LINES, **settings)
    watch(fast_score._selected.session, sizes)
    assert fast_score.translate(LINES, **settings) == expected and max(sizes) > 1
    automatic = Translator.load(tiny_bundles["score"], device="cpu", threads=1)
    assert automatic.engine == "fast"
    sizes.clear()
    watch(automatic._selected.session, sizes)
    # The graph of batches now exists, that of single sentences does not.
    assert automatic.translate(LINES, batch=1, **settings) == expected and sizes == []
    assert automatic.translate(LINES, **settings) == expected and max(sizes) > 1


class Graphs(EagerSession):
    """An engine that computes with our own code and counts exports."""

    def __init__(self, gains: bool = True, can_export: bool = True):
        super().__init__("cpu")
        self.gains_in_batches, self.can_export = gains, can_export
        self.exported = set()
        self.tries = []
        self.sizes = []
        self.exported_at_first = None

    def ready(self, _request, alone):
        return alone in self.exported

    def prepare(self, _request, alone):
        self.tries.append(alone)
        if not self.can_export:
            raise ConfigError("engine", problem="it cannot export")
        self.exported.add(alone)

    def gains(self, _request, alone):
        return alone or self.gains_in_batches

    def compute(self, sources, request):
        if not self.sizes:
            self.exported_at_first = set(self.exported)
        self.sizes.append(len(sources))
        return super().compute(sources, request)


@pytest.fixture
def counting(tiny_bundles, monkeypatch):
    """A function that opens a translator with engine auto, and gives it with its engine, which counts exports."""
    pytest.importorskip("onnxruntime", reason="needs the extra fast")

    def opened(engine="auto", **options):
        graphs = Graphs(**options)
        monkeypatch.setattr(exported, "open_networks", lambda _system: graphs)
        return Translator.load(tiny_bundles["score"], device="cpu", threads=1, engine=engine), graphs

    return opened


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("can_export", [True, False])
def test_auto_exports_a_graph_only_where_it_is_asked_to(batch, can_export, counting, translators):
    translator, graphs = counting(can_export=can_export)
    expected = translators["score"].translate(LINES)
    assert translator.translate(LINES, batch=batch) == expected and not graphs.tries and not graphs.sizes
    assert translator.prepare(translator.request(batch=batch)) == can_export and graphs.tries == [batch == 1]
    assert translator.translate(LINES, batch=batch) == expected
    assert bool(graphs.sizes) == can_export and all((size == 1) == (batch == 1) for size in graphs.sizes)
    assert not translators["score"].prepare()


@pytest.mark.parametrize(("batch", "can_export"), [(1, False), (3, True)])
def test_the_command_exports_a_graph_where_its_input_is_long(
    batch, can_export, counting, translators, monkeypatch, in_process, tmp_path
):
    translator, graphs = counting(can_export=can_export)
    monkeypatch.setattr(command.Translator, "load", lambda *_: translator)
    monkeypatch.setattr(command, "EXPORT_PAYS", 200)
    source, output = tmp_path / "in.de", tmp_path / "out.en"
    for lines, tries in ((LINES * 10, []), (LINES * 40, [batch == 1])):
        source.write_text("".join(f"{line}\n" for line in lines))
        in_process("--bundle", "none", "--batch", str(batch), "--input", source, "--output", output)
        assert output.read_text().split("\n")[:-1] == translators["score"].translate(lines)
        assert graphs.tries == tries and bool(graphs.sizes) == (bool(tries) and can_export)


@pytest.mark.parametrize(
    ("batch", "sentences", "exports"),
    [(1, 2, {True}), (2, 0, set()), (2, 1, {True}), (2, 2, {False}), (2, 3, {False, True})],
)
@pytest.mark.parametrize("can_export", [True, False])
def test_the_command_exports_the_graphs_that_its_input_needs_of_a_named_engine_before_the_first_batch(
    batch, sentences, exports, can_export, counting, monkeypatch, in_process, tmp_path
):
    """A last batch may be a sentence by itself."""
    (tmp_path / "in").write_text("der Hund\n\n" * sentences)
    translator, graphs = counting("fast", can_export=can_export)
    monkeypatch.setattr(command.Translator, "load", lambda *_: translator)
    words = ("--bundle", "none", "--batch", str(batch), "--engine", "fast", "--input")
    code, out, error = in_process(*words, tmp_path / "in")
    fails = bool(exports) and not can_export
    assert bool(code) == fails and ("cannot export" in error) == fails
    assert set(graphs.tries) <= exports and graphs.exported_at_first == (exports if out else None)
    assert out.count("\n") == (0 if fails else 2 * sentences)


def test_auto_takes_a_graph_that_is_there_and_leaves_batches_that_lose_to_our_own_code(counting, translators):
    expected = translators["score"].translate(LINES)
    for gains in (True, False):
        translator, graphs = counting(gains=gains)
        graphs.exported = {False}
        assert translator.translate(LINES, batch=2) == expected
        assert bool(graphs.sizes) == gains and 1 not in graphs.sizes


def run_command(bundle, text: bytes, *words, **environment):
    """`continuum translate` in a process of its own."""
    return subprocess.run(
        python_module("workflow_src.cli", "translate", "--bundle", str(bundle), "--device", "cpu", *words),
        input=text,
        capture_output=True,
        cwd=PROJECT,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


def test_the_command_translates_standard_input(tiny_bundles, translators):
    completed = run_command(tiny_bundles["lvm"], "".join(f"{line}\r\n" for line in LINES).encode(), "--steps", "1")
    assert completed.returncode == 0
    # Three of the lines are longer than all of the training text.
    longest = len(translators["lvm"].subwords.encode_source([LINES[2]])[0])
    assert completed.stderr.startswith(b"warning: line 3 has a sentence of %d subwords" % longest)
    assert completed.stderr.count(b"\n") == 1
    expected = translators["lvm"].translate(LINES, steps=1)
    assert completed.stdout.decode() == "".join(f"{line}\n" for line in expected)


@pytest.mark.parametrize("removal", ["none", "words", "subwords"])
def test_the_command_removes_repetitions_as_asked(removal, tiny_bundles, translators, in_process, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES))
    words = ("--bundle", tiny_bundles["lvm"], "--input", tmp_path / "in.txt", "--steps", 1, "--engine", "eager")
    code, out, _ = in_process(*words, "--remove-repetitions", removal)
    expected = translators["lvm"].translate(LINES, steps=1, remove_repetitions=removal)
    assert (code, out.splitlines()) == (0, expected)


def test_the_command_refuses_text_that_is_not_utf8(tiny_bundles):
    completed = run_command(tiny_bundles["lvm"], b"der Hund\nder B\xe4r\n")
    assert completed.returncode == 1 and completed.stdout == b""
    error = completed.stderr.decode()
    assert error.startswith("error: /dev/stdin, line 2, ") and error.count("\n") == 1
    assert "UTF-8" in error and " 15 " in error


@pytest.fixture
def in_process(capfdbinary):
    """The command in this process: exit code, output, errors."""

    def run(*words):
        code = 0
        try:
            cli.main(["translate", *map(str, words), "--device", "cpu"])
        except SystemExit as left:
            # The interpreter prints the sentence and exits with 1.
            code = left.code if isinstance(left.code, int) else 1
            print(left.code, file=sys.stderr)
        out, error = capfdbinary.readouterr()
        return code, out.decode(), error.decode()

    return run


def test_the_command_writes_a_file_only_when_it_is_whole(tiny_bundles, in_process, tmp_path):
    text, out = tmp_path / "in.txt", tmp_path / "out.txt"
    words = ("--bundle", tiny_bundles["lvm"], "--input", text, "--output", out, "--batch", 1, "--n-best", 1)
    text.write_text("der Hund\n" * 70)
    assert in_process(*words) == (0, "", "")
    # Numbers go on beyond the first chunk.
    assert [line.split("\t")[0] for line in out.read_text().splitlines()] == [str(number) for number in range(1, 71)]
    translated = out.read_bytes()
    # The fault lies beyond the first chunk, which is translated by then.
    for content, message in ((b"der Hund\n" * 70 + b"\xff", "line 71, "), (None, "does not exist.")):
        text.unlink()
        if content:
            text.write_bytes(content)
        else:
            text = tmp_path / "none.txt"
        code, output, error = in_process(*words[:3], text, *words[4:])
        assert (code, output) == (1, "") and message in error and error.count("\n") == 1
        assert out.read_bytes() == translated and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--search", "prior_mean"), ("--search", "'prior_mean'", "latent-search")),
        (("--steps", "-2"), ("steps", "'-2'")),
        (("--search", "latent-search", "--step-size", "nan"), ("step_size", "'nan'")),
        (("--beam", "4"), ("--beam", "delta", "ctc-beam")),
        (("--engine", "eagre"), ("engine", "'eagre'", "fast-int8")),
        (("--device", "cuda:7"), ("device", "'cuda:7'")),
        (("--batch", "x"), ("batch", "'x'")),
        (("--batch", "9" * 23), ("batch", "9" * 23)),
        (("--threads", "0"), ("threads", "0")),
    ],
    ids=str,
)
def test_the_command_refuses_in_one_line(tiny_bundles, tmp_path, capsys, words, named):
    (tmp_path / "in").write_text("der Hund\n")
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["translate", "--bundle", str(tiny_bundles["lvm"]), "--input", str(tmp_path / "in"), *words])
    error = exit_info.value.code
    assert error.startswith("error: ") and "\n" not in error and all(word in error for word in named)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["below a file", "pipe", "nothing", "standard output"])
def test_an_output_that_cannot_be_is_refused_before_anything_is_read(tiny_bundles, tmp_path, in_process, kind):
    (tmp_path / "file").write_text("kept")
    os.mkfifo(tmp_path / "pipe")
    output, message = {
        "below a file": (tmp_path / "file/x", f"{tmp_path}/file/x cannot be written: a part of its path is a file; "),
        "pipe": (tmp_path / "pipe", f"{tmp_path}/pipe is a pipe or a device"),
        "nothing": ("", "--output is '': it names no file; "),
        # A link to whatever the caller has redirected it to.
        "standard output": ("/dev/stdout", "/dev/stdout is a pipe"),
    }[kind]
    # An input that does not exist would be refused too, if it were read.
    words = ("--bundle", tiny_bundles["lvm"], "--input", tmp_path / "none", "--output", output)
    code, out, error = in_process(*words)
    assert (code, out) == (1, "") and error.startswith(f"error: {message}")
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "file").read_text() == "kept"


def test_every_input_is_translated_however_often_the_option_stands(tiny_bundles, tmp_path, in_process):
    for name in ("a.de", "b.de"):
        (tmp_path / name).write_text("der Hund\n")
    words_of_inputs = [word for name in ("a.de", "b.de") for word in ("--input", tmp_path / name)]
    words = ("--bundle", tiny_bundles["lvm"], *words_of_inputs, "--output", tmp_path / "out", "--device", "cpu")
    assert in_process(*words)[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.de", "b.de"]


def test_an_empty_input_is_no_folder(tiny_bundles, tmp_path, in_process, monkeypatch):
    """Such as that of a variable that is not set; the path "" is the current folder."""
    (tmp_path / "notes.txt").write_text("der Hund\n")
    monkeypatch.chdir(tmp_path)
    code, out, error = in_process("--bundle", tiny_bundles["lvm"], "--input", "", "--output", tmp_path / "out")
    assert (code, out) == (1, "") and error.startswith("error: --input is '': it names no file; ")
    assert not (tmp_path / "out").exists()


def test_the_file_behind_a_link_is_written_and_the_link_stays(tiny_bundles, tmp_path, in_process):
    target, link = tmp_path / "far/target.txt", tmp_path / "link.txt"
    target.parent.mkdir()
    target.write_text("before")
    link.symlink_to(target)
    (tmp_path / "in").write_text("\n")
    assert in_process("--bundle", tiny_bundles["lvm"], "--input", tmp_path / "in", "--output", link) == (0, "", "")
    assert link.is_symlink() and target.read_text() == "\n" and os.listdir(target.parent) == ["target.txt"]


def test_a_closed_or_full_standard_output_is_reported_in_a_sentence(tiny_bundles, tmp_path):
    (tmp_path / "in").write_text("\n" * 3)
    words = ["-m", "workflow_src.cli", "translate", "--bundle", str(tiny_bundles["lvm"]), "--input", tmp_path / "in"]
    # A closed output cannot be handed to a fork.
    for python, redirection, message in (
        (sys.executable, ">&-", "error: standard output is closed; redirect it to a file, or use --output.\n"),
        (
            STAGE_SERVER.programs() / "python",
            "> /dev/full",
            "error: standard output cannot be written: No space left on device; make room, or write elsewhere.\n",
        ),
    ):
        start = shlex.join(map(str, [python, *words]))
        completed = subprocess.run(
            ["bash", "-c", f"{start} {redirection}"], stderr=subprocess.PIPE, text=True, cwd=PROJECT
        )
        assert (completed.returncode, completed.stderr) == (1, message)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--momentum", "3"], "--momentum 3. an option of a plug-in needs --plugins"),
        (["--search", "momentum"], "--plugins PACKAGE"),
    ],
)
def test_what_may_be_of_a_plug_in_is_reported_with_plugins(tiny_bundles, words, sentence, capsys):
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["translate", "--bundle", str(tiny_bundles["lvm"]), *words])
    assert exit_info.value.code and sentence in f"{exit_info.value.code}{capsys.readouterr().err}"


def test_ctrl_c_ends_the_command_without_a_traceback(tiny_bundles, tmp_path):
    os.mkfifo(tmp_path / "in")
    start = python_module("workflow_src.cli", "translate", "--bundle", str(tiny_bundles["lvm"]))
    files = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    running = subprocess.Popen([*start, *files], stderr=subprocess.PIPE, cwd=PROJECT)
    # The command has come to its input once the other end of the pipe opens.
    with open(tmp_path / "in", "w"):
        running.send_signal(signal.SIGINT)
        assert running.communicate(timeout=60)[1] == b"" and running.returncode == 130
    assert sorted(os.listdir(tmp_path)) == ["in"]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"lines": "Der Hund."}, {"setting": "lines", "value": "Der Hund."}),
        ({"lines": None}, {"setting": "lines", "value": None}),
        ({"lines": ["a", 1]}, {"setting": "line 2", "value": 1}),
        ({"lines": ["a", "b\ud800"]}, {"setting": "lines", "mentions": ("line 2", "'\\ud800'")}),
        ({"batch": "8"}, {"setting": "batch", "value": "8"}),
        ({"batch": 0}, {"setting": "batch", "value": 0}),
        ({"batch": True}, {"setting": "batch", "value": True}),
        ({"remove_repetitions": "wrods"}, {"setting": "remove_repetitions", "value": "wrods", "nearest": "words"}),
        ({"systems": [1]}, {"setting": "systems", "value": [1]}),
        ({"search": "latent-search", "systems": {"model": 1}}, {"value": "model", "allowed": ("rescorer",)}),
        ({"search": "latent-search", "systems": {"rescorer": 1}}, {"setting": "systems.rescorer", "value": 1}),
    ],
    ids=str,
)
def test_other_types_than_those_of_the_api_are_refused(translators, arguments, fields):
    with pytest.raises(ConfigError) as refused:
        translators["lvm"].translate(**{"lines": ["der Hund"], **arguments})
    assert fields_of(refused.value, fields) == fields
    if "lines" not in arguments:
        # Before anything is translated.
        with pytest.raises(ConfigError):
            translators["lvm"].request(**arguments)
    else:
        with pytest.raises(ConfigError) as refused:
            translators["lvm"].search(arguments["lines"], translators["lvm"].request())
        assert fields_of(refused.value, fields) == fields


def test_whole_numbers_of_numpy_are_numbers(translators):
    lines = ["der Hund", "die Katze"]
    assert translators["lvm"].translate(lines, batch=np.int64(1)) == translators["lvm"].translate(lines, batch=1)


@pytest.mark.parametrize(("setting", "value"), [("folder", None), ("threads", -1), ("threads", "a"), ("device", None)])
def test_what_no_bundle_can_be_opened_with_is_refused(tiny_bundles, setting, value):
    with pytest.raises(ConfigError) as refused:
        Translator.load(**{"folder": tiny_bundles["lvm"], setting: value})
    assert (refused.value.setting, refused.value.value) == (setting, value)


def test_the_command_lengthens_and_refuses_to_for_searches_without_predicted_lengths(
    tiny_bundles, translators, in_process, tmp_path
):
    text, out = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [LINES[0], LINES[1], LINES[4], LINES[5]]
    text.write_text("".join(f"{line}\n" for line in lines))
    words = ("--input", text, "--output", out, "--device", "cpu", "--threads", "1", "--lengthening", "0.5")
    assert in_process("--bundle", tiny_bundles["lvm"], *words) == (0, "", "")
    translations = out.read_text().splitlines()
    assert translations == translators["lvm"].translate(lines, lengthening=0.5) != translators["lvm"].translate(lines)
    assert in_process("--bundle", tiny_bundles["score"], "--search", "latent-search", *words)[0] == 0
    code, output, error = in_process("--bundle", tiny_bundles["transformer"], *words)
    searches = "argmax, delta, energy, iterative-refinement, latent-search, mask-predict, prior-mean, score"
    assert (code, output) == (1, "") and error.startswith("error: --lengthening is '0.5': ") and searches in error


def test_a_wrong_search_is_reported_even_without_text(tiny_bundles, in_process, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    words = ("--bundle", tiny_bundles["score"], "--input", tmp_path / "empty.txt", "--output", tmp_path / "out.txt")
    code, out, error = in_process(*words, "--search", "scor")
    assert code == 1 and out == "" and error.startswith("error: --search is 'scor'; ")
    assert not (tmp_path / "out.txt").exists()
    assert in_process(*words) == (0, "", "")
    assert (tmp_path / "out.txt").read_text() == ""


def test_characters_that_the_vocabulary_lacks_are_named_and_counted_where_they_are_lost(
    tiny_bundles, tmp_path, in_process, monkeypatch, caplog
):
    (tmp_path / "in.txt").write_text("der hund 🍕🍕 ☂！\nder hund\n", encoding="utf-8")
    monkeypatch.setattr(TextProcessor, "text", lambda _, tokens, *__: ["the 🍕"] * len(tokens))
    words = ("--bundle", tiny_bundles["lvm"], "--input", tmp_path / "in.txt", "--output-format", "jsonl")
    code, out, _ = in_process(*words)
    first, second = map(json.loads, out.splitlines())
    assert code == 0 and first["unknown"] == [*"🍕🍕☂！"] and first["lost"] == [*"🍕☂"]
    assert "unknown" not in second and "lost" not in second
    assert "1 line:" in caplog.text and "🍕 (1)" in caplog.text and "☂ (1)" in caplog.text


@pytest.mark.parametrize("normalised", [True, False])
def test_placeholders_of_the_source_come_back(translators, tmp_path, monkeypatch, normalised):
    texts = {"de": ["der <b>Hund</b> ruht", "siehe %1"], "en": ["the <b>dog</b> rests", "see %1"]}
    for code, lines in texts.items():
        (tmp_path / code).write_text("".join(f"{line}\n" for line in lines))
    settings = SubwordsConfig(vocabulary_size="auto")
    paths = (tmp_path / "de", tmp_path / "en", tmp_path / "subwords")
    plain = translators["lvm"]
    learned = subwords.learn(settings, *paths, placeholders=("tags", "variables"))
    translator = type(plain)(plain.description, plain.models, learned, plain.runtime)
    # What a model writes: a translation with symbols, one that lacks a span, and one with a symbol too many.
    written = learned.encode_target(["the <b>dog</b>", "see", "%1 %2"], ["<b> </b>", "", "%1 %2"])
    monkeypatch.setattr(translator, "search_ids", lambda *_, **__: Hypotheses(written, [0.0] * 3))
    lines = ["der <i>Hund</i>", "siehe %7", "a %3"]
    texts = translator.translate(lines, normalised=normalised, remove_repetitions="none")
    assert texts == ["the <i>dog</i>", "see", "%3"]
    outcomes = [translation.placeholders for translation in translator.translate(lines, n_best=1)]
    assert [tuple(counts.values()) for counts in outcomes] == [(2, 0, 0, 0), (1, 1, 0, 0), (1, 0, 0, 1)]
    (together,) = translator.translate([" ".join(["Ein Hund %1."] * 3)], n_best=1)
    assert together.placeholders == {"spans": 3, "missing": 1, "surplus": 0, "dropped": 2}
    numbered = translator.translate(lines, normalised=normalised, remove_repetitions="none", placeholders=False)
    assert numbered == ["the <1>dog<2>", "see", "<1> <2>"]
    # Symbols have a number where subwords are shown.
    translation = translator.translate(lines, normalised=normalised, return_scores=True)[0]
    for shown in (translation.source, translation.hypotheses[0].subwords):
        assert [piece for piece in shown if piece in ("<1>", "<2>")] == ["<1>", "<2>"]
        assert not set("".join(shown)) & set(SYMBOLS)
