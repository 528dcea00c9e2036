"""Stage distill: one shard of the training source, translated by the teacher: a JSON line a sentence, text and score.

Sentences that are longer than the teacher's positions get an empty text; encoding drops them by reason.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from workflow_src.artifacts import atomic
from workflow_src.data.lines import count_lines, read_lines
from workflow_src.data.subwords import Subwords
from workflow_src.inference.batches import search_all
from workflow_src.inference.beam import beam_search
from workflow_src.stages.command import add_runtime, log, parser, start
from workflow_src.training.runtime import choose, keep_memory, set_threads
from workflow_src.training.systems import check_subwords, load_system

CHUNK = 16384


def bounds(lines: int, shard: int, shards: int) -> tuple[int, int]:
    """First line of a shard and the one after its last; shards differ by one line at most."""
    return lines * shard // shards, lines * (shard + 1) // shards


def run(given) -> str:
    if not 0 <= given.shard < given.shards:
        raise ValueError(f"--shard is {given.shard}; it must be from 0 to {given.shards - 1}.")
    keep_memory()
    set_threads(given.threads)
    runtime = choose(given.device, given.precision, training=False)
    model, description = load_system(given.model, "transformer")
    model = model.to(device=runtime.device, dtype=runtime.dtype)
    subwords = Subwords.load(given.subwords)
    check_subwords(description, subwords, given.model)
    first, last = bounds(count_lines(given.source), given.shard, given.shards)
    settings = given.settings
    limit = model.config.max_positions - 1
    done = skipped = 0
    began = time.perf_counter()
    with atomic(given.output) as file:
        for chunk in _chunks(given.source, first, last):
            sources = subwords.encode_source(chunk)
            skipped += sum(len(source) > limit for source in sources)
            sources = [source if len(source) <= limit else [] for source in sources]
            found = search_all(
                lambda source: beam_search(model, source, settings["beam"], settings["length_penalty"]),
                sources,
                given.batch,
                runtime.device,
            )
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
    note = f", {skipped} too long and left empty" if skipped else ""
    return f"shard {given.shard} of {given.shards}: {done} sentences{note}"


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
    add_runtime(made)
    return made


if __name__ == "__main__":
    start(run, arguments())
