"""A stand-in for unbabel-comet, for tests of the code around it: the functions that the metric's program uses, with
COMET's arguments, results and errors, and no network. `tests/unit/stages/test_real_comet.py` compares it with COMET.

A figure is the share of the translation's words that the reference has, less 0.001 for each word of the source. Calls
are written into calls.jsonl beside the checkpoint; the checkpoint's text names the error to imitate.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

COMET = """
import json
import os
from pathlib import Path


class Prediction(dict):
    pass


def download_model(model, saving_directory=None, local_files_only=False):
    if "FAKE_HUB" in os.environ:
        return os.path.join(os.environ["FAKE_HUB"], "checkpoints", "model.ckpt")
    raise KeyError(f"Model '{model}' not supported by COMET.")


def load_from_checkpoint(checkpoint_path, reload_hparams=False, strict=False, local_files_only=False):
    path = Path(checkpoint_path)
    text = path.read_text()
    if not (path.parents[1] / "hparams.yaml").is_file():
        raise Exception(f"hparams.yaml file is missing from {path.parents[1]}!")
    if "damaged" in text:
        raise RuntimeError("invalid header or archive is corrupted\\nmore")
    if "no encoder" in text:
        raise OSError("We couldn't connect to 'https://huggingface.co' to load the files")
    model = CometModel(path, text)
    model.note(load={"local_files_only": local_files_only})
    return model


class CometModel:
    def __init__(self, path, text):
        self.calls, self.text, self.parts = path.with_name("calls.jsonl"), text, 0

    def note(self, **what):
        with self.calls.open("a") as file:
            file.write(json.dumps(what) + "\\n")

    def predict(self, samples, batch_size=16, gpus=1, devices=None, mc_dropout=0, progress_bar=True,
                accelerator="auto", num_workers=None, length_batching=True):
        print("a line on stdout, as libraries print some")
        self.parts += 1
        if "memory" in self.text:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        if "crash" in self.text and self.parts == 2:
            os.write(2, b"first\\nSegmentation fault\\n")
            os._exit(9)
        self.note(predict=len(samples), batch_size=batch_size, gpus=gpus, devices=devices)
        scores = [_figure(**sample) for sample in samples]
        return Prediction(scores=scores, system_score=sum(scores) / len(scores))


def _figure(src, mt, ref):
    ours = mt.split()
    return sum(word in ref.split() for word in ours) / max(1, len(ours)) - 0.001 * len(src.split())
"""
TORCH = """
import os


def set_num_threads(number):
    assert number > 0


class cuda:
    is_available = staticmethod(lambda: "FAKE_CUDA" in os.environ)
"""


def figure(source: str, hypothesis: str, reference: str) -> float:
    """The figure of a sentence, by another way than the stand-in's."""
    words, reference_words = hypothesis.split(), set(reference.split())
    return len([word for word in words if word in reference_words]) / (len(words) or 1) - len(source.split()) / 1000


def write(folder: Path) -> Path:
    """Write a Python that has the stand-in into `folder`; its path."""
    packages = folder / "packages"
    (packages / "comet").mkdir(parents=True)
    (packages / "comet" / "__init__.py").write_text(COMET)
    (packages / "torch.py").write_text(TORCH)
    for name, version in (("unbabel_comet", "2.2.7"), ("torch", "9.9")):
        metadata = packages / f"{name}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def checkpoint(folder: Path, text: str = "weights") -> Path:
    """Write a checkpoint of the stand-in; its path."""
    path = folder / "checkpoints" / "model.ckpt"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (folder / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    return path


def calls(path: Path) -> list[dict]:
    """The calls of the checkpoint's model."""
    log = path.with_name("calls.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
