"""Devices and precisions: what is chosen, and what is refused how."""

import pytest
import torch
from refusals import refuses

from workflow_src.errors import ConfigError
from workflow_src.runtime import device
from workflow_src.runtime.device import choose


@pytest.mark.parametrize("name", ["cuda:7", "cuda:99"])
def test_a_device_that_is_not_there_is_named(name):
    with pytest.raises(ConfigError, match=f"{torch.cuda.device_count()} CUDA devices") as refused:
        choose(name)
    assert (refused.value.setting, refused.value.value) == ("device", name)


NAMES = ["gpu", "cuda:x", "cuda:-1", "cuda:00", "cuda:01", "cuda:٣", "", "mps", "meta", "xpu"]


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_device_is_named_with_what_is_allowed(name):
    with refuses(setting="device", value=name, allowed=("auto", "cpu", "cuda", "cuda:N")):
        choose(name)


@pytest.mark.parametrize("name", ["float16", "fp32", "nn", "", "Float32"])
def test_an_unknown_precision_is_named_with_what_is_allowed(name):
    with refuses(setting="precision", value=name, allowed=("auto", "bfloat16", "float32")):
        choose("cpu", name)


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
