"""Files from others: pickles where weights or arrays are wanted are refused by the stages, and nothing in them runs."""

import os
import shutil

import numpy as np
import pytest
import torch

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import PICKLE, read_json, sha256, write_json
from workflow_src.serving.translator import Translator


class Trap:
    """Unpickling it makes a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def trap(tmp_path):
    pickle_trap = Trap(tmp_path / "sprung")
    yield pickle_trap
    assert not pickle_trap.folder.exists()


@pytest.mark.parametrize("name", ["model.pt", "pytorch_model.bin", "model.safetensors"])
def test_initial_weights(trap, training_words, refused, tmp_path, name):
    torch.save({"embedding.weight": Trap(trap.folder)}, tmp_path / name)
    error = refused("train", training_words("transformer", tmp_path / "out", initial=tmp_path / name))
    assert (error.path, error.problem) == (str(tmp_path / name), PICKLE)
    assert not list((tmp_path / "out").glob("*.*"))


def test_a_bundle(trap, tiny_bundles, tmp_path):
    bundle = shutil.copytree(tiny_bundles["transformer"], tmp_path / "bundle")
    torch.save({"w": trap}, bundle / "model.bin")
    description = read_json(bundle / "bundle.json")
    description["models"]["transformer"] |= {"weights": "model.bin", "sha256": sha256(bundle / "model.bin")}
    write_json(bundle / "bundle.json", description)
    with pytest.raises(ArtifactError) as caught:
        Translator.load(bundle)
    assert (caught.value.path, caught.value.problem) == (str(bundle / "model.bin"), PICKLE)


def test_arrays(trap, tiny, training_words, refused, tmp_path):
    shutil.copytree(tiny.root / "encoded", tmp_path / "encoded")
    path = tmp_path / "encoded/train.source.offsets.npy"
    np.save(path, np.array([trap], dtype=object), allow_pickle=True)
    words = training_words("transformer", tmp_path / "out")
    words[words.index("--train") + 1] = str(tmp_path / "encoded/train")
    error = refused("train", words)
    assert error.path == str(path) and error.problem.startswith("is damaged (")
    assert "encode" in error.fix
