"""Which device and engine compute a decode, on real folders; the machine has a GPU or a pretended one."""

import json
import shutil

import pytest
import torch
from pretended_cuda import pretended

from workflow_src.engines.cuda_graphs import CapturedSearches
from workflow_src.engines.exported import ExportedGraphs
from workflow_src.errors import ConfigError
from workflow_src.jobs import Machine
from workflow_src.runtime.device import cores
from workflow_src.serving.bundle import read_bundle
from workflow_src.serving.folders import open_role_translators, open_translator
from workflow_src.serving.opened import open_engine_folder


@pytest.fixture
def lines(tiny):
    return [source for source, _ in tiny.pairs[:6]]


@pytest.fixture
def pretended_gpus():
    with pretended():
        yield


def opened(folder, device, settings):
    translator = open_translator(folder, device, "auto", 1, **settings)
    return translator, (translator.device, translator.precision, translator.engine)


def test_a_decode_without_an_engine_is_computed_eagerly(tiny_bundles):
    """Also where ONNX Runtime could compute it: our own code decodes unless the decode names an engine."""
    pytest.importorskip("onnxruntime", reason="needs the extra fast")
    for device in ("cpu", "auto" if not torch.cuda.is_available() else "cpu"):
        assert opened(tiny_bundles["lvm"], device, {})[1] == ("cpu", "float32", "eager")


@pytest.mark.parametrize(("compute_type", "mode"), [("float32", "fast"), ("int8", "fast-int8")])
@pytest.mark.usefixtures("pretended_gpus")
def test_onnx_runtime_computes_on_the_cpu_also_beside_a_gpu(tiny_bundles, compute_type, mode):
    """On a GPU, device auto would select captured graphs, which refuse 8 bits."""
    pytest.importorskip("onnxruntime", reason="needs the extra fast")
    settings = {"engine": "onnxruntime", "compute_type": compute_type}
    translator, how = opened(tiny_bundles["lvm"], "auto", settings)
    assert how == ("cpu", "float32", mode)
    assert isinstance(translator._selected.session, ExportedGraphs)


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0"])
@pytest.mark.usefixtures("pretended_gpus")
def test_what_ranks_is_where_onnx_runtime_computes(tiny_bundles, device):
    """The search takes its tensors; the decode selects the engine, on any device of the run's other jobs."""
    pytest.importorskip("onnxruntime", reason="needs the extra fast")
    settings = {"engine": "onnxruntime", "compute_type": "int8"}
    assert opened(tiny_bundles["lvm"], device, settings)[1] == ("cpu", "float32", "fast-int8")
    folders, machine = {"rescorer": tiny_bundles["transformer"]}, Machine(device=device)
    rescorer = open_role_translators(folders, machine, **settings)["rescorer"]
    assert (rescorer.device, rescorer.precision, rescorer.engine) == ("cpu", "float32", "eager")
    rescorer = open_role_translators(folders, machine)["rescorer"]
    assert rescorer.device == ("cuda" if device == "auto" else device)


@pytest.mark.usefixtures("pretended_gpus")
def test_without_an_engine_device_auto_is_the_gpu(tiny_bundles):
    assert opened(tiny_bundles["lvm"], "auto", {})[1] == ("cuda", "bfloat16", "eager")


@pytest.mark.parametrize("compute_type", ["float32", "bfloat16"])
def test_graphs_are_computed_on_a_gpu_in_the_type_of_the_decode(tiny_bundles, lines, compute_type):
    settings = {"engine": "cuda_graphs", "compute_type": compute_type}
    with pretended() as machine:
        translator, how = opened(tiny_bundles["lvm"], "auto", settings)
        assert how == ("cuda", compute_type, "fast") and isinstance(translator._selected.session, CapturedSearches)
        hypotheses = translator.search(lines, translator.request("delta", steps=1, normalised=True, return_scores=True))
        assert machine.counts["graph launches"] and len(set(hypotheses.scores)) > 1
        with pytest.raises(ConfigError) as refused:
            opened(tiny_bundles["lvm"], "cpu", settings)
        assert (refused.value.setting, refused.value.value) == ("engine", "cuda_graphs")


@pytest.fixture(scope="module")
def exported(tiny_bundles, run_stage, tmp_path_factory):
    pytest.importorskip("ctranslate2", reason="needs the extra fast")
    folder = tmp_path_factory.mktemp("exported") / "ctranslate2"
    words = ["--settings", "{}", "--bundle", str(tiny_bundles["transformer"]), "--output-folder", str(folder)]
    run_stage("export_engine", ["--engine", "ctranslate2", *words])
    return folder


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_ctranslate2_computes_on_the_cpu_in_the_type_of_the_decode(exported, lines, compute_type, monkeypatch):
    import ctranslate2

    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    settings = {"engine": "ctranslate2", "compute_type": compute_type}
    translator = open_translator(exported, "auto", "auto", 1, **settings)
    assert (translator.device, translator.precision) == ("cpu", compute_type)
    assert len(translator.translate(lines, "greedy")) == len(lines)


def test_the_folder_of_an_engine_has_no_other(exported, lines):
    translator = open_translator(exported, "cpu", "auto", 1, "ctranslate2", "float32")
    assert translator.use("auto") is translator and len(translator.translate(lines, "greedy")) == len(lines)
    with pytest.raises(ConfigError) as refused:
        translator.use("eager")
    assert (refused.value.setting, refused.value.value) == ("engine", "eager")


def test_a_folder_without_the_systems_that_its_bundle_carries_translates(tiny_bundles, run_stage, lines, tmp_path):
    """Such as the drafter and the language model of a teacher: the library computes with neither."""
    pytest.importorskip("ctranslate2", reason="needs the extra fast")
    carrying = tmp_path / "carrying"
    shutil.copytree(tiny_bundles["transformer"], carrying)
    description = json.loads((carrying / "bundle.json").read_text())
    description["defaults"] |= {"language_model": "lm"}
    (carrying / "bundle.json").write_text(json.dumps(description))
    words = ["--settings", "{}", "--bundle", str(carrying), "--output-folder", str(tmp_path / "ctranslate2")]
    run_stage("export_engine", ["--engine", "ctranslate2", *words])
    translator = open_translator(tmp_path / "ctranslate2", "cpu", "auto", 1, "ctranslate2", "float32")
    assert len(translator.translate(lines, "beam")) == len(lines)


def test_a_folder_of_an_engine_takes_the_threads_that_pytorch_has(exported):
    before = torch.get_num_threads()
    own_number = cores() + 1
    torch.set_num_threads(own_number)
    try:
        _, session = open_engine_folder(exported, read_bundle(exported), "cpu", "auto", None)
        assert (session.concurrent_batches, torch.get_num_threads()) == (own_number, own_number)
    finally:
        torch.set_num_threads(before)


def test_float16_needs_a_gpu(exported):
    """Device auto does not become cpu for it, and without a GPU it is refused."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ConfigError) as refused:
        open_translator(exported, "cuda:7", "auto", 1, "ctranslate2", "float32")
    assert (refused.value.setting, refused.value.value) == ("device", "cuda:7")
    with pytest.raises(ConfigError) as refused:
        open_translator(exported, "auto", "auto", 1, "ctranslate2", "float16")
    assert (refused.value.setting, refused.value.value) == ("precision", "float16")
