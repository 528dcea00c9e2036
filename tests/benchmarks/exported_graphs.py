"""Exported graphs against eager inference: milliseconds of CPU time. A benchmark.

    python tests/benchmarks/exported_graphs.py --bundle results/tatoeba/systems/score/seed-1/bundle \
        --source results/tatoeba/corpus/test.de

One sentence at a time, or `--batch` together (int8 goes one at a time in both). All rows take turns at every sentence;
a sentence's time is its least over rounds of the thread's CPU time, which other load disturbs little; a row's is the
mean over sentences. `same` is the share of sentences with eager inference's very tokens. `open` is the CPU time until
the first translation: an export with `--cache` empty.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.data.lines import read_lines
from workflow_src.engines.exported import ExportedGraphs
from workflow_src.serving.translator import Translator

Rows = dict[str, Callable[[list[list[int]]], Any]]


def eager(translator: Translator, settings) -> Callable[[list[list[int]]], Any]:
    run, networks = registry.import_object(registry.search_of(settings).run), translator.networks(settings)

    def translate(sources):
        with torch.no_grad():
            return run(networks, pad(sources, eos=True), settings, False)

    return translate


def rows_of(given: argparse.Namespace, folder: Path) -> tuple[Rows, list[list[int]]]:
    translator = Translator.load(given.bundle, "cpu", "float32", threads=1, engine="eager")
    own = {family.name: translator.models[name] for name, family in translator._families}
    rows: Rows = {}
    for word in given.searches:
        name, _, steps = word.partition(":")
        settings, _ = translator.settings(name, **({"steps": int(steps)} if steps else {}))
        if not given.skip_eager:
            rows[f"{word} eager"] = eager(translator, settings)
        for int8 in given.int8:
            made = ExportedGraphs(own, 1, int8, folder)
            rows[f"{word} {'int8' if int8 else 'float32'}"] = lambda s, m=made, c=settings: m.translate(s, c, False)
    lines = list(itertools.islice(read_lines(given.source), given.sentences))
    return rows, translator.subwords.encode_source(lines)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bundle", required=True)
    made.add_argument("--source", required=True, help="normalised text, one sentence a line")
    made.add_argument("--searches", nargs="+", default=["prior-mean", "delta:1", "score:1"], metavar="NAME[:STEPS]")
    made.add_argument("--sentences", type=int, default=100)
    made.add_argument("--batch", type=int, default=1)
    made.add_argument("--rounds", type=int, default=6)
    made.add_argument("--precisions", nargs="+", default=["float32", "int8"], choices=("float32", "int8"))
    made.add_argument("--skip-eager", action="store_true")
    made.add_argument("--cache", help="folder of exported graphs; a new one if it is not given")
    given = made.parse_args()
    given.int8 = [name == "int8" for name in given.precisions]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows, sources = rows_of(given, Path(given.cache or folder))
        sources.sort(key=len)
        parts = [sources[i : i + given.batch] for i in range(0, len(sources), given.batch)]
        opened, best = {}, {name: [float("inf")] * len(parts) for name in rows}
        for name, translate in rows.items():
            began = time.process_time()
            translate(parts[0])
            opened[name] = round(time.process_time() - began, 2)
        found: dict[str, list[Any]] = {name: [None] * len(parts) for name in rows}
        for _ in range(given.rounds):
            for number, part in enumerate(parts):
                for name, translate in rows.items():
                    began = time.thread_time()
                    tokens = translate(part).tokens
                    best[name][number] = min(best[name][number], time.thread_time() - began)
                    found[name][number] = tokens
    for name in rows:
        reference = found.get(f"{name.split()[0]} eager", found[name])
        pairs = [
            pair for mine, theirs in zip(found[name], reference, strict=True) for pair in zip(mine, theirs, strict=True)
        ]
        same = sum(a == b for a, b in pairs) / len(pairs)
        figures = {"cpu_ms": round(1000 * sum(best[name]) / len(sources), 3), "same": round(same, 3)}
        print(json.dumps({"row": name, **figures, "open_cpu_s": opened[name]}))


if __name__ == "__main__":
    main()
