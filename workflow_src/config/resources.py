"""Memory and minutes that jobs request of a cluster, from the sizes of models, corpus and budgets alone. No torch here.

Requests are generous bounds, not forecasts: a limit that is too low ends a job, one that is too high lets it wait a
little longer in the queue. A job that is ended all the same is retried with larger requests:

    memory     x 1.5 each time, up to 4 x, and never more than runtime.largest_job
    minutes    x 2 each time, never more than runtime.longest_job, the limit of the partition

A training that needs longer than the limit goes on from its state when it is retried; other jobs do not, and are cut
smaller instead (`distillation.TEACHER.shards`).

Assumed rates are well below measured ones: GPUs at the low end of the shares of `continuum estimate`, processors at 5
Gflop/s a thread in training (82 measured with small models on one thread of a Xeon with matrix units) and 1 Gflop/s in
decoding; times are then doubled.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

from workflow_src.config.costs import (
    HELD_OUT,
    WIDE,
    decode_operations,
    decoding_operations,
    layers,
    operations_a_position,
    parameters,
    scoring_operations,
    sentence_length,
    sized,
    training_pairs,
    updates,
    vocabulary_size,
    widest,
)
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import Decode
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.registry import metrics, search_of

# Pairs where neither the dataset nor the configuration says how many there are.
UNKNOWN_PAIRS = 5_000_000
# Floating-point operations a second: of one GPU by width of the model, of one thread.
GPU_TRAINING = {"wide": 30e12, "narrow": 9e12}
GPU_DECODING = 0.9e12
THREAD_TRAINING = 5e9
THREAD_DECODING = 1e9
# Megabytes of a process that has imported PyTorch, and of one that has opened a GPU.
PROCESS, GPU_PROCESS = 1500, 6000
MEMORY_STEP, MEMORY_MOST, MINUTES_STEP = 1.5, 4.0, 2
STARTING_MINUTES = 15
# Counting n-grams: memory for each subword of the text, and subwords a minute, with room to spare.
COUNTED_BYTES, COUNTED_A_MINUTE = 600, 4e6
# Of stages that share a text out to processes, one a thread: at most so many, one for so many pairs, megabytes of each.
MOST_THREADS, PAIRS_A_THREAD, WORKER = 8, 100_000, 250


@dataclasses.dataclass(frozen=True)
class Ask:
    """Megabytes and minutes of a job, and what each pair of the corpus adds to them.

    `shared_out`: the job shares its text out to processes.
    """

    megabytes: int = 2000
    minutes: int = STARTING_MINUTES
    bytes_a_pair: int = 0
    pairs_a_minute: float = math.inf
    shared_out: bool = False

    def of(self, pairs: int) -> tuple[float, float]:
        """Megabytes and minutes for a corpus of so many pairs."""
        workers_mb = WORKER * min(pairs // PAIRS_A_THREAD, MOST_THREADS) if self.shared_out else 0
        return (
            self.megabytes + workers_mb + pairs * self.bytes_a_pair / 1e6,
            self.minutes + pairs / self.pairs_a_minute,
        )


# Rules whose need follows from the corpus alone; those of others follow from sizes of models too.
ASKS = {
    "download": Ask(minutes=240),
    "download_monolingual": Ask(minutes=240),
    # Filters that remember pairs, and language identification.
    "clean": Ask(bytes_a_pair=100, pairs_a_minute=250_000, shared_out=True),
    "normalise": Ask(bytes_a_pair=500, pairs_a_minute=50_000, shared_out=True),
    "normalise_monolingual": Ask(bytes_a_pair=100, pairs_a_minute=50_000, shared_out=True),
    "learn_subwords": Ask(bytes_a_pair=1500, pairs_a_minute=50_000),
    "encode": Ask(bytes_a_pair=200, pairs_a_minute=50_000, shared_out=True),
    "merge_distilled": Ask(bytes_a_pair=500, pairs_a_minute=500_000),
    "keep_likely": Ask(bytes_a_pair=300, pairs_a_minute=100_000),
    "score_quality": Ask(4000, 60),
    "compare_rows": Ask(4000, 120),
    "report": Ask(4000, 60),
    "finish_bundle": Ask(minutes=30),
}
# Bytes a pair where the corpus is held in memory, to be split by connected groups.
SPLIT_BYTES = 2500


def gpus(device: str) -> int:
    """GPUs that a job requests with the setting `runtime.device`, as far as planning sees them: 1 or 0."""
    return int(device.startswith("cuda") or (device == "auto" and shutil.which("nvidia-smi") is not None))


class Requests:
    """Resources of each rule. `memory(rule)` and `minutes(rule)` are functions for `resources:`.

    A shard's job requests its own part, by the number of shards in its name. A decode that has shards only joins
    them. `monolingual`: lines of text of the source language, None where unknown.
    """

    def __init__(self, plan: Plan, gpu: bool, monolingual: int | None = None):
        self.pairs = training_pairs(plan) or UNKNOWN_PAIRS
        # Text of one language is often the larger one.
        self.lines = monolingual or max(self.pairs, UNKNOWN_PAIRS)
        self.length = sentence_length(plan)
        self.plan = sized(plan, self.pairs, self.length, self.lines)
        self.gpu = gpu
        runtime = plan.config.runtime
        self.threads, self.devices, self.nodes = runtime.training_threads, runtime.devices, runtime.nodes
        self.longest, self.largest = runtime.longest_job, runtime.largest_job
        self.cpu_partition, self.gpu_partition = runtime.partition, runtime.gpu_partition
        # Once for each rule, system, search and number of shards, not once for each of its jobs.
        self._need = cache(self._job_need)

    def memory(self, rule: str) -> Callable[..., int]:
        """A function of (wildcards, attempt, input): megabytes."""

        def megabytes(wildcards: Any, attempt: int, input: Any = None) -> int:
            growth = min(MEMORY_STEP ** (attempt - 1), MEMORY_MOST)
            megabytes_needed = math.ceil(self.need(rule, wildcards, input)[0] * growth)
            return min(megabytes_needed, self.largest) if self.largest else megabytes_needed

        return megabytes

    def corpus_threads(self, rule: str, wildcards: Any = None) -> int:
        """Threads of a stage that shares a text out to processes: more for a larger text, one for dev and test."""
        text, split = (str(getattr(wildcards, name, "")) for name in ("text", "split"))
        if split not in ("", "train"):
            return 1
        monolingual = rule == "normalise_monolingual" or text.startswith(MONOLINGUAL)
        pairs = self.lines if monolingual else self.pairs
        return min(max(pairs // PAIRS_A_THREAD, 1), MOST_THREADS)

    def minutes(self, rule: str) -> Callable[..., int]:
        """A function of (wildcards, attempt, input): minutes."""

        def minutes(wildcards: Any, attempt: int, input: Any = None) -> int:
            return min(math.ceil(self.need(rule, wildcards, input)[1] * MINUTES_STEP ** (attempt - 1)), self.longest)

        return minutes

    def partition(self, gpu: bool) -> str | None:
        """The partition of a rule that runs on a GPU, or of one that does not; None: the cluster's own."""
        return (self.gpu_partition if gpu and self.gpu else None) or self.cpu_partition

    def need(self, rule: str, wildcards: Any, input: Any = None) -> tuple[float, float]:
        """Megabytes and minutes of a job at its first attempt, limits not applied."""
        if rule == "decode" and getattr(input, "shards", None):
            return self._joining()
        system = getattr(wildcards, "system", "") or getattr(wildcards, "teacher", "")
        shards = int(getattr(wildcards, "shards", 1))
        text = str(getattr(wildcards, "text", "") or getattr(wildcards, "split", ""))
        monolingual = rule == "normalise_monolingual" or text.startswith(MONOLINGUAL)
        return self._need(rule, system, getattr(wildcards, "search", ""), shards, monolingual)

    def _job_need(self, rule: str, system: str, search: str, shards: int, monolingual: bool) -> tuple[float, float]:
        pairs = self.lines if monolingual else self.pairs
        # A rule of a further test set has its name at the end: compare_rows_on_talks.
        if ask := ASKS.get(rule.partition("_on_")[0]):
            split = self.plan.loaded.dataset.split
            if rule == "normalise" and split and split.method == "connected-groups":
                ask = dataclasses.replace(ask, bytes_a_pair=SPLIT_BYTES)
            return ask.of(pairs)
        for metric in metrics().values():
            if metric.program and rule == metric.rule:
                return metric.program.memory + (GPU_PROCESS if self.gpu else 0), metric.program.minutes
        if rule.startswith("train_"):
            return self._training(system)
        if rule == "distill":
            return self._distillation(system, pairs, shards)
        if rule == "score_pairs":
            return self._scoring(system, shards)
        if rule in ("decode", "decode_shard", "choose_settings"):
            return self._decoding(self.plan.decode(system, search), rule == "choose_settings", shards)
        if rule.startswith(("export_", "import_")):
            return PROCESS + self._weights_mb(system, copies=4), STARTING_MINUTES
        # Speed and analyses open several systems, one after the other or all at once.
        everything = sum(self._weights_mb(name) for name in self.plan.loaded.systems)
        hours = {analysis.rule: analysis.hours for analysis in self.plan.analyses.values()} | {"measure_speed": 4}
        return self._process + 4000 + 2 * everything, 60 * hours.get(rule, 1)

    @property
    def _process(self) -> int:
        return GPU_PROCESS if self.gpu else PROCESS

    def _weights_mb(self, name: str, copies: int = 1) -> float:
        """Megabytes of a system's weights in float32, and once those of the systems it works in or with."""
        subwords = self.plan.recipe.subwords
        system = self.plan.system(name)
        weights = parameters(system, vocabulary_size(self.plan), subwords.joint)
        frozen_systems = map(self.plan.system, system.filled.values())
        frozen = sum(parameters(other, vocabulary_size(self.plan), subwords.joint) for other in frozen_systems)
        return 4 * (copies * weights + frozen) / 1e6

    def _training(self, name: str) -> tuple[float, float]:
        """Weights, gradients and two moments; weights validated so far; a state being written; activations."""
        system = self.plan.system(name)
        if system.family.fit:
            # All subwords of the target with their counts, a few times over.
            subwords = min(self.pairs, getattr(system.model, "max_sentences", None) or self.pairs) * self.length
            return PROCESS + COUNTED_BYTES * subwords / 1e6, STARTING_MINUTES + subwords / COUNTED_A_MINUTE
        training, model = system.training, system.model
        averaged = training.average_last if training.keep == "average" else 1
        weights_mb = self._weights_mb(name, copies=4 + averaged + 4)
        activations_mb = 0.0
        if not self.gpu:
            positions = training.batch_tokens / training.accumulate
            activations_mb = 4 * positions * layers(system) * (24 * model.dim + 6 * _feed_forward(model)) / 1e6
        operations = updates(system) * training.batch_tokens * operations_a_position(system, self.plan)
        rate = GPU_TRAINING["wide" if model.dim >= WIDE else "narrow"] if self.gpu else THREAD_TRAINING * self.threads
        minutes = STARTING_MINUTES + 2 * operations / (rate * self.devices * self.nodes) / 60
        # Every process of a node has weights of its own; positions are shared out.
        return self.devices * (self._process + weights_mb) + activations_mb / self.nodes, minutes

    def _distillation(self, teacher: str, pairs: int, shards: int) -> tuple[float, float]:
        settings = self.plan.distillation(teacher)
        search, sentences = settings.search_settings(), pairs / shards
        minutes = self._minutes(
            decoding_operations(self.plan, self.plan.system(teacher), search, sentences, self.length)
        )
        # The whole source is in memory; hypotheses are those of one batch.
        source_mb = pairs * self.length * 6 / 1e6
        hypotheses_mb = self._hypotheses_mb(teacher, settings.batch * search_of(search).width(search))
        return self._process + source_mb + self._weights_mb(teacher, 3) + hypotheses_mb, minutes

    def _scoring(self, system: str, shards: int) -> tuple[float, float]:
        """A shard of the training pairs, scored in parallel passes."""
        operations = scoring_operations(self.plan, self.plan.system(system), self.pairs / shards, self.length)
        model_mb = self._weights_mb(system, 3) + self._hypotheses_mb(system, self.plan.likelihood(system).batch)
        return self._process + self.pairs * 16 / 1e6 + model_mb, self._minutes(operations)

    def _held_out(self) -> float:
        """Sentences of the larger one of dev and test."""
        limits, generator = self.plan.recipe.limits, self.plan.loaded.dataset.generator
        return max(limits.get(split) or generator.get(split) or HELD_OUT for split in ("dev", "test"))

    def _joining(self) -> tuple[float, float]:
        """Shards of a split are read a line at a time, by a process with the imports of decoding."""
        return PROCESS + 500, STARTING_MINUTES + self._held_out() / ASKS["merge_distilled"].pairs_a_minute

    def _decoding(self, decode: Decode, tried: bool, shards: int = 1) -> tuple[float, float]:
        """One split, or one of its shards; `tried`: once with every combination of the values that are chosen from."""
        sentences = self._held_out() / shards
        minutes = self._minutes(decode_operations(self.plan, decode, sentences, self.length, tried))
        ranking_systems = self.plan.systems_in_roles(decode).values()
        weights = self._weights_mb(decode.system, 3) + sum(self._weights_mb(name) for name in ranking_systems)
        hypotheses = decode.batch * widest(decode)
        return self._process + weights + self._hypotheses_mb(decode.system, hypotheses), minutes

    def _minutes(self, operations: float) -> float:
        return STARTING_MINUTES + 2 * operations / (GPU_DECODING if self.gpu else THREAD_DECODING) / 60

    def _hypotheses_mb(self, name: str, hypotheses: float) -> float:
        """Scores of all subwords at every position, twice, and the layers' values at every position."""
        system = self.plan.system(name)
        vocabulary = vocabulary_size(self.plan) + len(system.family.symbols)
        width = 2 * vocabulary + 40 * _width(system.model) + 8 * _feed_forward(system.model)
        return 4 * hypotheses * 2 * self.length * width / 1e6


def _feed_forward(model: Any) -> int:
    """Width of a model's feed-forward layers; four times its width where its settings have none."""
    return getattr(model, "feed_forward", 4 * _width(model))


def _width(model: Any) -> int:
    """Width of a model, or a usual one where its settings have none, as those of models made elsewhere."""
    return getattr(model, "dim", WIDE)
