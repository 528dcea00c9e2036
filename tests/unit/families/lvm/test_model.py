from __future__ import annotations

import pytest
import torch
from miniatures import decode, lvm, nat, one, padded, pairs, transformer
from refusals import fields_of

from workflow_src.errors import ConfigError
from workflow_src.families.lvm.model import start
from workflow_src.nn.weights import weights_of


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_padding_and_company_change_nothing(norm):
    model = lvm(norm=norm)
    batch = pairs([4, 1, 6], [3, 5, 1])
    z = torch.randn(3, 5, 3, dtype=torch.float64)

    def parts(examples, latents):
        memory, mask = model.encode(examples.source), examples.target_mask
        prior, posterior = model.prior(memory, mask), model.posterior(memory, examples.target, mask)
        return [*prior, *posterior, decode(model, memory, latents, mask)]

    of_batch = parts(batch, z)
    wider = parts(padded(batch), torch.nn.functional.pad(z, (0, 0, 0, 3), value=9.0))
    for row, length in enumerate([3, 5, 1]):
        single = parts(one(batch, row), z[row : row + 1, :length])
        for a, b, c in zip(of_batch, wider, single, strict=True):
            assert torch.allclose(a[row, :length], c[0], atol=1e-12)
            assert torch.allclose(b[row, :length], c[0], atol=1e-12)


def test_prior_and_decoder_do_not_see_the_target_and_all_positions_see_each_other():
    model = lvm()
    batch = pairs([4], [4])
    memory, mask = model.encode(batch.source), batch.target_mask
    z = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(decode(model, memory, z, mask)[0, 0].sum(), z)
    assert (gradient[0].abs().sum(-1) > 0).all(), "the first word must depend on every latent, later ones too"
    changed = batch.target.clone()
    changed[0, 3] = 3 if batch.target[0, 3] != 3 else 4
    before, after = (model.posterior(memory, y, mask)[0] for y in (batch.target, changed))
    assert not torch.allclose(before[:, 0], after[:, 0]), "the posterior is not causal"


def test_positions_at_the_decoders_input():
    """Equal latents at two positions still give different logits."""
    model = lvm()
    batch = pairs([4], [4])
    z = torch.zeros(1, 4, 3, dtype=torch.float64)
    logits = decode(model, model.encode(batch.source), z, batch.target_mask)[0]
    assert not torch.allclose(logits[0], logits[1])


@pytest.mark.parametrize("joint", [False, True])
def test_start_from_a_transformer(joint):
    sizes = (11, 11) if joint else (13, 11)
    teacher, model = transformer(*sizes, joint, seed=1), lvm(*sizes, joint, seed=2)
    before = {name: tensor.clone() for name, tensor in weights_of(model).items()}
    weights = weights_of(teacher)
    copied = set(start(model, weights, "transformer", None))
    after = weights_of(model)
    for name in after:
        stack, _, suffix = name.partition(".")
        if stack in ("prior_stack", "posterior_stack", "decoder_stack"):
            expected = weights[f"decoder.{suffix}"]
        elif stack in ("source_embedding", "target_embedding", "encoder", "output_bias"):
            expected = weights[name]
        else:
            expected = None
        assert torch.equal(after[name], before[name] if expected is None else expected), name
        assert (name in copied) == (expected is not None), name
    # Weights that start equal are trained separately.
    assert len({t.data_ptr() for t in after.values()}) == len(after)


def test_a_deeper_teacher_gives_its_first_layers_and_one_of_another_width_is_refused():
    deep = transformer(decoder_layers=3, seed=1)
    model = lvm(seed=2)
    copied = start(model, weights_of(deep), "transformer", None)
    assert "prior_stack.layers.1.feed_norm.weight" in copied
    assert torch.equal(model.decoder_stack.layers[1].feed_norm.weight, deep.decoder.layers[1].feed_norm.weight)
    other = lvm(seed=2, dim=8, feed_forward=12)
    before = {name: tensor.clone() for name, tensor in weights_of(other).items()}
    with pytest.raises(ConfigError) as refused:
        start(other, weights_of(deep), "transformer", None)
    fields = {"setting": "init_from", "mentions": ("model.dim",)}
    assert fields_of(refused.value, fields) == fields
    assert all(torch.equal(before[name], tensor) for name, tensor in weights_of(other).items())


def test_start_from_a_latent_variable_model_takes_everything():
    model, other = lvm(seed=1), lvm(seed=2)
    copied = start(model, weights_of(other), "lvm", None)
    assert set(copied) == set(weights_of(model))
    assert all(torch.equal(t, weights_of(other)[n]) for n, t in weights_of(model).items())


@pytest.mark.parametrize("joint", [False, True])
def test_start_from_a_family_with_symbols_takes_the_rows_of_the_subwords(joint):
    """The last row of its embedding is that of a blank."""
    other = nat(12 if joint else 13, 12, joint, seed=1)
    model = lvm(11 if joint else 13, 11, joint, seed=2)
    weights = weights_of(other)
    copied = start(model, weights, "nat", None)
    embedding = "source_embedding.weight" if joint else "target_embedding.weight"
    assert {embedding, "output_bias", "encoder.norm.weight"} <= set(copied)
    for name in (embedding, "output_bias"):
        assert torch.equal(weights_of(model)[name], weights[name][:11]), name
    # Other subwords, and another width.
    for wrong in ({"target_size": 13}, {"dim": 8}):
        with pytest.raises(ConfigError) as refused:
            start(model, weights_of(nat(**wrong)), "nat", None)
        assert refused.value.setting == "init_from"


def test_heads_start_small():
    from workflow_src.families.lvm import LvmConfig
    from workflow_src.families.lvm.model import LatentVariableModel

    sizes = {"dim": 16, "feed_forward": 24, "heads": 2, "encoder_layers": 1, "layers": 1}
    weights = []
    for scale in (1.0, 0.1):
        torch.manual_seed(0)
        model = LatentVariableModel(LvmConfig(**sizes, head_scale=scale), 9, 9, True)
        weights.append(torch.stack([model.prior_head.linear.weight, model.posterior_head.linear.weight]))
    assert torch.allclose(weights[0] * 0.1, weights[1], atol=1e-7)


def test_too_many_positions_are_refused_by_number():
    model = lvm(max_positions=6)
    batch = pairs([3], [7])
    memory, mask = model.encode(batch.source), batch.target_mask
    z = torch.zeros(1, 7, 3, dtype=torch.float64)
    calls = (
        lambda: model.prior(memory, mask),
        lambda: model.posterior(memory, batch.target, mask),
        lambda: decode(model, memory, z, mask),
        lambda: model.encode(pairs([6], [1]).source),
    )
    fields = {"setting": "model.max_positions", "value": 6, "mentions": (" 7 subwords",)}
    for call in calls:
        with pytest.raises(ConfigError) as refused:
            call()
        assert fields_of(refused.value, fields) == fields
