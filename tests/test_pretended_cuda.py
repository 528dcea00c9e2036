"""The pretended GPUs of `tests/pretended_cuda`: each rule of CUDA that they follow, and a case that breaks it."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pretended_cuda import counted, environment, functions, pretended
from stage_server import python_code
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

SYNC_REFUSED = "called a synchronizing CUDA operation"
CAPTURE_REFUSED = "not permitted when stream is capturing"


@pytest.fixture(autouse=True)
def machine():
    with pretended() as gpus:
        yield gpus


def on_gpu(*values) -> torch.Tensor:
    return torch.tensor(values).cuda()


def refused(message: str):
    return pytest.raises(RuntimeError, match=message)


# Devices.


def test_nothing_of_it_is_left_behind():
    """In a process of its own, whose GPUs are those of the machine again."""
    program = """
import torch
from pretended_cuda import REPLACED, pretended

def parts():
    return [getattr(module, name) for module, names in REPLACED.items() for name in names] + [torch.Generator]

before, gpus = parts(), torch.cuda.device_count()
with pretended(gpus + 1):
    assert torch.cuda.device_count() == gpus + 1 and torch.ones(2, device="cuda").is_cuda
assert parts() == before and torch.cuda.device_count() == gpus
try:
    torch.ones(2, device=f"cuda:{gpus}")
except (AssertionError, NotImplementedError, RuntimeError):
    print("as before")
"""
    process = subprocess.run(python_code(program), capture_output=True, text=True, cwd=Path(__file__).parent)
    assert process.stdout == "as before\n", process.stderr


def test_results_are_where_operands_are():
    x = torch.ones(2, 3, device="cuda")
    assert x.device == torch.device("cuda", 0) and x.is_cuda and not x.is_cpu and x.get_device() == 0
    for result in (
        x + 1,
        x @ x.T,
        x[0],
        torch.zeros_like(x),
        x.new_zeros(2),
        x.sum(),
        torch.arange(3, device=x.device),
    ):
        assert result.device == x.device
    assert x.cpu().device.type == "cpu" and x.to("cuda:1").device.index == 1
    assert torch.ones(2).to(x).device == x.device
    for device in ("cpu", torch.device("cpu"), None):
        assert torch.as_tensor([1.0], device=device).numpy().tolist() == [1.0]


def test_a_tensor_that_is_there_already_is_not_copied():
    x = torch.ones(2, device="cuda")
    assert x.to("cuda") is x and x.cuda() is x and x.to("cuda:0", torch.float32) is x
    assert x.to("cuda", copy=True).data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x: x + torch.ones(2),
        lambda x: torch.ones(2) + x,
        lambda x: x @ torch.ones(2, 2),
        lambda x: x.add_(torch.ones(2)),
        lambda x: torch.ones(2).add_(x),
        lambda x: torch.cat([x, torch.ones(2)]),
        lambda x: torch.stack([x[0], torch.tensor(1.0)]),
        lambda x: torch.where(torch.ones(2, dtype=torch.bool), x, x),
        lambda x: x.gather(0, torch.tensor([0])),
        lambda x: x.index_select(0, torch.tensor(0)),
        lambda x: x + torch.ones(2, device="cuda:1"),
        lambda x: torch.ones(3) + x[0],
        lambda x: F.linear(x, torch.ones(2, 2)),
        lambda x: x + torch.from_numpy(np.ones(2, dtype=np.float32)),
        lambda x: x.__setitem__(x.long(), torch.ones(2)),
        lambda x: x.__setitem__(x > 0, torch.ones(2)),
    ],
)
def test_operands_are_on_one_device(mixed):
    with refused("Expected all tensors to be on the same device"):
        mixed(torch.ones(2, device="cuda"))


def test_an_index_on_a_gpu_is_of_no_tensor_of_the_cpu():
    with refused("indices should be either on cpu or on the same device as the indexed tensor"):
        torch.ones(2)[torch.ones(2, device="cuda").long()]


def test_0d_operands_and_indices_may_be_the_cpus():
    x = on_gpu(1.0, 2.0, 3.0)
    scalar = torch.tensor(2.0)
    assert (x + scalar).tolist() == (scalar + x).tolist() == [3.0, 4.0, 5.0]
    assert torch.where(x > scalar, x, scalar).tolist() == [2.0, 2.0, 3.0]
    assert x.masked_fill(x > 1, scalar).tolist() == [1.0, 2.0, 2.0]
    assert x[torch.tensor([2, 0])].tolist() == x[[2, 0]].tolist() == [3.0, 1.0]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("by_length", [True, False])
def test_lengths_of_packed_sequences_are_the_cpus(place, by_length):
    x, lengths = torch.ones(2, 3, 4, device=place), torch.tensor([3, 2])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=by_length)
    assert packed.data.device == x.device and packed.batch_sizes.tolist() == [2, 2, 1]
    assert packed.batch_sizes.device.type == "cpu"
    with refused("'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0"):
        pack_padded_sequence(x, lengths.cuda(), batch_first=True, enforce_sorted=by_length)


def test_numpy_reads_no_gpu():
    x = on_gpu(1.0)
    for to_numpy in (x.numpy, lambda: np.asarray(x), lambda: x.detach().numpy()):
        with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
            to_numpy()
    assert x.cpu().numpy().tolist() == [1.0]
    assert not torch.from_numpy(np.ones(2)).is_cuda


def test_cudnn_computes_nothing(monkeypatch):
    """Also where PyTorch was built with it."""
    monkeypatch.setattr(torch._C, "_has_cudnn", True)
    monkeypatch.setattr(torch.backends.cudnn.m, "_init", lambda: True)
    assert not torch.backends.cudnn.is_acceptable(torch.ones(2, device="cuda"))


def test_shapes_are_not_changed_in_place():
    with pytest.raises(NotImplementedError, match="squeeze_"):
        torch.ones(1, 2, device="cuda").squeeze_()


def test_gpus_are_those_that_the_environment_names_when_cuda_begins(machine, monkeypatch):
    for visible, count in (("1", 1), ("", 0), ("1,7,0", 1), (machine.uuids[1] + ",0", 2), ("0,0", 1)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert torch.cuda.device_count() == count and torch.cuda.is_available() == (count > 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert not torch.cuda.is_initialized()
    assert torch.cuda.get_device_name("cuda:0") == "Pretended GPU 1" and torch.cuda.is_initialized()
    with refused("invalid device ordinal"):
        torch.ones(1, device="cuda:1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert torch.cuda.device_count() == 1


def test_cuda_does_not_begin_without_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with refused("No CUDA GPUs are available"):
        torch.ones(1, device="cuda")


def test_cuda_without_a_number_is_the_current_gpu():
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device("cuda:1")
    assert torch.ones(1, device="cuda").device.index == torch.cuda.current_device() == 1
    assert torch.Generator("cuda").device.index == 1
    with refused("invalid device ordinal"):
        torch.cuda.set_device(2)


JOB = """
import sys
from workflow_src import jobs

def run(inputs):
    from workflow_src.runtime.device import choose
    import torch
    x = torch.ones(2, device=choose(inputs.device).device)
    print(torch.cuda.device_count(), x.device, torch.cuda.get_device_name(x.device), flush=True)
    sys.stdin.read()

jobs.start(run, jobs.DeviceJobInputs)
"""


def test_jobs_side_by_side_take_different_gpus(tmp_path):
    """Each sees its own alone, as cuda:0."""
    variables = {**os.environ, **environment(), "CONTINUUM_DEVICE_LOCKS": str(tmp_path / "locks")}
    variables["PYTHONPATH"] += os.pathsep + str(Path(__file__).resolve().parents[1])
    (tmp_path / "job.json").write_text('{"device": "auto"}')
    words = python_code(JOB, "--job", str(tmp_path / "job.json"))
    jobs = [subprocess.Popen(words, env=variables, stdin=-1, stdout=-1, text=True) for _ in range(2)]
    lines = [job.stdout.readline().strip() for job in jobs]
    assert sorted(lines) == [f"1 cuda:0 Pretended GPU {number}" for number in range(2)]
    for job in jobs:
        job.communicate()
        assert job.returncode == 0


# Synchronisation.

WAITING = {
    "item": lambda x: x[0].item(),
    "float": lambda x: float(x[0]),
    "truth": lambda x: bool(x[0]),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "copy to the CPU": lambda x: torch.empty(3).copy_(x),
    "copy from the CPU": lambda _: torch.ones(3).to("cuda"),
    "copy into": lambda x: x.copy_(torch.ones(3)),
    "values": lambda _: torch.tensor([1.0, 2.0], device="cuda"),
    "new values": lambda x: x.new_tensor([1.0]),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 1],
    "values at a mask": lambda x: x.__setitem__(x > 1, x[:2].clone()),
    "masked_select": lambda x: x.masked_select(x > 1),
    "CPU index": lambda x: x[torch.tensor([0])],
    "list index": lambda x: x[[0]],
    "0-d index": lambda x: x[x[0].long() * 0],
    "number at an index": lambda x: x.__setitem__(torch.arange(2, device="cuda"), 0.0),
    "number at one place": lambda x: x.__setitem__(0, 0.0),
    "unique": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "bincount": lambda x: x.long().bincount(),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
    "equal": lambda x: torch.equal(x, x + 1),
    "allclose": lambda x: torch.allclose(x, x),
    "stream": lambda _: torch.cuda.current_stream().synchronize(),
}
# Cases that wait more than once.
WAITS = {"bincount": 2, "repeat_interleave": 2}
GOING_ON = {
    "copy from the CPU": lambda _: torch.ones(3).to("cuda", non_blocking=True),
    "copy to the CPU": lambda x: x.to("cpu", non_blocking=True),
    "copy to another GPU": lambda x: x.to("cuda:1"),
    "number everywhere": lambda x: x.fill_(2.0),
    "number in a slice": lambda x: x.__setitem__(slice(2), 0.0),
    "number at a mask": lambda x: x.__setitem__(x > 1, 0.0),
    "index": lambda x: x[torch.arange(2, device="cuda")],
    "values at an index": lambda x: x.__setitem__(torch.arange(2, device="cuda"), x[:2].clone()),
    "nonzero of a known number": lambda x: torch.nonzero_static(x, size=4),
    "masked_fill": lambda x: x.masked_fill(x > 1, 0.0),
    "masked_scatter": lambda x: x.masked_scatter(x > 1, x),
    "where": lambda x: torch.where(x > 1, x, 0.0),
    "choices": lambda x: (x.topk(2), x.sort(), x.max(0), x.cumsum(0), x.median()),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long(), output_size=6),
    "repeat_interleave by a number": lambda x: x.repeat_interleave(2),
    "made there": lambda x: (torch.zeros(2, device="cuda"), torch.randn(2, device="cuda"), torch.full_like(x, 1)),
}


@pytest.mark.parametrize("case", WAITING)
def test_what_waits_is_counted_and_refused(case, machine):
    x = on_gpu(1.0, 2.0, 3.0)
    with counted() as counts:
        WAITING[case](x)
    assert counts["synchronisations"] == WAITS.get(case, 1), machine.waits
    torch.cuda.set_sync_debug_mode("error")
    with refused(SYNC_REFUSED), counted() as counts:
        WAITING[case](x)
    assert not counts["synchronisations"]


@pytest.mark.parametrize("case", GOING_ON)
def test_what_does_not_wait_is_allowed(case):
    x = on_gpu(1.0, 2.0, 3.0)
    torch.cuda.set_sync_debug_mode("error")
    with counted() as counts:
        GOING_ON[case](x)
    assert not counts["synchronisations"] and counts.total() > 0


def test_modes_of_synchronisation_are_those_of_cuda():
    for mode in (0, 1, 2, "default", "warn", "error"):
        torch.cuda.set_sync_debug_mode(mode)
    for mode in ("silent", 3, -1):
        with refused("invalid value of debug_mode"):
            torch.cuda.set_sync_debug_mode(mode)
    # The mode is still error.
    with refused(SYNC_REFUSED):
        on_gpu(1.0)


@pytest.mark.parametrize("wait", [lambda _: torch.cuda.synchronize(), lambda x: x.sum().item()])
def test_a_copy_that_nobody_waited_for_holds_nothing_yet(wait):
    x = on_gpu(2.0, 3.0)
    copied, flags = x.to("cpu", non_blocking=True), (x > 5).to("cpu", non_blocking=True)
    x.fill_(9.0)
    assert copied.isnan().all() and flags.all()
    wait(x)
    assert copied.tolist() == [2.0, 3.0] and not flags.any()


def test_operators_are_counted_and_views_apart():
    x = torch.ones(2, 3, device="cuda")
    with counted() as counts:
        x.view(-1)[2:] + 1
    assert counts == {"views": 2, "operators": 1}
    with counted() as counts:
        torch.ones(3) + 1
        torch.empty(3, device="cuda")
    assert counts == {"views": 1}
    query = torch.ones(1, 2, 3, 4, device="cuda")
    with counted() as counts:
        F.scaled_dot_product_attention(query, query, query)
    assert counts == {"operators": 1}


def test_attention_is_that_of_the_cpu():
    query, key, bias = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 1, 1, 5)
    expected = F.scaled_dot_product_attention(query, key, key, attn_mask=bias)
    actual = F.scaled_dot_product_attention(query.cuda(), key.cuda(), key.cuda(), attn_mask=bias.cuda())
    assert torch.allclose(actual.cpu(), expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(functions.GRID, 1, 1, 2), (1, functions.GRID, 1, 2)])
def test_attention_has_no_more_rows_and_heads_than_a_grid(shape):
    query = torch.zeros(shape, device="cuda")
    assert F.scaled_dot_product_attention(query, query, query).shape == shape
    larger = torch.zeros([size + (size == functions.GRID) for size in shape], device="cuda")
    with refused("CUDA error: invalid argument"):
        F.scaled_dot_product_attention(larger, larger, larger)


# Autograd.


def _gradients(device):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 5), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 4)).to(device)
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]]).to(device)
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        optimiser.zero_grad()
        loss = F.cross_entropy(network(ids).flatten(0, 1), ids.flatten() % 4)
        loss.backward()
        optimiser.step()
    parameters = list(network.parameters())
    assert all(p.device == p.grad.device == torch.empty(0, device=device).device for p in parameters)
    return [x.detach().cpu() for p in parameters for x in (p, p.grad)]


def test_training_is_that_of_the_cpu():
    for on_cpu, on_device in zip(_gradients("cpu"), _gradients("cuda"), strict=True):
        assert torch.equal(on_cpu, on_device)


def test_second_derivatives_and_own_functions():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, scale):
            return 3 * ctx.saved_tensors[0] ** 2 * scale

    x = on_gpu(2.0).requires_grad_()
    (slope,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    assert (slope.item(), bend.item()) == (12.0, 12.0)


def test_gradients_reach_what_was_copied():
    x = torch.ones(2, requires_grad=True)
    (x.to("cuda") * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and not x.grad.is_cuda


# Memory.


def test_what_is_larger_than_the_memory_is_refused():
    with pretended(memory=4000):
        assert torch.cuda.mem_get_info() == (4000, 4000)
        x = torch.ones(1000, device="cuda")
        assert (x + 1).sum().item() == 2000
        for large in (lambda: torch.ones(1001, device="cuda"), lambda: x.double(), lambda: torch.cat([x, x])):
            with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
                large()


# Processes.


def test_nccl_sends_nothing_of_the_cpu(tmp_path):
    """In a group of one process, which is enough for what it refuses."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        group = torch.distributed.new_group(backend="nccl")
        x = on_gpu(1.0, 2.0)
        torch.distributed.all_reduce(x, group=group)
        torch.distributed.all_reduce(torch.ones(2))
        assert x.tolist() == [1.0, 2.0]
        with refused("No backend type associated with device type cpu"):
            torch.distributed.all_reduce(torch.ones(2), group=group)
    finally:
        torch.distributed.destroy_process_group()


# Random numbers.


def test_numbers_are_drawn_by_generators_of_the_device():
    generator = torch.Generator("cuda").manual_seed(3)
    first, second = (torch.randn(4, device="cuda", generator=generator).tolist() for _ in range(2))
    assert first != second
    assert torch.randn(4, device="cuda", generator=torch.Generator("cuda").manual_seed(3)).tolist() == first
    assert torch.randn(4, generator=torch.Generator().manual_seed(3)).tolist() != first
    for device, other_device in (("cuda", "cpu"), ("cpu", "cuda"), ("cuda:0", "cuda:1")):
        with refused("Expected a"):
            torch.randn(2, device=device, generator=torch.Generator(other_device))
    with refused("Expected a"):
        torch.ones(2, device="cuda").normal_(generator=torch.Generator())


def test_draws_on_a_gpu_leave_the_cpus_generator_alone():
    torch.manual_seed(1)
    on_cpu = torch.rand(3).tolist()
    torch.manual_seed(1)
    numbers = torch.rand(3, device="cuda").tolist()
    assert torch.rand(3).tolist() == on_cpu != numbers
    torch.manual_seed(1)
    assert torch.rand(3, device="cuda").tolist() == numbers
    assert torch.rand(3, device="cuda:1").tolist() == numbers


def test_states_are_kept_and_are_not_those_of_the_cpu():
    generator = torch.Generator("cuda")
    for get_state, set_state in (
        (generator.get_state, generator.set_state),
        (torch.cuda.get_rng_state, torch.cuda.set_rng_state),
    ):
        options = {"generator": generator} if get_state == generator.get_state else {}
        state = get_state()
        numbers = torch.rand(3, device="cuda", **options).tolist()
        set_state(state)
        assert torch.rand(3, device="cuda", **options).tolist() == numbers
        with refused("wrong size"):
            set_state(torch.get_rng_state())


# Graphs.


def captured(function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
        result = function()
    return graph, result


def test_a_graph_computes_when_it_is_replayed_with_what_its_buffers_hold():
    x, count = on_gpu(1.0, 2.0), on_gpu(0)
    graph, result = captured(lambda: (x.view(2, 1) * 2 + count.add_(1)).T)
    # The capture itself computes nothing.
    assert result.isnan().all() and count.item() == 0
    graph.replay()
    assert result.tolist() == [[3.0, 5.0]]
    x.copy_(on_gpu(10.0, 20.0))
    with counted() as counts:
        graph.replay()
    assert counts == {"graph launches": 1}
    assert result.tolist() == [[22.0, 42.0]] and count.item() == 2


def test_a_graph_reads_no_other_tensor_and_takes_no_other_branch():
    """Programs that do are wrong on a GPU: here, too."""
    variables = {"x": on_gpu(1.0), "double": True}
    graph, result = captured(lambda: variables["x"] * 2 if variables["double"] else variables["x"])
    variables["x"], variables["double"] = on_gpu(5.0), False
    graph.replay()
    assert result.item() == 2.0


def test_results_of_a_graph_are_reused():
    x = on_gpu(1.0)
    graph, result = captured(lambda: x + 1)
    graph.replay()
    reused, copied = result, result.clone()
    x.fill_(7.0)
    graph.replay()
    assert reused.item() == 8.0 and copied.item() == 2.0


COPIED = "Cannot copy between CPU and CUDA tensors during CUDA graph capture"
# CUDA refused an operation, and says when the capture ends that it is lost.
LOST = "previous error during capture"
COPYING = [
    *("tolist", "cpu", "copy to the CPU", "copy from the CPU", "copy into", "non-blocking copy", "values"),
    *("new values", "CPU index", "list index", "number at an index", "number at one place", "bincount"),
]


@pytest.mark.parametrize("case", [*WAITING, "non-blocking copy", "synchronize", "second capture", "replay"])
def test_a_capture_refuses_what_waits(case):
    more = {
        "non-blocking copy": lambda _: torch.ones(3).to("cuda", non_blocking=True),
        "synchronize": lambda _: torch.cuda.synchronize(),
        "second capture": lambda x: captured(lambda: x + 1),
        "replay": lambda _: earlier.replay(),
    }
    x = on_gpu(1.0, 2.0, 3.0)
    earlier, _ = captured(lambda: x + 1)
    message = {"replay": "during capturing", **dict.fromkeys(COPYING, COPIED)}.get(case, LOST)
    with refused(message) as error:
        captured(lambda: (WAITING | more)[case](x))
    assert (CAPTURE_REFUSED in str(error.value.__context__)) == (message == LOST)
    # It ends all the same.
    assert not torch.cuda.is_current_stream_capturing() and x.tolist() == [1.0, 2.0, 3.0]


def test_a_capture_allows_that_memory_is_returned():
    x = on_gpu(1.0)
    graph, result = captured(lambda: (torch.cuda.empty_cache(), x + 1)[1])
    graph.replay()
    assert result.item() == 2.0


def test_a_replay_draws_new_numbers():
    graph, result = captured(lambda: torch.rand(3, device="cuda"))
    graph.replay()
    first = result.tolist()
    graph.replay()
    assert result.tolist() != first


# Autocast.


def test_autocast_runs_products_in_bfloat16_and_sums_in_float32(machine):
    x, weight = torch.ones(2, 2, device="cuda"), torch.ones(2, 2, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        product = F.linear(x, weight) @ x
        in_bfloat16 = x.bfloat16()
        dtypes = {
            "product": product.dtype,
            "softmax": product.softmax(-1).dtype,
            "sum": product.sum().dtype,
            "cat": torch.cat([in_bfloat16, x]).dtype,
            "relu": in_bfloat16.relu().dtype,
            "double": (x.double() @ x.double()).dtype,
        }
    bfloat16, float32 = torch.bfloat16, torch.float32
    assert dtypes == {
        **{"product": bfloat16, "softmax": float32, "sum": float32, "cat": float32, "relu": bfloat16},
        "double": torch.float64,
    }
    assert (x @ x).dtype == float32
    assert {"linear"} <= machine.narrowed <= functions.NARROW
    product.sum().backward()
    assert weight.grad.dtype == float32


def test_autocasts_policy_is_that_of_pytorch():
    """PyTorch tests its own policy by these lists; names without arguments are read, nothing is run."""
    listing = Path(importlib.util.find_spec("torch").origin).parent / "testing/_internal/autocast_test_lists.py"
    lists: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(listing.read_text())):
        if isinstance(node, ast.ClassDef) and node.name == "AutocastTestLists":
            for child in ast.walk(node):
                if isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Attribute):
                    entries = child.value.elts if isinstance(child.value, ast.List) else []
                    firsts = [entry.elts[0] for entry in entries if isinstance(entry, ast.Tuple) and entry.elts]
                    names = {first.value for first in firsts if isinstance(first, ast.Constant)}
                    lists[child.targets[0].attr] = {str(name) for name in names}
    narrow = {name for key, names in lists.items() if key.endswith("fp16") for name in names}
    wide = {name for key, names in lists.items() if key.endswith("fp32") for name in names}
    promoted = {name for key, names in lists.items() if key.endswith("promote") for name in names}
    assert len(narrow) > 10 and len(wide) > 30 and len(promoted) > 5
    # Beside those of libraries, and of Python: what calls one of the others.
    libraries = {"_convolution", "convolution", "cudnn_convolution", "cudnn_convolution_transpose"}
    assert narrow - libraries == functions.NARROW - {"__rmatmul__", "lstm", "scaled_dot_product_attention"}
    # Of float32 since PyTorch 2.12; this project does not use it.
    assert wide | {"rms_norm"} == functions.FLOAT32 - {"__rdiv__", "__rpow__", "__rtruediv__", "cross_entropy"}
    # Arithmetic promotes types by itself.
    arithmetic = {"add", "div", "eq", "ge", "gt", "le", "lt", "mul", "ne"}
    assert promoted - arithmetic - {f"__{name}__" for name in arithmetic} - {"equal"} == functions.WIDEST
