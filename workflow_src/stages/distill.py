"""Stage distill: one shard of the training source, translated by the teacher: a JSON line a sentence, text and score.

Sentences that are longer than the teacher's positions get an empty text; encoding drops them by reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

from workflow_src.config.experiment import DistillationConfig
from workflow_src.data.lines import count_lines, read_lines
from workflow_src.data.shards import bounds, check_number, distillation_inputs, write_shard_record
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.batches import search_all
from workflow_src.jobs import add_runtime, log, parser, start
from workflow_src.records.atomic import atomic
from workflow_src.registry import (
    default_engine,
    distilling_engines,
    distilling_search,
    engines,
    families,
    import_object,
)
from workflow_src.runtime.device import Runtime, choose, keep_memory, set_threads
from workflow_src.spec import AUTOREGRESSIVE, MODEL, Family
from workflow_src.training.systems import check_subwords, load_system
from workflow_src.types import Hypotheses

CHUNK = 16384


def run(given) -> str:
    check_number(given.shard, given.shards)
    keep_memory()
    set_threads(given.threads)
    runtime = choose(given.device, given.precision, training=False)
    model, description = load_system(given.model, AUTOREGRESSIVE)
    model = model.to(device=runtime.device, dtype=runtime.dtype)
    subwords = Subwords.load(given.subwords)
    check_subwords(description, subwords, given.model)
    search = _search(given, model, families()[description["family"]], subwords, runtime)
    first, last = bounds(count_lines(given.source), given.shard, given.shards)
    limit = model.config.max_positions - 1
    done = skipped = 0
    began = time.perf_counter()
    given.output.with_suffix(".json").unlink(missing_ok=True)
    with atomic(given.output) as file:
        for chunk in _chunks(given.source, first, last):
            sources = subwords.encode_source(chunk)
            skipped += sum(len(source) > limit for source in sources)
            sources = [source if len(source) <= limit else [] for source in sources]
            found = search(sources)
            # A model may spell a line break, character by character; a line must stay a line.
            for text, score in zip(subwords.decode_target(found.tokens), found.scores, strict=True):
                file.write(json.dumps({"text": " ".join(text.split()), "score": score}, ensure_ascii=False) + "\n")
            done += len(chunk)
            rate = done / (time.perf_counter() - began)
            log.info(
                "%d of %d, %.0f sentences/s, %.1f minutes left",
                done,
                last - first,
                rate,
                (last - first - done) / rate / 60,
            )
    machine = {"device": str(runtime.device), "precision": str(runtime.dtype).removeprefix("torch.")}
    write_shard_record(given.output, given.settings, distillation_inputs(given), given.shard, given.shards, **machine)
    note = f", {skipped} too long and left empty" if skipped else ""
    return f"shard {given.shard} of {given.shards}: {done} sentences{note}"


Translate = Callable[[list[list[int]]], Hypotheses]


def _search(given, model, family: Family, subwords: Subwords, runtime: Runtime) -> Translate:
    """The reference search over many sources, by our own code or, with the same outputs, by an engine that distils.

    Raises ValueError for an engine asked for by name that does not compute such a model.
    """
    search = distilling_search()
    settings = DistillationConfig.model_validate(given.settings).search_settings()
    run_search = import_object(search.run)

    def own(sources: list[list[int]]) -> Hypotheses:
        return search_all(
            lambda source: run_search({MODEL: model}, source, settings), sources, given.batch, runtime.device
        )

    if given.engine == default_engine().name:
        return own
    named = given.engine != "auto"
    library = engines()[given.engine] if named else next(iter(distilling_engines()))
    reason = library.serves(family, search, settings)
    if named and reason:
        raise ValueError(f"engine {library.name} {reason}.")
    exact = runtime.device.type == "cpu" and runtime.dtype == torch.float32
    if not named and (reason or not (exact and library.installed())):
        return own
    engine = import_object(library.distil)(model, subwords, runtime, given.threads)
    log.info("translating with %s, float32", library.title)

    def fast(sources: list[list[int]]) -> Hypotheses:
        found, left = engine(sources, settings, given.batch)
        again = own([sources[i] for i in left])
        for place, i in enumerate(left):
            found.tokens[i], found.scores[i] = again.tokens[place], again.scores[place]
        return found

    return fast


def _chunks(path: Path, first: int, last: int):
    chunk: list[str] = []
    for number, line in enumerate(read_lines(path)):
        if number >= last:
            break
        if number >= first:
            chunk.append(line)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def arguments():
    made = parser(__doc__)
    made.add_argument("--model", type=Path, required=True)
    made.add_argument("--subwords", type=Path, required=True)
    made.add_argument("--source", type=Path, required=True)
    made.add_argument("--shard", type=int, required=True)
    made.add_argument("--shards", type=int, required=True)
    made.add_argument("--output", type=Path, required=True)
    made.add_argument("--batch", type=int, default=128, help="sentences decoded together")
    names = [engine.name for engine in distilling_engines()]
    made.add_argument("--engine", default="auto", choices=("auto", default_engine().name, *names))
    add_runtime(made)
    return made


if __name__ == "__main__":
    start(run, arguments())
