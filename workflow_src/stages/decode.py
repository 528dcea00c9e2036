"""Stage decode: translations, one a line; beside them a JSON line each with score, length, steps and subwords."""

from __future__ import annotations

import json
import time
from pathlib import Path

from workflow_src.artifacts import atomic
from workflow_src.data.lines import read_lines
from workflow_src.stages.command import add_runtime, parser, start
from workflow_src.translate import Translator


def run(given) -> str:
    settings = {name: value for name, value in given.settings.items() if name not in ("engine", "compute_type")}
    # A compute type changes translations, so it is a setting of the decode; the machine's precision is not.
    precision = given.settings.get("compute_type", given.precision)
    # Only float16 needs a GPU, whose libraries CTranslate2 may not find; quality is the same on CPUs.
    on_cpu = given.device == "auto" and given.settings.get("compute_type") in ("float32", "int8")
    device = "cpu" if on_cpu else given.device
    translator = Translator.load(given.bundle, device, precision, given.threads)
    lines = list(read_lines(given.source))
    began = time.perf_counter()
    found = translator.search(lines, **settings | {"batch": given.batch}, normalised=True)
    texts = translator.text(found.tokens)
    seconds = time.perf_counter() - began
    steps = found.steps or [0] * len(lines)
    with atomic(given.output.with_suffix(".jsonl")) as details:
        for tokens, score, count in zip(found.tokens, found.scores, steps, strict=True):
            pieces = translator.subwords.pieces_target(tokens)
            record = {"score": score, "length": len(tokens), "steps": count, "subwords": pieces}
            details.write(json.dumps(record, ensure_ascii=False) + "\n")
    with atomic(given.output) as file:
        file.writelines(f"{text}\n" for text in texts)
    return f"{len(lines)} sentences translated with {given.settings['search']}, {len(lines) / seconds:.0f} a second"


def arguments():
    made = parser(__doc__)
    made.add_argument("--bundle", type=Path, required=True)
    made.add_argument("--source", type=Path, required=True, help="normalised text, one sentence a line")
    made.add_argument("--output", type=Path, required=True)
    made.add_argument("--batch", type=int, default=64, help="sentences decoded together")
    add_runtime(made)
    return made


if __name__ == "__main__":
    start(run, arguments())
