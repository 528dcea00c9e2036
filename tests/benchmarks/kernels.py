"""Operators and synchronisations of every search, for one sentence, counted on a pretended GPU.

    python tests/benchmarks/kernels.py

prints the first table of `docs/kernels.md`, and where there is a GPU the second. Networks are the presets `tiny` with
random weights; counts depend on layers, steps and lengths alone. Autoregressive searches write ten subwords.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from workflow_src.decoding.batches import search_all
from workflow_src.decoding.search import open_search, own_networks
from workflow_src.engines.cuda_graphs import CapturedSearches
from workflow_src.engines.session import Request
from workflow_src.families.build import build
from workflow_src.registry import families, searches
from workflow_src.types import EOS, Hypotheses

# The stand-ins of these tests, which are not on the path of a script in this folder.
sys.path.append(str(Path(__file__).resolve().parents[1]))
from pretended_cuda import counted, pretended

SIZES = {"source": 50, "target": 50, "joint": True}
SENTENCE = [5, 9, 6, 12, 7, 30]


@dataclasses.dataclass(frozen=True)
class Row:
    """What is counted: a search of a family's system, with settings; `more` is laid over the family's preset."""

    search: str
    family: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The family of another system that the search works with.
    other: str | None = None

    @property
    def name(self) -> str:
        settings = {name: value for name, value in self.settings.items() if name != "max_length_ratio"}
        return ", ".join([self.search, self.family, *(f"{name} {value}" for name, value in settings.items())])


VAE = {"latent": "vae", "posterior_layers": 1}
LENGTHS = {"loss": "axe"}
ROWS = (
    Row("ctc-greedy", "nat"),
    Row("ctc-beam", "nat"),
    Row("npd", "nat", {"draws": 5}, VAE),
    Row("argmax", "nat", more=LENGTHS),
    Row("argmax", "nat", {"lengths": 5}, LENGTHS),
    Row("prior-mean", "lvm"),
    Row("delta", "lvm", {"steps": 1}),
    Row("delta", "lvm", {"steps": 4}),
    Row("score", "lvm", {"steps": 1}, other="score"),
    Row("score", "lvm", {"steps": 4}, other="score"),
    Row("energy", "lvm", {"steps": 1}, other="energy"),
    Row("latent-search", "lvm", {"lengths": 5, "samples": 5, "steps": 1, "refinement": "delta"}),
    Row("mask-predict", "cmlm", {"iterations": 4, "length_beam": 5}),
    Row("iterative-refinement", "inat", {"passes": 4}),
    Row("graph-path", "dat"),
    Row("graph-viterbi", "dat"),
    Row("graph-beam", "dat"),
    Row("greedy", "transformer", {"max_length_ratio": 1e-6}),
    Row("beam", "transformer", {"beam": 4, "max_length_ratio": 1e-6}),
    Row("verified", "transformer", {"max_length_ratio": 1e-6}, other="nat"),
)


def network(family: str, more: Mapping[str, Any]) -> nn.Module:
    """A system's network with random weights; autoregressive ones end no sentence before its limit."""
    declared = families()[family]
    preset = yaml.safe_load(declared.presets.read_text(encoding="utf-8"))["tiny"]
    torch.manual_seed(1)
    model = build(family, {**preset, **more}, SIZES)
    if family == "transformer":
        nn.init.constant_(model.output_bias[EOS], -1e9)
    return model.eval().requires_grad_(False)


def networks(row: Row) -> dict[str, nn.Module]:
    """By family."""
    own = {row.family: network(row.family, row.more)}
    return own | ({row.other: network(row.other, {})} if row.other else {})


def search_of(
    row: Row, device: torch.device, sentences: Sequence[Sequence[int]] = (SENTENCE,)
) -> Callable[[], Hypotheses]:
    """The search of sentences, as a translator calls it."""
    models = {family: model.to(device) for family, model in networks(row).items()}
    declared = searches()[row.search]
    settings = declared.settings(**row.settings)
    search = open_search(own_networks(models, settings), settings, scored=False)
    return lambda: search_all(search.translate, sentences, 64, device)


def eager(row: Row) -> Counter[str]:
    """What a search of one sentence takes without graphs."""
    search = search_of(row, torch.device("cuda"))
    search()
    with counted() as counts:
        search()
    return counts


def captured_search_of(row: Row) -> Callable[[], Hypotheses] | None:
    """The search of a sentence by a captured graph; None where no graph serves."""
    device, declared = torch.device("cuda"), searches()[row.search]
    settings = declared.settings(**row.settings)
    if not (declared.program or declared.positions or declared.blocks) or declared.varies(settings):
        return None
    models = {family: model.to(device) for family, model in networks(row).items()}
    engine, request = CapturedSearches(models, device), Request(settings, own_networks(models, settings))
    return lambda: engine.search([SENTENCE], request)


def captured(row: Row) -> Counter[str] | None:
    """What a sentence takes whose graph is captured; None where no graph serves."""
    search = captured_search_of(row)
    if search is None:
        return None
    search()
    with counted() as counts:
        search()
    return counts


HEAD = (
    "| search | operators | views | synchronisations | captured: launches | operators | synchronisations |",
    "| -- | --: | --: | --: | --: | --: | --: |",
)


def line(row: Row) -> str:
    """A row of the table; to be called where GPUs are pretended."""
    counts, graph = eager(row), captured(row)
    cells: list[int | str] = [counts[name] for name in ("operators", "views", "synchronisations")]
    names = ("graph launches", "operators", "synchronisations")
    cells += [graph[name] if graph else "" for name in names]
    return "| " + " | ".join([row.name, *map(str, cells)]) + " |"


# On a real GPU.

REAL_HEAD = (
    "| search | kernels | synchronisations | ms | captured: kernels | synchronisations | ms |",
    "| -- | --: | --: | --: | --: | --: | --: |",
)


def measured_cells(search: Callable[[], Hypotheses], calls: int = 40) -> list[str]:
    """Kernels, synchronisations as PyTorch warns of them, and the median of milliseconds."""
    for _ in range(5):
        search()
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        search()
        torch.cuda.set_sync_debug_mode("default")
    waits = sum("called a synchronizing" in str(warning.message) for warning in caught)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        search()
        torch.cuda.synchronize()
    names = [event.name for event in profiler.events() if event.device_type == DeviceType.CUDA]
    kernels = sum(not name.startswith(("Memcpy", "Memset")) for name in names)
    milliseconds = []
    for _ in range(calls):
        torch.cuda.synchronize()
        began = time.perf_counter()
        search()
        torch.cuda.synchronize()
        milliseconds.append(1e3 * (time.perf_counter() - began))
    return [str(kernels), str(waits), f"{statistics.median(milliseconds):.2f}"]


def real_line(row: Row) -> str:
    graph = captured_search_of(row)
    cells = measured_cells(search_of(row, torch.device("cuda"))) + (measured_cells(graph) if graph else ["", "", ""])
    return "| " + " | ".join([row.name, *cells]) + " |"


if __name__ == "__main__":
    with pretended():
        print(*HEAD, *map(line, ROWS), sep="\n")
    if torch.cuda.is_available():
        print(f"\n{torch.cuda.get_device_name()}, PyTorch {torch.__version__}", *REAL_HEAD, sep="\n")
        print(*map(real_line, ROWS), sep="\n")
