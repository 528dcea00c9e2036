from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from miniatures import SIZES, decode, lvm, memory_of, pairs, refiner
from pretended_cuda import pretended

from workflow_src.nn.layers import (
    CrossAttention,
    Memory,
    Stack,
    attend,
    attention_bias,
    causal_bias,
    dropout,
    initialise,
    narrow_stacks,
    sinusoidal_positions,
)
from workflow_src.nn.settings import StackConfig


def naive_attention(query, key, value, allowed):
    """One query at a time, over the keys it may see."""
    result = torch.zeros_like(query)
    B, H, T, width = query.shape
    for b in range(B):
        for h in range(H):
            for t in range(T):
                visible = allowed[b, t]
                weights = torch.softmax(key[b, h, visible] @ query[b, h, t] / math.sqrt(width), 0)
                result[b, h, t] = weights @ value[b, h, visible]
    return result


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_a_softmax_over_what_may_be_seen(fused, causal):
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 2, 5, 4, dtype=torch.float64) for _ in range(3))
    lengths = torch.tensor([5, 2, 4])
    mask = torch.arange(5) < lengths[:, None]
    if causal:
        bias, allowed = causal_bias(5, query.device), torch.ones(5, 5).tril().bool().expand(3, 5, 5)
    else:
        bias, allowed = attention_bias(mask), mask[:, None, :].expand(3, 5, 5)
    actual = attend(query, key, value, bias, fused)
    assert torch.allclose(actual, naive_attention(query, key, value, allowed), atol=1e-13)


@given(
    st.sampled_from([1, 65535, 65536, 70001, 131071]), st.integers(1, 2), st.sampled_from([None, "padding", "causal"])
)
@settings(max_examples=10, deadline=None)
def test_a_gpu_attends_to_any_number_of_rows(rows, length, kind):
    """Kernels take 65,535 rows: larger batches have the values and gradients of the CPU, which has no such limit."""
    torch.manual_seed(rows)
    inputs = [torch.randn(rows, 1, length, 2) for _ in range(3)]
    bias = {
        None: None,
        "padding": attention_bias(torch.arange(length) <= torch.arange(rows)[:, None] % length),
        "causal": causal_bias(length, torch.device("cpu")),
    }[kind]

    def attended(device: str):
        tensors = [x.to(device).requires_grad_() for x in inputs]
        values = attend(*tensors, None if bias is None else bias.to(device), fused=True)
        return [x.detach().cpu() for x in (values, *torch.autograd.grad(values.square().sum(), tensors))]

    on_cpu = attended("cpu")
    with pretended():
        on_gpu = attended("cuda")
    for expected, actual in zip(on_cpu, on_gpu, strict=True):
        assert torch.allclose(actual, expected, atol=1e-6)


def test_no_bias_where_every_position_is_real():
    assert attention_bias(torch.ones(2, 3, dtype=torch.bool)) is None


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_fused_and_plain_stacks_agree_in_values(norm):
    """Without gradients the library's kernel is used, with them the plain products."""
    torch.manual_seed(0)
    stack = Stack(StackConfig(**{**SIZES, "norm": norm}), 2, cross=True).double()
    initialise(stack)
    x, states = torch.randn(2, 4, 16).double(), torch.randn(2, 3, 16).double()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    memory = memory_of(states, mask)
    plain = stack(x, None, memory)
    with torch.no_grad():
        fused = stack(x, None, memory)
    assert plain.requires_grad and torch.allclose(plain, fused, atol=1e-13)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_norms_stand_where_their_papers_put_them(norm):
    torch.manual_seed(0)
    stack = Stack(StackConfig(**{**SIZES, "norm": norm}), 1, cross=False).double()
    x = torch.randn(1, 4, 16).double()
    layer = stack.layers[0]
    normed = lambda h: F.layer_norm(h, (16,))  # noqa: E731
    if norm == "pre":
        middle = x + layer.self_attention(normed(x), None, False)
        expected = normed(middle + layer.feed_forward(normed(middle)))
    else:
        middle = normed(x + layer.self_attention(x, None, False))
        expected = normed(middle + layer.feed_forward(middle))
    assert torch.allclose(stack(x), expected, atol=1e-13)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("layers", [1, 3])
def test_with_skips_the_input_is_added_after_each_layer(norm, layers):
    torch.manual_seed(0)
    stack = Stack(StackConfig(**{**SIZES, "norm": norm}), layers, cross=True, skip=True).double()
    plain = Stack(StackConfig(**{**SIZES, "norm": norm}), layers, cross=True).double()
    plain.load_state_dict(stack.state_dict())
    x, states = torch.randn(2, 4, 16).double(), torch.randn(2, 3, 16).double()
    memory = memory_of(states, torch.ones(2, 3, dtype=torch.bool))
    actual = x
    for layer in stack.layers:
        actual = (x + layer(actual, None, memory, False)) / math.sqrt(2)
    expected = F.layer_norm(actual, (16,)) if norm == "pre" else actual
    assert torch.allclose(stack(x, None, memory), expected, atol=1e-13)
    assert not torch.allclose(plain(x, None, memory), expected, atol=1e-2)


def test_only_the_decoder_of_a_latent_variable_model_skips():
    model = lvm(decoder_skip=True)
    stacks = (model.encoder, model.prior_stack, model.posterior_stack, model.decoder_stack)
    assert [stack.skip for stack in stacks] == [False, False, False, True]
    assert not lvm().decoder_stack.skip


def test_memory_selects_sentences():
    mask = torch.tensor([[True, False], [True, True]])
    states = torch.arange(8.0).view(2, 2, 2)
    memory = Memory(states, mask, attention_bias(mask), torch.tensor([[5, 0], [4, 2]]), states + 10)
    chosen = memory.select(torch.tensor([1, 0, 0]))
    assert chosen.bias is not None and memory.bias is not None
    assert torch.equal(chosen.states, states[[1, 0, 0]])
    assert torch.equal(chosen.mask, mask[[1, 0, 0]])
    assert torch.equal(chosen.bias, memory.bias[[1, 0, 0]])
    assert chosen.tokens.tolist() == [[4, 2], [5, 0], [5, 0]]
    assert torch.equal(chosen.embedded, states[[1, 0, 0]] + 10)
    everything = memory_of(states, torch.ones(2, 2, dtype=torch.bool))
    assert everything.select(torch.tensor([1])).bias is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_memory_computes_the_keys_and_values_of_a_layer_once(dtype, monkeypatch):
    """Passes with gradients train through them, also after one without; a selection has those of its own rows."""
    stack = narrow_stacks(Stack(StackConfig(**SIZES), 2, cross=True).double(), dtype)
    computed = []
    original = CrossAttention.keys_values
    monkeypatch.setattr(
        CrossAttention, "keys_values", lambda self, states: computed.append(self) or original(self, states)
    )
    torch.manual_seed(0)
    x, states = torch.randn(2, 4, 16).double(), torch.randn(2, 3, 16).double().requires_grad_()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    memory = memory_of(states, mask)
    with torch.no_grad():
        first, second = stack(x, None, memory), stack(x, None, memory)
    assert torch.equal(first, second) and len(computed) == 2
    trained = stack(x, None, memory)
    assert len(computed) == 4
    actual = torch.autograd.grad(trained.sum(), [states, stack.layers[0].cross_attention.key_value.weight])
    fresh = stack(x, None, memory_of(states, mask)).sum()
    expected = torch.autograd.grad(fresh, [states, stack.layers[0].cross_attention.key_value.weight])
    for gradient, gradient_of_fresh in zip(actual, expected, strict=True):
        assert gradient.any() and torch.equal(gradient, gradient_of_fresh)
    with torch.no_grad():
        rows = torch.tensor([1, 1, 0])
        assert torch.allclose(stack(x[rows], None, memory.select(rows)), first[rows], atol=1e-6)


@example(1e-4)
@given(st.floats(0.01, 0.99))
def test_dropout_drops_its_share_and_keeps_the_mean(probability):
    """A share below the smallest that masks of bytes can have is dropped as that."""
    torch.manual_seed(1)
    cells = 40_003  # no multiple of eight
    actual = dropout(torch.ones(cells, dtype=torch.float64), probability, training=True)
    rate = max(1, round(256 * probability)) / 256
    deviation = math.sqrt(rate * (1 - rate) / cells)
    assert abs((actual == 0).double().mean() - rate) < 6 * deviation
    assert rate == 1 / 256 or abs(rate - probability) <= 1 / 512 + 1e-12
    assert actual[actual != 0].unique().tolist() == pytest.approx([1 / (1 - rate)])
    assert abs(actual.mean() - 1) < 6 * deviation / (1 - rate)


def test_dropout_masks_are_fresh_and_independent():
    torch.manual_seed(0)
    first, second = (dropout(torch.ones(8, 10_000), 0.5, training=True) != 0 for _ in range(2))
    assert abs((first == second).float().mean() - 0.5) < 0.02
    # Eight cells come from one draw: neighbours are independent all the same.
    assert abs((first[:, 1:] == first[:, :-1]).float().mean() - 0.5) < 0.02


@pytest.mark.parametrize("probability, training", [(0.0, True), (0.5, False)])
def test_no_dropout_outside_training_or_at_zero(probability, training):
    x = torch.randn(4)
    assert dropout(x, probability, training) is x


def test_dropout_of_nearly_everything_stays_finite():
    assert torch.isfinite(dropout(torch.ones(1000), 0.999, training=True)).all()


def test_dropout_passes_gradients_where_it_kept():
    x = torch.ones(100, requires_grad=True)
    y = dropout(x, 0.3, training=True)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("length, dim", [(1, 2), (7, 6), (50, 16)])
def test_sinusoidal_positions(length, dim):
    codes = sinusoidal_positions(length, dim)
    assert codes.shape == (length, dim)
    for position in range(length):
        for column in range(dim):
            angle = position / 10000 ** ((column - column % 2) / dim)
            assert codes[position, column] == pytest.approx((math.sin, math.cos)[column % 2](angle), abs=2e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_narrow_stacks_round_inside_and_nowhere_else(norm):
    """Layers of a float64 model in float32: types outside stay, results differ by float32's rounding."""
    model, network = lvm(norm=norm), refiner("score", norm=norm)
    batch = pairs([4, 1, 6], [3, 5, 1])

    def outputs():
        memory = model.encode(batch.source)
        mean, deviation = model.prior(memory, batch.target_mask)
        direction = network.direction(memory, mean, batch.target_mask)
        posterior = model.posterior(memory, batch.target, batch.target_mask)[0]
        return memory.states, mean, deviation, direction, posterior, decode(model, memory, mean, batch.target_mask)

    with torch.no_grad():
        in_float64 = outputs()
        for module in (model, network):
            assert narrow_stacks(module, torch.float32) is module
        in_float32 = outputs()
    for exact, rounded in zip(in_float64, in_float32, strict=True):
        assert rounded.dtype == torch.float64
        difference = (exact - rounded).abs().max()
        assert 0 < difference < 1e-4 * exact.abs().max()
    for name, parameter in (*model.named_parameters(), *network.named_parameters()):
        inside = "stack." in name or name.startswith("encoder.")
        assert parameter.dtype == (torch.float32 if inside else torch.float64), name
