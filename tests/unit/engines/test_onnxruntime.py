"""Conditions under which ONNX Runtime computes searches."""

from __future__ import annotations

import pytest
import torch
from miniatures import lvm, nat
from refusals import fields_of

from workflow_src import registry
from workflow_src.engines import onnxruntime
from workflow_src.engines.choose import choose_mode
from workflow_src.engines.onnxruntime import choose_engine, open_networks
from workflow_src.errors import ConfigError, InputError

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")

REFUSED = [
    (("quick", "cpu", "float32", True), {"allowed": ("auto", "eager", "fast", "fast-int8"), "nearest": None}),
    (("fats", "cpu", "float32", True), {"nearest": "fast"}),
    (("fast", "cpu", "float32", False), {"hint": "use engine eager", "mentions": ("program",)}),
    (("fast-int8", "cuda:0", "float32", True), {"problem": "it runs on CPUs, and the device is cuda:0"}),
    (("fast-int8", "cpu", "bfloat16", True), {"problem": "it reads float32 weights, and the precision is bfloat16"}),
]


@pytest.mark.parametrize(("arguments", "fields"), REFUSED, ids=str)
def test_an_engine_that_cannot_serve_is_refused_and_auto_takes_the_eager_one(arguments, fields):
    with pytest.raises(ConfigError) as caught:
        choose_engine(*arguments)
    assert caught.value.setting == "engine" and fields_of(caught.value, fields) == fields
    if "nearest" not in fields:
        # On a GPU, captured graphs serve.
        assert choose_engine("auto", *arguments[1:]) == ("fast" if arguments[1] == "cuda:0" else "eager")
        assert choose_engine("eager", *arguments[1:]) == "eager"


@pytest.mark.parametrize("mode", ["fast", "fast-int8"])
def test_a_system_without_any_search_that_graphs_compute_is_refused(mode):
    """Graphs check drafts of an autoregressive system that reads blocks as one function of tensors, and of no other."""
    declared = registry.families()
    arguments = "cpu", "float32", declared["seq2seq"], declared["seq2seq"].searches
    with pytest.raises(ConfigError) as refused:
        choose_mode(mode, *arguments)
    assert refused.value.setting == "engine" and choose_mode("auto", *arguments) == ("eager", None)
    chosen, engine = choose_mode(mode, *arguments[:2], declared["transformer"], declared["transformer"].searches)
    assert (chosen, engine.name) == (mode, "onnxruntime")


def test_without_the_packages_auto_is_eager(monkeypatch):
    assert choose_engine("auto", "cpu", "float32", True) in ("fast", "fast-int8")
    monkeypatch.setattr(onnxruntime.importlib.util, "find_spec", lambda _: None)
    assert choose_engine("auto", "cpu", "float32", True) == "eager"
    with pytest.raises(InputError, match="needs onnx and onnxruntime"):
        choose_engine("fast", "cpu", "float32", True)


def test_8_bits_on_processors_that_saturate_come_with_a_warning(monkeypatch, caplog):
    assert choose_engine("auto", "cpu", "float32", True) == "fast" and not caplog.records
    monkeypatch.setattr(onnxruntime, "int8_is_safe", lambda: False)
    assert choose_engine("fast-int8", "cpu", "float32", True) == "fast-int8"
    assert "this processor lacks VNNI instructions; its 8-bit products may overflow" in caplog.text


def test_graphs_that_lose_to_our_own_code_in_batches_are_known():
    latent = open_networks({"lvm": lvm().float()}, "fast", torch.device("cpu"))
    slots = open_networks({"nat": nat().float()}, "fast", torch.device("cpu"))
    gains = lambda engine, name: engine.gains_in_batches(registry.searches()[name].settings())  # noqa: E731
    assert not gains(slots, "mask-predict") and gains(slots, "ctc-greedy") and gains(latent, "prior-mean")


@pytest.mark.parametrize(("mode", "int8"), [("fast", False), ("fast-int8", True)])
def test_the_mode_says_in_how_many_bits_products_are_computed(mode, int8):
    engine = open_networks({"nat": nat().float()}, mode, torch.device("cpu"))
    assert (engine.int8, engine.threads) == (int8, torch.get_num_threads())
