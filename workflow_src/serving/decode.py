"""What stages that translate a split share: their arguments, their inputs, and a record for every line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.jobs import add_runtime, log
from workflow_src.records.atomic import read_chosen
from workflow_src.registry import settings_of
from workflow_src.serving.folders import add_systems, load_systems, open_engine, systems_given


def translate(given: argparse.Namespace, lines: list[str], first_line: int = 1) -> Iterator[dict[str, Any]]:
    """For each line its text, score, length in subwords, steps, candidates, subwords, and its text without repeated
    subwords."""
    settings = given.settings | (read_chosen(given.chosen) if given.chosen else {})
    translator = open_engine(given.bundle, given.device, given.precision, given.threads, settings)
    search, systems = settings_of(settings), load_systems(given, settings)
    began = time.perf_counter()
    found = translator.search(lines, search, systems, batch=given.batch, normalised=True, first_line=first_line)
    texts = translator.text(found.tokens)
    seconds = time.perf_counter() - began
    joined = translator.text(found.tokens, "subwords")
    log.info("%d sentences, %.0f a second", len(lines), len(lines) / seconds)
    steps = found.steps or [0] * len(lines)
    candidates = found.candidates or [1] * len(lines)
    columns = (texts, found.tokens, found.scores, steps, candidates, joined)
    for text, tokens, score, count, ranked, without in zip(*columns, strict=True):
        pieces = translator.subwords.pieces_target(tokens)
        about = {"score": score, "length": len(pieces), "steps": count, "candidates": ranked, "subwords": pieces}
        yield {"text": text} | about | {WITHOUT_REPEATED_SUBWORDS: without}


def inputs_of(given: argparse.Namespace) -> dict[str, Path]:
    """Files that translations come from, by name."""
    inputs = {"bundle": given.bundle / "bundle.json", "source": given.source}
    inputs |= {role: folder / "bundle.json" for role, folder in systems_given(given).items()}
    return inputs | ({"chosen": given.chosen} if given.chosen else {})


def add_arguments(made: argparse.ArgumentParser) -> None:
    """What a whole decode and a shard of one are given."""
    made.add_argument("--bundle", type=Path, required=True)
    add_systems(made)
    made.add_argument("--chosen", type=Path, help="settings chosen on dev, which replace those given")
    made.add_argument("--source", type=Path, required=True, help="normalised text, one sentence a line")
    made.add_argument("--output", type=Path, required=True)
    made.add_argument("--batch", type=int, default=64, help="sentences decoded together")
    add_runtime(made)
