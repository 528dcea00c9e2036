"""Measure how fast one core of this machine trains systems and decodes with them; a process of its own runs this.

    python -m workflow_src.training.calibrate < systems.json > rates.json

Networks have the sizes of an experiment and random weights, sentences are random subwords of the mean length. A system
is trained for a few updates by the update of training jobs, and translates a few batches by its own search. The
result is time for each position and each sentence; `workflow_src/cli/calibration.py` computes rates from it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from workflow_src.config.experiment import TrainingConfig
from workflow_src.data.batching import pad
from workflow_src.data.encoded import EncodedCorpus, write
from workflow_src.families.build import build, build_objective
from workflow_src.registry import families, fill, import_object, needs, of_the_family, searches
from workflow_src.runtime.device import choose, keep_memory, set_threads
from workflow_src.runtime.processes import Group
from workflow_src.spec import BASE, parse
from workflow_src.training.update import Part, Updater

# Positions of the first update, from whose time the size of the timed ones follows.
FIRST_POSITIONS = 128
# Random networks rarely end a sentence. A batch of this many sentences shows the rate of larger ones.
SENTENCES = 32
FIRST_ID = 4


def networks(system: dict[str, Any], systems: dict[str, Any], sizes: dict[str, Any]) -> dict[str, nn.Module]:
    """Frozen random networks in the roles that a system works with, by role."""
    return {
        role: build(systems[name]["family"], systems[name]["model"], sizes).eval().requires_grad_(False)
        for role, name in system["filled"].items()
    }


def timed(run: Callable[[], Any], seconds: float, limit: int) -> tuple[float, int]:
    """Seconds of `run` in all and how often it ran: until `seconds` have passed, at least once, `limit` times at most.

    They are seconds of the processor, so that other work on the machine does not count.
    """
    began, count = time.process_time(), 0
    while count < limit and (count == 0 or time.process_time() - began < seconds):
        run()
        count += 1
    return time.process_time() - began, count


def seconds_a_position(
    system: dict[str, Any], filled: dict[str, nn.Module], model: nn.Module, request: dict[str, Any], seconds: float
) -> float:
    """Seconds of one thread that an update takes for each target position, from about `seconds` of updates."""
    family = families()[system["family"]]
    runtime = choose("cpu", request["precision"])
    config = parse(TrainingConfig, system["training"], "training")
    length = max(1, round(request["length"]))
    full_rows = max(1, config.batch_tokens // config.accumulate // length)
    first_rows = min(full_rows, max(1, FIRST_POSITIONS // length))
    generator = np.random.default_rng(0)
    sources, targets = generator.integers(FIRST_ID, request["sizes"]["target"], (2, full_rows, length)).tolist()
    if request["sizes"]["source"] < request["sizes"]["target"]:
        sources = generator.integers(FIRST_ID, request["sizes"]["source"], (full_rows, length)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "train", sources, targets, {})
        corpus = EncodedCorpus.open(Path(folder) / "train")
        roles = {role: network for role, network in filled.items() if role != BASE}
        objective = build_objective(family.name, system["objective"])
        updater = Updater(
            *(model.train(), objective, config, corpus, runtime, Group(), 1, filled.get(BASE)),
            split_parts=False,
            roles=roles,
        )
        middle = updater.max_steps // 2

        def step(rows: int) -> None:
            updater.update(middle, [Part(np.arange(rows), 0, 0, 0)])

        # The first update allocates moments and chooses kernels; the second one shows how much fits into the time.
        step(first_rows)
        once, _ = timed(lambda: step(first_rows), 0, 1)
        rows = min(full_rows, max(first_rows, int(first_rows * seconds / 2 / once)))
        if rows > first_rows:
            step(rows)
        passed, count = timed(lambda: step(rows), seconds, 20)
    return passed / (count * rows * length)


def decoding(
    system: dict[str, Any], filled: dict[str, nn.Module], model: nn.Module, request: dict[str, Any], seconds: float
) -> dict[str, float]:
    """Seconds of one thread for each sentence, mean subwords of an output, and subwords of a source."""
    search = searches()[system["search"]["search"]]
    settings = search.settings.model_validate(system["search"]["settings"])
    members = [(model.eval(), families()[system["family"]])]
    members += [
        (filled[role], families()[request["systems"][name]["family"]]) for role, name in system["filled"].items()
    ]
    length = max(1, round(request["length"]))
    generator = np.random.default_rng(0)
    sentences = min(SENTENCES, system["search"]["batch"])
    source = pad(generator.integers(FIRST_ID, request["sizes"]["source"], (sentences, length)).tolist(), eos=True)
    roles = fill(needs(settings), members, of_the_family(settings, {r: n for r, n in filled.items() if r != BASE}))
    run = import_object(search.run)
    mean_lengths = []

    def translate(source: torch.Tensor) -> None:
        with torch.no_grad():
            hypotheses = run(roles, source, settings)
        mean_lengths.append(sum(len(tokens) + 1 for tokens in hypotheses.tokens) / len(source))

    translate(source[:1])
    passed, count = timed(lambda: translate(source), seconds, 20)
    return {"seconds": passed / (count * sentences), "length": mean_lengths[-1], "source_length": length}


def measure(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Times of every system in `request["measured"]`, which share `request["seconds"]`.

    `request` has `systems` by name, as `workflow_src/cli/calibration.py` describes them; `sizes` of the vocabulary,
    the mean `length` of sentences in subwords, and the `precision` of training.
    """
    keep_memory()
    set_threads(1)
    torch.manual_seed(0)
    share = request["seconds"] / (3 * max(1, len(request["measured"])))
    times: dict[str, dict[str, Any]] = {}
    for name in request["measured"]:
        try:
            times[name] = _measured(request["systems"][name], request, share)
        except Exception as failure:
            raise RuntimeError(f"system {name}: {failure}") from failure
    return times


def _measured(system: dict[str, Any], request: dict[str, Any], seconds: float) -> dict[str, Any]:
    filled = networks(system, request["systems"], request["sizes"])
    model = build(system["family"], system["model"], request["sizes"])
    times: dict[str, Any] = {"position": seconds_a_position(system, filled, model, request, seconds)}
    if system["search"]:
        times["decoding"] = decoding(system, filled, model, request, seconds)
    return times


if __name__ == "__main__":
    json.dump(measure(json.load(sys.stdin)), sys.stdout)
