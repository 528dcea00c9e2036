"""The engine of the table that a mode means: on a device, for a system, with what is installed."""

from __future__ import annotations

import pytest
from miniatures import lvm, nat
from refusals import fields_of
from sessions import opened, request

from workflow_src import registry
from workflow_src.engines import choose as choosing
from workflow_src.engines.choose import choose
from workflow_src.errors import ConfigError
from workflow_src.spec import members

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")

REFUSED = [
    (("quick", "cpu", "float32", "nat"), {"allowed": ("auto", "eager", "fast", "fast-int8"), "nearest": None}),
    (("fats", "cpu", "float32", "nat"), {"nearest": "fast"}),
    (("fast", "cpu", "float32", "seq2seq"), {"hint": "use engine eager", "mentions": ("program",)}),
    (("fast-int8", "cpu", "float32", "seq2seq"), {"hint": "use engine eager", "mentions": ("program",)}),
    (("fast", "cuda", "float32", "seq2seq"), {"mentions": ("seq2seq",)}),
    (("fast-int8", "cuda:0", "float32", "nat"), {"mentions": ("CPUs", "cuda:0")}),
    (("fast-int8", "cpu", "bfloat16", "nat"), {"mentions": ("float32", "bfloat16")}),
]


def chosen(mode: str, device: str, precision: str, family: str) -> tuple[str, str]:
    declared = registry.families()[family]
    mode, engine = choose(mode, device, precision, declared, registry.searches_of(declared))
    return mode, engine.name


@pytest.mark.parametrize(("arguments", "fields"), REFUSED, ids=str)
def test_an_engine_that_cannot_serve_is_refused_and_auto_takes_one_that_can(arguments, fields):
    with pytest.raises(ConfigError) as caught:
        chosen(*arguments)
    assert caught.value.setting == "engine" and fields_of(caught.value, fields) == fields
    if "nearest" not in fields:
        # On a GPU, captured graphs serve.
        served = arguments[1] == "cuda:0"
        assert chosen("auto", *arguments[1:]) == (("fast", "cuda_graphs") if served else ("eager", "eager"))
        assert chosen("eager", *arguments[1:]) == ("eager", "eager")


@pytest.mark.parametrize("mode", ["fast", "fast-int8"])
def test_graphs_check_drafts_of_a_system_that_reads_blocks_as_one_function(mode):
    assert chosen(mode, "cpu", "float32", "transformer") == (mode, "onnxruntime")


def test_without_the_packages_auto_is_eager(monkeypatch):
    assert chosen("auto", "cpu", "float32", "nat") == ("fast", "onnxruntime")
    monkeypatch.setattr(members.importlib.util, "find_spec", lambda _: None)
    assert chosen("auto", "cpu", "float32", "nat") == ("eager", "eager")
    with pytest.raises(ConfigError, match="needs onnx and onnxruntime"):
        chosen("fast", "cpu", "float32", "nat")


def test_8_bits_on_processors_that_saturate_come_with_a_warning(monkeypatch, caplog):
    assert chosen("auto", "cpu", "float32", "nat")[0] == "fast" and not caplog.records
    monkeypatch.setattr(choosing, "int8_is_safe", lambda: False)
    assert chosen("fast-int8", "cpu", "float32", "nat")[0] == "fast-int8"
    assert "this processor lacks VNNI instructions; its 8-bit products may overflow" in caplog.text


def test_graphs_that_lose_to_our_own_code_in_batches_are_known():
    latent, slots = opened({"lvm": lvm().float()}), opened({"nat": nat().float()})
    for engine, name, gains in (
        (slots, "mask-predict", False),
        (slots, "ctc-greedy", True),
        (latent, "prior-mean", True),
    ):
        asked = request(
            engine, registry.searches()[name].settings(), networks={"model": next(iter(engine.models.values()))}
        )
        assert engine.gains(asked, False) == gains and engine.gains(asked, True)


@pytest.mark.parametrize(("mode", "int8"), [("fast", False), ("fast-int8", True)])
def test_the_mode_says_in_how_many_bits_products_are_computed(mode, int8):
    engine = opened({"nat": nat().float()}, mode)
    assert (engine.int8, engine.threads) == (int8, 1)
