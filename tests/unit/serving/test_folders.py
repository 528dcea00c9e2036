"""Which device and engine a decode's settings ask for, also on machines that have a GPU."""

import pytest

from workflow_src.serving.folders import open_engine
from workflow_src.serving.translator import Translator


@pytest.mark.parametrize(
    ("device", "settings", "asked"),
    [
        ("auto", {}, ("auto", "auto", "eager")),
        ("cuda", {}, ("cuda", "auto", "eager")),
        ("auto", {"engine": "ctranslate2", "compute_type": "int8"}, ("cpu", "int8", "eager")),
        ("auto", {"engine": "ctranslate2", "compute_type": "float16"}, ("auto", "float16", "eager")),
        # Where there is a GPU, auto would mean captured graphs instead of ONNX Runtime, and refuse 8 bits.
        ("auto", {"engine": "onnxruntime", "compute_type": "float32"}, ("cpu", "float32", "fast")),
        ("auto", {"engine": "onnxruntime", "compute_type": "int8"}, ("cpu", "float32", "fast-int8")),
    ],
    ids=str,
)
def test_what_a_decode_is_opened_with(monkeypatch, device, settings, asked):
    seen = []
    monkeypatch.setattr(
        Translator,
        "load",
        classmethod(lambda cls, folder, device, precision, threads, engine: seen.append((device, precision, engine))),
    )
    open_engine("bundle", device, "auto", 1, settings)
    assert seen == [asked]
