"""Stage decode: translations, one a line; beside them a JSON line each with score, length, steps and subwords."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from workflow_src.artifacts import atomic, read_chosen
from workflow_src.data.lines import read_lines
from workflow_src.stages.command import add_runtime, parser, start
from workflow_src.stages.engines import open_engine
from workflow_src.translate import Translator


def load_rescorer(given) -> Translator | None:
    """The autoregressive system that ranks candidates, where one was given."""
    return Translator.load(given.rescorer, given.device, given.precision, given.threads) if given.rescorer else None


def search_arguments(settings: dict[str, Any], rescorer: Translator | None) -> dict[str, Any]:
    """A decode's settings as arguments of `Translator.search`: the rescorer itself in the place of its name."""
    found = {name: value for name, value in settings.items() if name not in ("engine", "compute_type", "rescorer")}
    return found | ({"rescorer": rescorer} if rescorer else {})


def run(given) -> str:
    settings = given.settings | (read_chosen(given.chosen) if given.chosen else {})
    translator = open_engine(given.bundle, given.device, given.precision, given.threads, settings)
    wanted = search_arguments(settings, load_rescorer(given))
    lines = list(read_lines(given.source))
    began = time.perf_counter()
    found = translator.search(lines, **wanted, batch=given.batch, normalised=True)
    texts = translator.text(found.tokens)
    seconds = time.perf_counter() - began
    steps = found.steps or [0] * len(lines)
    candidates = found.candidates or [1] * len(lines)
    with atomic(given.output.with_suffix(".jsonl")) as details:
        for tokens, score, count, ranked in zip(found.tokens, found.scores, steps, candidates, strict=True):
            pieces = translator.subwords.pieces_target(tokens)
            record = {"score": score, "length": len(tokens), "steps": count, "candidates": ranked, "subwords": pieces}
            details.write(json.dumps(record, ensure_ascii=False) + "\n")
    with atomic(given.output) as file:
        file.writelines(f"{text}\n" for text in texts)
    return f"{len(lines)} sentences translated with {given.settings['search']}, {len(lines) / seconds:.0f} a second"


def arguments():
    made = parser(__doc__)
    made.add_argument("--bundle", type=Path, required=True)
    made.add_argument("--rescorer", type=Path, help="bundle of the autoregressive system that ranks candidates")
    made.add_argument("--chosen", type=Path, help="settings chosen on dev, which replace those given")
    made.add_argument("--source", type=Path, required=True, help="normalised text, one sentence a line")
    made.add_argument("--output", type=Path, required=True)
    made.add_argument("--batch", type=int, default=64, help="sentences decoded together")
    add_runtime(made)
    return made


if __name__ == "__main__":
    start(run, arguments())
