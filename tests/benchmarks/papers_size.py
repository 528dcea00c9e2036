"""Milliseconds a batch at the papers' size: autoregressive and non-autoregressive searches, every engine. A benchmark.

    python tests/benchmarks/papers_size.py --device cpu
    python tests/benchmarks/papers_size.py --device cuda --precision bfloat16

Networks have random weights, a shared vocabulary and presets of `config/models/`. All sources have the same length, and
all outputs that of `--target`: autoregressive searches end no sentence before its limit, predicted lengths are forced.
Where drafts are checked, the drafter's time counts, and in place of its outputs come those of greedy search in the same
precision, of which a share of the words is right and the others, at places drawn at random, are replaced. The passes
depend on the places: a figure is the mean over several draws. `--block` sets the words that a pass checks.
Every round calls all engines of a row in turn. A row's figure on a GPU is the median of the calls. On a CPU it is the
least processor time of a call on one thread, which other load disturbs less; CTranslate2 is there where it is
installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import random
import statistics
import tempfile
import time
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import torch
import yaml
from torch import nn

from workflow_src.data.batching import pad
from workflow_src.decoding.drafts import DraftSearch
from workflow_src.decoding.search import open_search, own_networks
from workflow_src.engines.choose import open_session
from workflow_src.engines.ctranslate2 import CTranslate2Session
from workflow_src.engines.ctranslate2_spec import write_model
from workflow_src.engines.session import Request, SessionConfig
from workflow_src.families.build import build
from workflow_src.nn.layers import narrow_stacks
from workflow_src.registry import engines, families, search_of, searches
from workflow_src.spec import SearchSettings
from workflow_src.types import EOS, UNK

LIKELY, UNLIKELY = 1e6, -1e9
# Limits of outputs are this much above the ratio times the source's length.
MARGIN = 10
# Sentences at least over which places of wrong words are averaged.
DRAFTED = 12


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    family: str
    search: str
    # Laid over `--preset`.
    preset: str | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Of words of drafts that are right, where a CTC system's are checked.
    share: float | None = None


ROWS = (
    Row("greedy", "transformer", "greedy"),
    Row("beam 4", "transformer", "beam", settings={"beam": 4}),
    Row("greedy, 12 + 1 layers", "transformer", "greedy", "base-12-1"),
    Row("verified, 0.6 right", "transformer", "verified", share=0.6),
    Row("verified, 0.8 right", "transformer", "verified", share=0.8),
    Row("verified, 0.9 right", "transformer", "verified", share=0.9),
    Row("CTC, greedy", "nat", "ctc-greedy"),
    Row("prior mean", "lvm", "prior-mean"),
    Row("delta, L = 1", "lvm", "delta", settings={"steps": 1}),
    Row("score, L = 1", "lvm", "score", settings={"steps": 1}),
    Row("score, L = 4", "lvm", "score", settings={"steps": 4}),
)
Call = Callable[[], Any]


def network(family: str, preset: str, vocabulary: int) -> nn.Module:
    presets = yaml.safe_load(families()[family].presets.read_text(encoding="utf-8"))
    torch.manual_seed(1)
    model = build(family, presets[preset], {"source": vocabulary, "target": vocabulary, "joint": True})
    return model.eval().requires_grad_(False)


def forced(model: nn.Module, family: str, difference: int) -> nn.Module:
    """The model with outputs of one length, that of the source plus `difference`."""
    if family == "transformer":
        model.output_bias[EOS] = UNLIKELY
    if family == "lvm":
        model.length.outer.bias[len(model.length.outer.bias) // 2 + difference] = LIKELY
        # A word at every position.
        model.output_bias[EOS] = UNLIKELY
    return model


def settings_of(row: Row, options: argparse.Namespace) -> SearchSettings:
    limit = {"max_length_ratio": (options.target - MARGIN) / options.source} if row.family == "transformer" else {}
    block = {"block": options.block} if row.share is not None and options.block else {}
    return searches()[row.search].settings(**row.settings, **limit, **block)


def worsened(words: list[int], share: float, draw: random.Random, vocabulary: int) -> list[int]:
    """Words of which the share stays, rounded to whole words, and the others become other words."""
    worse, first = list(words), UNK + 1
    for place in draw.sample(range(len(words)), round((1 - share) * len(words))):
        size = vocabulary - first
        worse[place] = first + (words[place] - first + draw.randrange(1, size)) % size
    return worse


def checking(call: Call, drafts: list[list[list[int]]]) -> Call:
    """A call that makes its drafts, and checks these in place of them."""

    def make(_search, sources, translate):
        translate(sources)
        return drafts

    def called() -> Any:
        with unittest.mock.patch.object(DraftSearch, "drafts", make):
            return call()

    return called


def drafted(call: Call, row: Row, options: argparse.Namespace, sentences: int) -> list[Call]:
    """The call; where drafts are checked, calls with several draws of drafts, of whose words the row's share is right.

    The right ones are those of greedy search in the precision of the call: its output, whatever the drafts are.
    """
    if row.share is None:
        return [call]
    outputs = checking(call, [[[]]] * sentences)().tokens
    draw = random.Random(3)
    draws = [
        [[worsened(words, row.share, draw, options.vocabulary)] for words in outputs]
        for _ in range(math.ceil(DRAFTED / sentences))
    ]
    return [checking(call, drafts) for drafts in draws]


def calls_of(row: Row, options: argparse.Namespace, batch: int) -> Iterator[tuple[str, list[Call]]]:
    """What computes a row, and calls of each: one for each draw of drafts."""
    device, preset = torch.device(options.device), row.preset or options.preset
    difference = options.target - options.source
    models = {row.family: forced(network(row.family, preset, options.vocabulary), row.family, difference)}
    if row.search == "score":
        models["score"] = network("score", options.preset, options.vocabulary)
    if row.share is not None:
        # Random networks repeat the word that they read; here each position says another one.
        models[row.family].target_embedding.scale = 0.05
        models[row.family].target_embedding.positions.normal_(std=20.0)
        models["nat"] = network("nat", options.preset, options.vocabulary)
    settings = settings_of(row, options)
    draw = torch.Generator().manual_seed(2)
    shape = batch, options.source
    sources = torch.randint(UNK + 1, options.vocabulary, shape, generator=draw).tolist()
    served = engines()["ctranslate2"].serves(families()[row.family], search_of(settings), settings) is None
    if device.type == "cpu" and served:
        yield from ctranslate2_calls(models[row.family], settings, sources, options)
    dtype = getattr(torch, options.precision)
    for name, model in models.items():
        model.to(device)
        if dtype != torch.float32:
            # As `Translator` does.
            models[name] = model.to(dtype) if hasattr(model, "start") else narrow_stacks(model, dtype)
    search = open_search(own_networks(models, settings), settings, False)
    if row.family != "transformer" or device.type == "cpu" or options.eager:
        call = lambda: search.translate(pad(sources, eos=True).to(device))  # noqa: E731
        yield "eager", drafted(call, row, options, batch)
    declared = engines()["cuda_graphs" if device.type == "cuda" else "onnxruntime"]
    if declared.serves(families()[row.family], search_of(settings), settings) is None:
        for kind in declared.compute_types if device.type == "cpu" else [options.precision]:
            config = SessionConfig(str(device), declared.modes[kind], torch.get_num_threads(), models)
            engine = open_session(declared, config)
            request = Request(settings, own_networks(models, settings))
            engine.prepare(request, batch == 1)
            call = functools.partial(engine.search, sources, request)
            yield f"{declared.title}, {kind}", drafted(call, row, options, batch)


def ctranslate2_calls(model: nn.Module, settings, sources, options) -> Iterator[tuple[str, list[Call]]]:
    declared = engines()["ctranslate2"]
    if not declared.installed():
        return
    names = [f"w{number}" for number in range(options.vocabulary)]
    pieces = {"source": names, "target": names}
    with tempfile.TemporaryDirectory() as folder:
        write_model(model, pieces, folder)
        for kind in ("float32", "int8"):
            engine = CTranslate2Session(folder, pieces, model.config.max_positions, compute_type=kind)
            decode = functools.partial(engine.search, sources, Request(settings))
            yield f"{declared.title}, {kind}", [decode]


def milliseconds(call: Call, device: str) -> float:
    if device == "cpu":
        began = time.process_time()
        call()
        return 1e3 * (time.process_time() - began)
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--source", type=int, default=25)
    parser.add_argument("--target", type=int, default=25)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--block", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", nargs="+", help="words that names of rows contain; default: all rows")
    parser.add_argument("--eager", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    kind = torch.device(options.device).type
    print("| search | engine | " + " | ".join(f"batch of {batch}" for batch in options.batches) + " |")
    print("| -- | -- |" + " -: |" * len(options.batches))
    for row in ROWS:
        if options.rows and not any(word in row.name for word in options.rows):
            continue
        figures: dict[str, list[float]] = {}
        for batch in options.batches:
            calls = list(calls_of(row, options, batch))
            times: dict[str, list[list[float]]] = {name: [[] for _ in several] for name, several in calls}
            for number in range(options.rounds + 1):
                for name, several in calls:
                    for measured, call in zip(times[name], several, strict=True):
                        each = milliseconds(call, kind)
                        # The first call prepares.
                        if number:
                            measured.append(each)
            best = min if kind == "cpu" else statistics.median
            for name, measured in times.items():
                figures.setdefault(name, []).append(statistics.fmean(map(best, measured)))
        for name, cells in figures.items():
            print(f"| {row.name} | {name} | " + " | ".join(f"{cell:.3g}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
