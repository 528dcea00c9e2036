"""Memory and minutes that jobs request of a cluster, from the sizes of models, corpus and budgets alone. No torch here.

Requests are generous bounds, not forecasts: a limit that is too low ends a job, one that is too high lets it wait a
little longer in the queue. A job that is ended all the same is retried with larger requests:

    memory     x 1.5 each time, up to 4 x, and never more than runtime.largest_job
    minutes    x 2 each time, never more than runtime.longest_job, the limit of the partition

A training that needs longer than the limit goes on from its state when it is retried; other jobs do not, and are cut
smaller instead (`distillation.TEACHER.shards`).

What each rule asks for is in the table of `rules.py`. Times of work assume rates well below measured ones, GPUs at the
low end of those of `continuum estimate`, processors at 5 Gflop/s a thread in training (82 measured with small models on
one thread of a Xeon with matrix units) and 1 Gflop/s in decoding; they are then doubled.
"""

from __future__ import annotations

import math
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from workflow_src.config.costs import (
    Sizes,
    computed_layers,
    feed_forward,
    gpu_rates,
    longest_sentence,
    most_computed,
    most_weights,
    positions,
    raw_pairs,
    sentence_length,
    sized,
    training_pairs,
    width,
)
from workflow_src.config.languages import spaced
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import System
from workflow_src.config.rules import (
    GPU_PROCESS,
    MOST_THREADS,
    PAIRS_A_THREAD,
    PROCESS,
    STARTING_MINUTES,
    WORKER,
    Rule,
    Work,
    rule_of,
    rule_table,
    text_of,
)
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.registry import search_of
from workflow_src.spec import ROWS
from workflow_src.spec import Sizes as MemorySizes

# Pairs where neither the dataset, the configuration nor the size of the user's own texts says how many there are.
UNKNOWN_PAIRS = 5_000_000
# Bytes of a pair of short sentences.
BYTES_A_PAIR = 40
# Bytes of a short sentence.
BYTES_A_LINE = 20
# Ratio of the sizes of plain and of compressed text.
COMPRESSION = 4
# Endings of plain files. All others, archives among them, count as compressed.
PLAIN = ("", ".txt", ".tsv", ".csv", ".json", ".jsonl", ".tmx")
# Characters that are assumed of a language without spaces, such as Chinese.
MANY_CHARACTERS = 6_000
# Floating-point operations a second of one thread.
THREAD_TRAINING, THREAD_DECODING = 5e9, 1e9
# Factor of the memory of each further attempt of a job, and the largest one.
MEMORY_STEP = 1.5
MEMORY_MOST = 4.0
# Factor of the minutes of each further attempt.
MINUTES_STEP = 2
# Counting n-grams: memory for each subword of the text, and subwords a minute, with room to spare.
COUNTED_BYTES, COUNTED_A_MINUTE = 600, 4e6
# Bytes of counted n-grams in a search, for each subword of the text, which has 1.1 n-grams.
LOADED_BYTES = 66
# Delta steps of a refiner's update, forward passes of its frozen base, that take the time of an update of the base.
STEPS_AN_UPDATE = 3
# Wildcards that requests depend on.
WILDCARDS = ("system", "teacher", "search", "text", "split", "shards")


def gpus(device: str) -> int:
    """GPUs that a job requests with the setting `runtime.device`, as far as planning sees them: 1 or 0."""
    return int(device.startswith("cuda") or (device == "auto" and shutil.which("nvidia-smi") is not None))


def pairs_by_bytes(plan: Plan) -> int | None:
    """Training pairs of the user's own texts, about and rather too many, by the sizes of their files.

    None where a text is downloaded or not there. Counting lines would take too long: every job reads the rules.
    """
    dataset, languages = plan.loaded.dataset, (plan.recipe.source, plan.recipe.target)
    if any(name in dataset.files for part in dataset.train for name in part.files(languages)):
        return None
    # Without dev and test of its own, a dataset has all of its files in train.
    size = _text_bytes(plan, plan.own_files())
    return None if size is None else max(1, size // BYTES_A_PAIR)


def monolingual_by_bytes(plan: Plan) -> int | None:
    """Lines of text of the source language before the recipe's limit, about and rather too many, by the sizes of the
    user's files or of what was downloaded; None where neither is there."""
    own = list(plan.own_monolingual.values())
    size = _text_bytes(plan, own) if own == plan.monolingual_texts else None
    size = _text_bytes(plan, [plan.raw(MONOLINGUAL, plan.recipe.source)]) if size is None else size
    return None if size is None else max(1, size // BYTES_A_LINE)


def _text_bytes(plan: Plan, files: list[str]) -> int | None:
    """Bytes of texts, compressed ones as if they were not; None where a file is not there."""
    paths = [Path(path) for path in files]
    if not paths or not all(path.is_file() for path in paths):
        return None
    endings = {*PLAIN, f".{plan.recipe.source}", f".{plan.recipe.target}"}
    return sum(path.stat().st_size * (1 if path.suffix in endings else COMPRESSION) for path in paths)


class Requests:
    """Resources of the jobs of each rule.

    A shard's job requests its own part, by the number of shards in its name.
    """

    def __init__(self, plan: Plan, gpu: bool):
        raw = raw_pairs(plan) or pairs_by_bytes(plan) or UNKNOWN_PAIRS
        pairs, length = training_pairs(plan, raw) or raw, sentence_length(plan)
        # Text of one language is often the larger one.
        raw_lines = monolingual_by_bytes(plan) or max(pairs, UNKNOWN_PAIRS)
        lines = min(raw_lines, plan.recipe.limits.get(MONOLINGUAL, raw_lines))
        characters = 0 if spaced(plan.recipe.source) and spaced(plan.recipe.target) else MANY_CHARACTERS
        self.sizes = Sizes(pairs, length, lines, characters)
        # Before the recipe's limits.
        self.raw_sizes = Sizes(raw, length, raw_lines)
        self.plan = sized(plan, self.sizes)
        self.gpu, self.runtime = gpu, plan.config.runtime
        self.table = rule_table(self.plan)
        # Once for all jobs that differ in nothing that requests depend on, such as the seed.
        self._need = cache(self._job_need)

    def memory(self, rule: str, wildcards: Any, attempt: int) -> int:
        growth = min(MEMORY_STEP ** (attempt - 1), MEMORY_MOST)
        megabytes = math.ceil(self.need(rule, wildcards)[0] * growth)
        return min(megabytes, self.runtime.largest_job or megabytes)

    def minutes(self, rule: str, wildcards: Any, attempt: int) -> int:
        minutes = math.ceil(self.need(rule, wildcards)[1] * MINUTES_STEP ** (attempt - 1))
        return min(minutes, self.runtime.longest_job)

    def corpus_threads(self, rule: str, wildcards: Any = None) -> int:
        """Threads of a stage that shares a text out to processes: more for a larger text, one for dev and test."""
        values = _values(wildcards)
        if values.get("split", "train") != "train":
            return 1
        return min(max(self._lines(self.table[rule], values) // PAIRS_A_THREAD, 1), MOST_THREADS)

    def partition(self, gpu: bool) -> str | None:
        """The partition of a rule that runs on a GPU, or of one that does not; None: the cluster's own."""
        return (self.runtime.gpu_partition if gpu and self.gpu else None) or self.runtime.partition

    def need(self, rule: str, wildcards: Any) -> tuple[float, float]:
        """Megabytes and minutes of a job at its first attempt, limits not applied."""
        return self._need(rule, **_values(wildcards))

    def _job_need(self, name: str, **wildcards: str) -> tuple[float, float]:
        rule = rule_of(self.plan, self.table, name, wildcards)
        work = rule.work(self.plan, wildcards, self.sizes) if rule.work else None
        if work and work.training:
            return self._training(work)
        ask, lines = rule.ask, self._lines(rule, wildcards)
        megabytes = ask.megabytes + ask.on_gpu * self.gpu + lines * ask.bytes_a_pair / 1e6
        minutes = ask.minutes + lines / ask.pairs_a_minute
        if ask.shared_out:
            megabytes += WORKER * min(lines // PAIRS_A_THREAD, MOST_THREADS)
        if ask.copies:
            megabytes += self._weights_mb(wildcards.get("system") or wildcards["teacher"], ask.copies)
        if ask.every_system:
            megabytes += 2 * sum(self._weights_mb(system) for system in self.plan.loaded.systems)
        if work:
            megabytes += self._held_mb(work) + sum(map(self._weights_mb, work.others))
            minutes += self._minutes(work, THREAD_DECODING)
        return megabytes, minutes

    def _lines(self, rule: Rule, wildcards: dict[str, str]) -> int:
        """Pairs or lines of the text that a job reads."""
        sizes = self.raw_sizes if rule.raw else self.sizes
        return sizes.sentences(MONOLINGUAL if rule.monolingual else text_of(wildcards)) or UNKNOWN_PAIRS

    def _minutes(self, work: Work, thread_rate: float) -> float:
        """Twice the minutes of work at the lowest rate."""
        rate = gpu_rates(self.plan.system(work.system), work.training)[0] if self.gpu else thread_rate
        return 2 * self._operations(work) / rate / 60

    def _operations(self, work: Work) -> float:
        """Operations of work, rather too many: 6 for each weight and position in training, 2 for each pass of the
        system's networks in a search, and for each hypothesis that others score."""
        assert work.tokens is not None, "the number of pairs is known or assumed"
        system = self.plan.system(work.system)
        roles = system.filled if work.training else system.served_with
        frozen = sum(map(self._computed, roles.values()))
        if work.training:
            steps = max(1, getattr(system.objective, "delta_steps", 0) / STEPS_AN_UPDATE)
            return 6 * work.tokens * (self._computed(work.system, system.objective) + steps * frozen)
        own = self._computed(work.system) + frozen
        others = sum(map(self._computed, work.others))
        read = [
            settings.most_passes() * own + search_of(settings).width(settings) * others for settings in work.searches
        ]
        return 2 * work.tokens * ((sum(read) if work.every else max(read)) if read else own)

    def _computed(self, name: str, objective: Any = None) -> float:
        """Weights that compute one position of a system's output, in an update if there is an objective; rather too
        many."""
        system = self.plan.system(name)
        return most_computed(system.family, system.model, self.plan.recipe.subwords.size, objective)

    def _weights(self, name: str) -> float:
        """Weights of a system in float32, rather too many; n-grams take the memory of as many."""
        system = self.plan.system(name)
        if system.family.fit:
            return LOADED_BYTES / 4 * self._counted_subwords(system)
        return most_weights(system.family, system.model, self.plan.recipe.subwords.size)

    def _weights_mb(self, name: str, copies: int = 1) -> float:
        """Megabytes of a system's weights in float32, and once those of the systems it works in or with."""
        frozen = sum(map(self._weights, self.plan.system(name).filled.values()))
        return 4 * (copies * self._weights(name) + frozen) / 1e6

    def _counted_subwords(self, system: System) -> float:
        """Subwords of the text that a system counts."""
        pairs = self.sizes.pairs or UNKNOWN_PAIRS
        return min(pairs, getattr(system.model, "max_sentences", None) or pairs) * self.sizes.length

    def _training(self, work: Work) -> tuple[float, float]:
        """Weights, gradients and two moments; weights validated so far; a state being written; activations."""
        system = self.plan.system(work.system)
        if system.family.fit:
            # All subwords of the target with their counts, a few times over.
            subwords = self._counted_subwords(system)
            return PROCESS + COUNTED_BYTES * subwords / 1e6, STARTING_MINUTES + subwords / COUNTED_A_MINUTE
        training, model, runtime = system.training, system.model, self.runtime
        averaged = training.average_last if training.keep == "average" else 1
        process_mb = PROCESS + GPU_PROCESS * self.gpu + self._weights_mb(work.system, copies=4 + averaged + 4)
        activations_mb = 0.0
        if not self.gpu:
            tokens = training.part_tokens(runtime.devices * runtime.nodes)
            frozen = map(self.plan.system, system.filled.values())
            depth = computed_layers(system.family, model, system.objective)
            depth += sum(computed_layers(each.family, each.model) for each in frozen)
            activations_mb = 4 * tokens * depth * (24 * model.dim + 6 * feed_forward(model)) / 1e6
            if system.family.held:
                longest = longest_sentence(self.plan, self.sizes.length)
                sizes = self._memory_sizes(system, longest, math.ceil(tokens / longest))
                activations_mb += system.family.held(model, sizes) / 1e6
        minutes = self._minutes(work, THREAD_TRAINING * runtime.training_threads) / (runtime.devices * runtime.nodes)
        # Every process of a node has weights of its own, and computes a part of an update at a time.
        return runtime.devices * (process_mb + activations_mb), STARTING_MINUTES + minutes

    def _held_mb(self, work: Work) -> float:
        """What searches hold, and what networks compute side by side for them: the system's own, and those of systems
        that draft or rank for it."""
        system, held, rows, ranked = self.plan.system(work.system), 0.0, work.batch, work.batch
        sizes = self._memory_sizes(system, math.ceil(2 * self.sizes.length), work.batch)
        for settings in work.searches:
            search, each = search_of(settings), settings.rows()
            held = max(held, search.bytes_held(settings, sizes))
            # Searches position by position compute a whole batch.
            rows = max(rows, work.batch * each if search.positions else max(each, min(work.batch * each, ROWS)))
            ranked = max(ranked, min(work.batch * search.width(settings), ROWS))
        others = sum(self._rows_mb(self.plan.system(name), ranked) for name in work.others)
        return self._rows_mb(system, rows) + held / 1e6 + others

    def _memory_sizes(self, system: System, length: int, sentences: int) -> MemorySizes:
        """Sizes of a batch of so many sentences with so many subwords."""
        model, vocabulary = system.model, self.plan.recipe.subwords.size + len(system.family.symbols)
        most = min(math.ceil(length * positions(system.family, model)), getattr(model, "max_positions", math.inf))
        return MemorySizes(vocabulary, length, width(model), sentences, int(most))

    def _rows_mb(self, system: System, rows: float) -> float:
        """Scores of all subwords at every position of rows, twice, and the layers' values; none of counted families."""
        if system.family.fit:
            return 0.0
        vocabulary = self.plan.recipe.subwords.size + len(system.family.symbols)
        values = 2 * vocabulary + 40 * width(system.model) + 8 * feed_forward(system.model)
        return 4 * rows * positions(system.family, system.model) * 2 * self.sizes.length * values / 1e6


def _values(wildcards: Any) -> dict[str, str]:
    """Wildcards that requests depend on, by name."""
    values = {name: getattr(wildcards, name, None) for name in WILDCARDS}
    return {name: str(value) for name, value in values.items() if value}
