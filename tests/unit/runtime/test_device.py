"""Devices and precisions: what is chosen, and what is refused how."""

import re

import pytest
import torch

from workflow_src.runtime import device
from workflow_src.runtime.device import choose


@pytest.mark.parametrize("name", ["cuda:7", "cuda:99"])
def test_a_device_that_is_not_there_is_named(name):
    there = torch.cuda.device_count()
    message = f'device "{name}" is not there ({there} CUDA devices found); use cpu or auto.'
    with pytest.raises(ValueError, match=re.escape(message)):
        choose(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "cuda:00", "cuda:01", "cuda:٣", ""])
def test_an_unknown_device_is_named_with_what_is_allowed(name):
    with pytest.raises(ValueError, match=re.escape(f'unknown device "{name}"; allowed: auto, cpu, cuda, cuda:N.')):
        choose(name)


@pytest.mark.parametrize("name", ["mps", "meta", "xpu"])
def test_devices_of_other_kinds_are_refused(name):
    with pytest.raises(ValueError, match=f'unknown device "{name}"; allowed: auto, cpu, cuda, cuda:N'):
        choose(name)


@pytest.mark.parametrize("name", ["float16", "fp32", "nn", "", "Float32"])
def test_an_unknown_precision_is_named_with_what_is_allowed(name):
    with pytest.raises(ValueError, match=f'^unknown precision "{name}"; allowed: auto, float32, bfloat16.$'):
        choose("cpu", name)


def test_what_is_asked_for_is_chosen():
    for precision in ("float32", "bfloat16"):
        chosen = choose("cpu", precision)
        assert (chosen.device.type, str(chosen.dtype)) == ("cpu", f"torch.{precision}")


@pytest.mark.parametrize("able", [True, False])
def test_auto_on_cpus_is_bfloat16_for_training_where_it_is_fast(monkeypatch, able):
    monkeypatch.setattr(device, "_cpu_has_bfloat16", lambda: able)
    assert choose("cpu", training=True).dtype == (torch.bfloat16 if able else torch.float32)
    assert choose("cpu", training=False).dtype == torch.float32


def test_autocast_computes_products_in_the_precision_and_keeps_weights():
    layer, x = torch.nn.Linear(4, 4), torch.ones(1, 4)
    for precision in ("float32", "bfloat16"):
        with choose("cpu", precision).autocast():
            assert layer(x).dtype == getattr(torch, precision)
    assert layer.weight.dtype == torch.float32


def test_generators_follow_the_seed_alone():
    chosen = choose("cpu", "float32")
    torch.manual_seed(3)
    first = torch.rand(5, generator=chosen.generator(1))
    torch.manual_seed(4)
    assert torch.equal(first, torch.rand(5, generator=chosen.generator(1)))
    assert not torch.equal(first, torch.rand(5, generator=chosen.generator(2)))
