from __future__ import annotations

import math

import pytest
import torch
from miniatures import cmlm, lvm, nat, transformer

from workflow_src.errors import ArtifactError
from workflow_src.nn.weights import copy_matching, count_parameters, load_weights, set_weights, weights_of
from workflow_src.records.atomic import save_tensors

NOT_FINITE = "has values in output_bias that are not finite"


@pytest.mark.parametrize("joint", [False, True])
def test_round_trip_through_a_file(tmp_path, joint):
    model, other = transformer(11, 11, joint, seed=1), transformer(11, 11, joint, seed=2)
    save_tensors(tmp_path / "w.safetensors", weights_of(model))
    load_weights(other, tmp_path / "w.safetensors")
    assert all(torch.equal(tensor, weights_of(other)[name]) for name, tensor in weights_of(model).items())
    assert ("target_embedding.weight" in weights_of(model)) != joint, "a shared embedding is saved once"
    assert count_parameters(model) == sum(tensor.numel() for tensor in weights_of(model).values())


@pytest.mark.parametrize(
    ("lost", "changed", "problem"),
    [
        ({"length.inner.bias"}, {}, "has no length.inner.bias"),
        (set(), {"surplus": torch.ones(1)}, "has surplus, which the model lacks"),
        (set(), {"output_bias": torch.zeros(12)}, "has output_bias of shape (12,), the model needs (11,)"),
        (set(), {"output_bias": torch.tensor([0.0] * 10 + [math.nan])}, NOT_FINITE),
        (set(), {"output_bias": torch.tensor([0.0] * 10 + [math.inf])}, NOT_FINITE),
    ],
)
def test_spoiled_weights_are_refused_and_change_nothing(lost, changed, problem):
    model = lvm(seed=1)
    before = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    weights = {name: tensor for name, tensor in weights_of(lvm(seed=2)).items() if name not in lost} | changed
    with pytest.raises(ArtifactError) as refused:
        set_weights(model, weights, "some/model.safetensors")
    assert (refused.value.path, refused.value.problem) == ("some/model.safetensors", problem)
    assert all(torch.equal(before[name], tensor) for name, tensor in weights_of(model).items())


def test_missing_file_and_damaged_file(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(ArtifactError, match=r"model.safetensors .*exist"):
        load_weights(lvm(), path)
    save_tensors(path, weights_of(lvm()))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match="is damaged or"):
        load_weights(lvm(), path)


def test_rows_of_another_familys_symbols_are_left_out():
    """A mask is no blank, though both come last and the embeddings have one shape."""
    other, model = nat(seed=1), cmlm(seed=2)
    fresh = model.target_embedding.weight[-1].clone(), model.output_bias[-1].clone()
    copied = copy_matching(model, weights_of(other), other.symbols.names)
    weights, weights_there = weights_of(model), weights_of(other)
    assert {"target_embedding.weight", "output_bias", "encoder.norm.weight"} <= set(copied)
    for name in ("target_embedding.weight", "output_bias"):
        assert torch.equal(weights[name][:-1], weights_there[name][:-1]), name
    assert torch.equal(model.target_embedding.weight[-1], fresh[0]) and torch.equal(model.output_bias[-1], fresh[1])
    assert torch.equal(weights["decoder.norm.weight"], weights_there["decoder.norm.weight"])
    # Of a model with the same symbols, and of the user's own weights, everything that fits is taken.
    for symbols in (model.symbols.names, None):
        bias = torch.randn(11, dtype=torch.float64)
        assert copy_matching(model, {"output_bias": bias}, symbols) == ["output_bias"]
        assert torch.equal(model.output_bias, bias)
