"""Measure how fast one core of this machine trains and decodes; a process of its own runs this.

    python -m workflow_src.training.calibrate SECONDS

prints {"training": …, "decoding": …, "start": …}: floating-point operations of matrix products a second, of the
Transformer of the experiment `demo`, and seconds until its process can compute. It has random weights, and
sentences are random subwords. It is trained by the update of training jobs, with full batches, and translates by its
own beam search.
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
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from workflow_src.config import Plan, load
from workflow_src.config.costs import sentence_length
from workflow_src.config.files import experiment_file, read_yaml
from workflow_src.config.roles import fill, needs
from workflow_src.data.batching import pad
from workflow_src.data.encoded import EncodedCorpus, write
from workflow_src.decoding.search import open_search
from workflow_src.families.build import build, build_objective
from workflow_src.runtime.device import choose, keep_memory, set_threads
from workflow_src.training.update import Part, Task, Updater

EXPERIMENT, SYSTEM = "demo", "teacher"
# Translated together. A batch of this many shows the rate of larger ones.
SENTENCES = 32
FIRST_ID = 4


def seconds_each(run: Callable[[], Any], seconds: float) -> float:
    """Mean seconds of `run`, which runs until `seconds` have passed. What the first time prepares is not timed.

    They are seconds of the processor, so that other work on the machine does not count.
    """
    run()
    began, count = time.process_time(), 0
    while count == 0 or time.process_time() - began < seconds:
        run()
        count += 1
    return (time.process_time() - began) / count


def rate(run: Callable[[], Any], seconds: float) -> float:
    """Operations of matrix products a second of `run`."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / seconds_each(run, seconds)


def training_rate(plan: Plan, model: nn.Module, seconds: float) -> float:
    """Operations a second of updates with a full batch."""
    system, length = plan.system(SYSTEM), round(sentence_length(plan))
    rows = system.training.batch_tokens // length
    size = plan.recipe.subwords.size
    sources, targets = np.random.default_rng(0).integers(FIRST_ID, size, (2, rows, length)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "train", zip(sources, targets, strict=True), {})
        corpus = EncodedCorpus.open(Path(folder) / "train")
        objective = build_objective(system.family.name, system.objective)
        runtime = choose("cpu", plan.config.runtime.precision)
        updater = Updater(Task(model.train(), objective, corpus, system.training, 1, runtime))
        return rate(lambda: updater.update(1, [Part(np.arange(rows), 0, 0, 0)]), seconds)


def decoding_rate(plan: Plan, model: nn.Module, seconds: float) -> float:
    """Operations a second of the first decode of the experiment that searches with the system alone."""
    system, length = plan.system(SYSTEM), round(sentence_length(plan))
    decode = next(each for each in plan.loaded.decodes if each.system == SYSTEM and not each.others)
    settings = decode.combinations[0]
    search = open_search(fill(needs(settings), [(model.eval(), system.family)], {}), settings)
    ids = np.random.default_rng(0).integers(FIRST_ID, plan.recipe.subwords.size, (SENTENCES, length)).tolist()
    source = pad(ids, eos=True)
    return rate(lambda: search.translate(source), seconds)


def measure(seconds: float) -> dict[str, float]:
    """Operations a second of one thread in training and in decoding, from about `seconds` of both; and `start`, seconds
    of the processor since this process began."""
    keep_memory()
    set_threads(1)
    torch.manual_seed(0)
    # As shipped: settings of `config/config.yaml` do not change it.
    plan = Plan(load(read_yaml(experiment_file(EXPERIMENT))))
    size, system = plan.recipe.subwords.size, plan.system(SYSTEM)
    sizes = {"source": size, "target": size, "joint": plan.recipe.subwords.joint}
    model = build(system.family.name, system.model, sizes)
    start = time.process_time()
    # Before the training, after which it would end sentences early.
    decoding = decoding_rate(plan, model, seconds / 2)
    return {"training": training_rate(plan, model, seconds / 2), "decoding": decoding, "start": start}


if __name__ == "__main__":
    json.dump(measure(float(sys.argv[1])), sys.stdout)
