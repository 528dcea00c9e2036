"""Speed: bookkeeping against hand-made times; no assertion depends on how fast this machine is."""

import itertools
import math
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.config.experiment import SpeedConfig
from workflow_src.config.resolved import Decode
from workflow_src.errors import TimingFailed
from workflow_src.evaluation.speed import local, summary, timing
from workflow_src.evaluation.speed.load import OtherLoad
from workflow_src.evaluation.speed.measured import Measurement
from workflow_src.evaluation.speed.timing import series_value, step_series
from workflow_src.registry import search_of
from workflow_src.spec import parse

BEAM = {"system": "teacher", "name": "beam-4", "search": "beam", "beam": 4, "length_penalty": 1.0}
ROWS = [
    parse(Decode, BEAM),
    parse(Decode, {"system": "lvm", "name": "delta-1", "search": "delta", "steps": 1}),
    parse(Decode, {"system": "lvm", "name": "delta-2", "search": "delta", "steps": 2}),
]
SPEED = SpeedConfig(warmup=2, repeats=4, batch=2)
CONDITIONS = {"name": "cpu-1-thread", "sentences": 3, "warmup": 2, "repeats": 4, "threads": 1, "engines": {}}
CONDITIONS |= {"device": "cpu", "device_name": None, "precision": "float32", "disturbed_above_cores": 0.25}


class InProcess(local.Local):
    """A timer in this process. After `restart` its translators are sound, as in a fresh process."""

    def restart(self):
        for translator in self.translators.values():
            translator.broken = False


def own(translators):
    """Translators of our own engine, timed in this process."""
    return {"eager": InProcess(translators)}


CT2 = {"engine": "ctranslate2", "compute_type": "int8"}


class Recorder:
    """A translator that records calls and advances the clock by their costs."""

    def __init__(self, calls, clock=None):
        self.calls, self.clock = calls, clock

    def translate(self, lines, search, batch, systems, split):
        assert not split, "lines are decoded whole"
        settings = {"search": search_of(search).name, **search.model_dump(mode="json"), **systems, "batch": batch}
        self.calls.append((list(lines), settings))
        if self.clock is not None:
            self.clock[0] += sum(float(line) for line in lines) * (1 + settings.get("steps", 9))
        self.last_timings = {"encode": 0.5, "search": 9.0, "decode": 0.25}
        return lines


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(OtherLoad, "__exit__", lambda load, *_: setattr(load, "cores", 0.0))


@pytest.mark.usefixtures("quiet")
def test_times_are_those_of_the_clock(clock):
    calls = []
    translators = {name: Recorder(calls, clock) for name in ("teacher", "lvm")}
    measured = timing.measure(own(translators), ROWS, ["1", "2", "6"], SPEED)
    results = summary.measurement(ROWS, measured, CONDITIONS, ("teacher", "beam-4"), [1, 2, 6])
    by_name = {row.name: row for row in results.rows}
    delta = by_name["delta-1"]
    assert delta.latency_ms == 4000 and delta.latency_mean == 6000
    assert delta.latency_std == pytest.approx(np.std([2000, 4000, 12000], ddof=1))
    # The clock costs the same in every round.
    assert delta.latency_rounds == (4000,) * SPEED.repeats
    assert delta.sentences_per_second == pytest.approx(3 / 18)
    assert delta.subword_share == pytest.approx(3 * 0.75 / 18)
    assert by_name["beam-4"].speedup == 1 and delta.speedup == pytest.approx(20 / 4)
    baseline = results.protocol.baseline
    assert (baseline.system, baseline.name) == ("teacher", "beam-4")
    assert results.step_costs.costs[0].ms_per_step == pytest.approx(2000)  # the median sentence, of length 2
    (ratio,) = results.step_costs.ratios
    assert (ratio.control, ratio.search, ratio.measured, ratio.predicted) == ("delta", "score", None, None)
    assert {row.batch for row in results.rows} == {2}
    assert [(g.shortest, g.latency_ms) for g in delta.by_length] == [(1, 2000), (2, 4000), (6, 12000)]
    # What is written is what reports read.
    assert Measurement.model_validate_json(results.model_dump_json()) == results


@pytest.mark.parametrize(("sentences", "repeats", "warmup", "batch"), [(4, 1, 2, 2), (9, 3, 0, 4), (40, 2, 10, 64)])
@pytest.mark.usefixtures("quiet")
def test_how_long_it_takes_is_forecast_before_it_starts(clock, sentences, repeats, warmup, batch):
    """On a clock that costs every sentence the same, and a sentence in a batch as much as one alone."""
    translators, messages = {name: Recorder([], clock) for name in ("teacher", "lvm")}, []
    lines, how = ["0.5"] * sentences, SpeedConfig(warmup=min(warmup, sentences), repeats=repeats, batch=batch)
    timing.measure(own(translators), ROWS, lines, how, lambda text: messages.append((clock[0], text)))
    began, forecast = messages[0]
    # Rows that are timed in turns are called once more before that.
    stepped = [row for group in step_series(ROWS) for row in group]
    actual_seconds = clock[0] - began - sum(0.5 * (1 + series_value(row)) for row in stepped)
    assert forecast.startswith(f"{len(ROWS)} rows, {sentences} sentences, {repeats} rounds: about ")
    forecast_number, unit = re.search(r"about ([\d.]+) (minutes|seconds), longer", forecast).groups()
    assert float(forecast_number) * (60 if unit == "minutes" else 1) == pytest.approx(actual_seconds, rel=0.01, abs=3)
    assert "0 seconds of rounds left" in messages[repeats][1]


def test_throughput_is_of_sentences_where_rounds_have_other_sizes_of_batch():
    """10, 20 and 5 sentences a second, the second round in a process that was started anew."""
    times = local.RowTimes()
    for seconds, batched in ((10.0, 100), (10.0, 200), (40.0, 200)):
        times.add(local.RowTimes([[0.1]], [seconds], batched, batched))
    assert summary.timed_row(ROWS[1], times, None, []).sentences_per_second == pytest.approx(10)


def test_rounds_have_medians_of_their_own():
    """Seconds (rounds, sentences): the second round is slow, and one sentence of the third."""
    times = local.RowTimes([[1, 2, 9], [2, 4, 18], [1, 3, 9]], [1.0, 1.0, 1.0], 3, 3)
    figures = summary.timed_row(ROWS[1], times, None, [])
    assert figures.latency_rounds == (2000, 4000, 3000)
    assert figures.latency_ms == 3000 and figures.latency_std == pytest.approx(np.std([1000, 3000, 9000], ddof=1))


@pytest.mark.usefixtures("quiet")
def test_rounds_alternate_between_rows_and_use_their_settings(clock):
    calls = []
    translators = {name: Recorder(calls, clock) for name in ("teacher", "lvm")}
    timing.measure(own(translators), ROWS, ["1", "2", "6"], SPEED)
    # Before the rounds, a first call of each row and a short round of 3 alone and 2 in batches. In a round, 2 of
    # warm-up, 3 alone, 1 batch of warm-up, 1 run in batches.
    untimed = len(ROWS) * (1 + 5)
    order = [settings.get("steps", 0) for _, settings in calls[untimed:][: SPEED.repeats * len(ROWS) * 7]]
    rounds = np.array(order).reshape(SPEED.repeats, len(ROWS), -1)
    assert (rounds == rounds[:, :, :1]).all()
    places = rounds[:, :, 0].tolist()
    assert all(sorted(row) == [0, 1, 2] for row in places) and len(set(map(tuple, places))) > 1
    second_calls = []
    timing.measure(own({name: Recorder(second_calls, clock) for name in translators}), ROWS, ["1", "2", "6"], SPEED)
    assert second_calls == calls
    teacher = [settings for lines, settings in calls if len(lines) == 3 and settings["search"] == "beam"]
    assert {(settings["beam"], settings["length_penalty"], settings["batch"]) for settings in teacher} == {(4, 1.0, 2)}


def _loads(monkeypatch, loads):
    """Rounds meet these loads by others, one after the other."""
    source = iter(loads)

    class Fake:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.cores = next(source)

    monkeypatch.setattr(timing, "OtherLoad", Fake)


def test_disturbed_rounds_are_redone(monkeypatch):
    # The last: of the steps that are timed in turns.
    _loads(monkeypatch, [0.1, 0.9, 0.0, 0.2, 0.1, 0.05])
    measured = timing.measure(own({"lvm": Recorder([])}), ROWS[1:], ["1"], SPEED)
    assert measured.load == [0.1, 0.0, 0.2, 0.1] and measured.redone == 1
    assert len(measured.times[("lvm", "delta-1")].batches) == 4


def test_steady_load_is_kept_and_not_waited_for(monkeypatch):
    _loads(monkeypatch, [0.9, 0.8, 0.7, 0.9, 0.1, 0.9, 0.9])
    measured = timing.measure(own({"lvm": Recorder([])}), ROWS[1:], ["1"], SPEED)
    assert measured.load == [0.7, 0.9, 0.1, 0.9] and measured.redone == timing.REDOS


def test_load_counts_other_processes_only(monkeypatch):
    """Where the machine says nothing of its CPUs: neither this process and its children, nor times before."""

    def process(pid, seconds):
        times = SimpleNamespace(user=seconds, system=0.0)
        return SimpleNamespace(pid=pid, create_time=lambda: float(pid), cpu_times=lambda: times)

    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own = [process(os.getpid(), 10.0), process(child.pid, 20.0)], [process(os.getpid(), 90.0), process(child.pid, 80.0)]
    others = [process(-1, 5.0), process(-2, 1.0)], [process(-1, 6.0), process(-3, 0.5)]
    listed = iter([own[0] + others[0], own[1] + others[1]])
    monkeypatch.setattr(psutil, "process_iter", lambda: next(listed))
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [])
    with monkeypatch.context() as patched:
        clock = iter([10.0, 13.0])
        patched.setattr(time, "perf_counter", lambda: next(clock))
        with OtherLoad() as load:
            pass
    assert load.cores == pytest.approx(1.5 / 3)
    child.communicate(b"\n")


def test_load_counts_processes_that_begin_and_end_meanwhile():
    """A process that is no child of ours any more, and that has ended before it could be listed."""
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    with OtherLoad() as load:
        began = time.perf_counter()
        words = ["sh", "-c", '"$0" -c "$1" & ', sys.executable, burn]
        # The pipe is at its end when both have ended.
        process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        process.stdout.read()
        process.wait()
        elapsed = time.perf_counter() - began
    assert load.cores * elapsed > 0.4


def steps_of(system, search, numbers=(1, 2, 4)):
    return [parse(Decode, {"system": system, "name": f"{search}-{n}", "search": search, "steps": n}) for n in numbers]


def seconds_of(rows, cost, starts=(0.001, 0.002, 0.006)):
    """Three rounds of three sentences, by row key."""
    return {row.key: [[start + cost * series_value(row) for start in starts] for _ in range(3)] for row in rows}


def test_step_costs_and_their_ratio():
    delta, score = steps_of("lvm", "delta"), steps_of("score", "score")
    alone = [
        *steps_of("energy", "energy", (1,)),
        parse(Decode, {"system": "lvm", "name": "prior-mean", "search": "prior-mean"}),
    ]
    alternating = seconds_of(delta, 0.0018) | seconds_of(score, 0.0006)
    # A disturbed round, and an outlier among the sentences.
    alternating[("lvm", "delta-4")][1] = [9.0, 9.0, 9.0]
    for times in alternating[("score", "score-2")]:
        times[2] = 5.0
    costs = summary.step_costs(delta + score + alone, alternating, {("lvm", "delta"): 30.0, ("score", "score"): 20.0})
    assert [cost.search for cost in costs.costs] == ["delta", "score"]
    assert [cost.ms_per_step for cost in costs.costs] == pytest.approx([1.8, 0.6])
    (ratio,) = costs.ratios
    assert (ratio.control, ratio.search) == ("delta", "score")
    assert ratio.measured == pytest.approx(3) and ratio.predicted == 1.5


@pytest.mark.usefixtures("quiet")
def test_rows_that_show_step_costs_take_turns_at_every_sentence(clock):
    calls = []
    timer = local.Local({"lvm": Recorder(calls, clock)})
    seconds = np.array(timer.time_alternating(ROWS[1:], ["1", "2", "6"], SPEED.repeats))
    assert seconds == pytest.approx(np.array([[[2, 4, 12]] * 4, [[3, 6, 18]] * 4]))
    timed = calls[2:]
    pairs = [timed[at : at + 2] for at in range(0, len(timed), 2)]
    assert len(pairs) == SPEED.repeats * 3 and all(first[0] == second[0] for first, second in pairs)
    orders = [tuple(settings["steps"] for _, settings in pair) for pair in pairs]
    assert set(orders) == {(1, 2), (2, 1)}


@pytest.mark.usefixtures("quiet")
def test_speed_ups_refer_to_the_row_that_the_experiment_names(clock):
    translators = {name: Recorder([], clock) for name in ("teacher", "lvm")}
    measured = timing.measure(own(translators), ROWS, ["1", "2"], SPEED)
    rows = summary.measurement(ROWS, measured, CONDITIONS, ("lvm", "delta-2")).rows
    assert [row.speedup for row in rows] == pytest.approx([3 / 10, 3 / 2, 1])
    # A row that was not timed here is replaced by no other one.
    other = summary.measurement(ROWS, measured, CONDITIONS, ("teacher", "beam-8"))
    assert other.protocol.baseline is None and {row.speedup for row in other.rows} == {None}


@pytest.mark.usefixtures("quiet")
def test_each_row_is_timed_by_its_engine(clock):
    ours, theirs = [], []
    timers = {
        "eager": local.Local({name: Recorder(ours, clock) for name in ("teacher", "lvm")}),
        "ctranslate2-int8": local.Local({"teacher": Recorder(theirs, clock)}),
    }
    row = parse(Decode, BEAM | CT2 | {"name": "beam-4-ctranslate2-int8"})
    measured = timing.measure(timers, [*ROWS, row], ["1", "2"], SPEED)
    assert {settings["search"] for _, settings in theirs} == {"beam"}
    assert len(measured.times[row.key].batches) == SPEED.repeats
    assert not any("engine" in settings or "compute_type" in settings for _, settings in [*ours, *theirs])


@pytest.mark.parametrize(
    ("fits", "saturated_at", "gain", "most", "expected"),
    [
        (300, 10**6, 0, 10**6, 256),
        (10**6, 10**6, 0, 500, 256),
        (64, 10**6, 0, 10**6, 64),
        (10**6, 256, 0, 10**6, 256),
        (10**6, 256, 0.02, 10**6, 256),
        (10**6, 256, 0.1, 2048, 2048),
    ],
)
def test_batches_are_doubled_while_that_is_faster(fits, saturated_at, gain, most, expected):
    """Up to `saturated_at` sentences, a batch takes as long as one; each doubling after it gains so much speed.

    The batch of 128 is disturbed.
    """
    tried = []

    def run(batch):
        tried.append(batch)
        if batch > fits:
            raise TimingFailed("eager", "CUDA error: out of memory", batch=batch)
        doublings = max(0.0, math.log2(batch / saturated_at))
        return (2.0 if batch == 128 else 1.0) * max(1.0, batch / saturated_at) / (1 + gain) ** doublings

    batch, failed = local.best_batch(run, 64, most)
    assert batch == expected and (failed and failed.size) == (None if max(tried) <= fits else max(tried))
    assert max(tried) <= min(most, 4 * expected) and len(set(tried)) == len(tried)


def test_other_faults_are_no_lack_of_memory():
    def run(batch):
        if batch > 64:
            raise TimingFailed("eager", "device-side assert", batch=batch)
        return 1.0

    with pytest.raises(TimingFailed, match="batch 128: device-side assert"):
        local.best_batch(run, 64, 1024)


class Fails(Recorder):
    """A translator that fails for batches above `most`, and then for every call until its process is a fresh one."""

    def __init__(self, most, error, lasting=False):
        super().__init__([])
        self.most = most
        self.error = error
        self.lasting = lasting
        self.broken = False

    def translate(self, lines, search, batch, systems, split):
        if self.broken or len(lines) > self.most:
            self.broken = self.lasting
            raise self.error
        return super().translate(lines, search, batch, systems, split)


INVALID = RuntimeError("CUDA error: invalid argument\nCUDA kernel errors might be reported at some other call")


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (INVALID, False),
        (INVALID, True),
        (torch.OutOfMemoryError("CUDA out of memory."), False),
        (MemoryError(), False),
    ],
)
@pytest.mark.usefixtures("quiet")
def test_a_size_of_batch_that_fails_ends_its_growth_and_is_said(error, lasting, caplog, monkeypatch):
    """A GPU may compute nothing more for the process in which a kernel failed."""
    monkeypatch.setattr(local, "GAIN", 0.0)
    timer = InProcess({"lvm": Fails(most=20, error=error, lasting=lasting)}, grow_batch=True)
    measured = timing.measure({"eager": timer}, ROWS[1:2], ["1", "2"], SPEED)
    assert measured.failures == {}
    times = measured.times[("lvm", "delta-1")]
    assert times.batch == 16 and times.failed_batch.size == 32 and len(times.batches) == SPEED.repeats
    (figures,) = summary.measurement(ROWS[1:2], measured, CONDITIONS).rows
    assert figures.failed_batch.size == 32
    if error is INVALID:
        assert "invalid argument" in figures.failed_batch.reason
        assert "eager, lvm delta-1, batch 32" in caplog.text and "raise self.error" in caplog.text


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.usefixtures("quiet")
def test_a_row_that_fails_is_left_out_and_the_others_are_timed(clock, lasting, caplog):
    failing = Fails(most=1, error=KeyError("words"), lasting=lasting)
    timer = InProcess({"teacher": Recorder([], clock), "lvm": failing})
    measured = timing.measure({"eager": timer}, ROWS, ["1", "2"], SPEED)
    assert list(measured.times) == [("teacher", "beam-4")] and measured.alternating == {}
    assert {key: (failure.row, failure.batch) for key, failure in measured.failures.items()} == {
        row.key: (row.key, SPEED.batch) for row in ROWS[1:]
    }
    assert "eager, lvm delta-2, batch 2: KeyError: 'words'" in caplog.text and "raise self.error" in caplog.text
    results = summary.measurement(ROWS, measured, CONDITIONS, ("teacher", "beam-4"), [1, 2])
    assert [row.name for row in results.rows] == ["beam-4"] and results.step_costs.costs == ()
    assert [(row.name, row.batch) for row in results.protocol.not_timed] == [("delta-1", 2), ("delta-2", 2)]


@pytest.mark.usefixtures("quiet")
def test_a_row_that_fails_in_a_later_round_is_left_out(clock):
    calls = []

    class FailsLater(Recorder):
        def translate(self, *arguments, **options):
            if len(calls) > 30:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return super().translate(*arguments, **options)

    translators = {"teacher": Recorder([], clock), "lvm": FailsLater(calls, clock)}
    measured = timing.measure(own(translators), ROWS, ["1", "2"], SPEED)
    assert list(measured.times) == [("teacher", "beam-4")] and len(measured.load) == SPEED.repeats
    assert len(measured.times[("teacher", "beam-4")].batches) == SPEED.repeats


@pytest.mark.usefixtures("quiet")
def test_rows_in_turns_that_fail_leave_the_rounds_as_they_are(clock, monkeypatch):
    timer = local.Local({name: Recorder([], clock) for name in ("teacher", "lvm")})

    def failing(*_):
        raise TimingFailed("eager", "a fault")

    monkeypatch.setattr(timer, "time_alternating", failing)
    measured = timing.measure({"eager": timer}, ROWS, ["1", "2"], SPEED)
    results = summary.measurement(ROWS, measured, CONDITIONS, ("teacher", "beam-4"), [1, 2])
    assert len(results.rows) == 3 and results.step_costs.costs == ()
    assert "a fault" in results.step_costs.failure


def test_a_batch_is_timed_by_the_faster_of_two_calls(clock, monkeypatch):
    """In the first, a GPU's program may be made: here it takes 5 seconds."""
    seconds, first = [], [5.0]
    monkeypatch.setattr(local, "best_batch", lambda run, start, most: (seconds.append(run(3)), (3, None))[1])
    recorder = Recorder([], clock)
    translate = recorder.translate

    def slow_at_first(*arguments, **settings):
        clock[0] += first.pop() if first and settings["batch"] == 3 else 0.0
        return translate(*arguments, **settings)

    recorder.translate = slow_at_first
    local.Local({"lvm": recorder}, grow_batch=True).time_row(ROWS[1], ["1"], SPEED, 4)
    # Three sentences of one step.
    assert seconds == [6.0]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_groups_of_lengths_are_a_partition_in_order(lengths):
    groups = summary.length_bins(lengths)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    assert len(groups) <= summary.LENGTH_BINS and all(groups)
    for shorter, longer in itertools.pairwise(groups):
        assert max(lengths[i] for i in shorter) < min(lengths[i] for i in longer)


def test_groups_of_different_lengths_are_equally_large():
    assert [len(group) for group in summary.length_bins(list(range(50)))] == [10] * 5


def test_only_plain_rows_of_our_own_engine_show_what_a_step_costs():
    base = {"system": "s", "search": "score", "step_size": 1.0}
    entries = [base | {"name": f"score-{n}", "steps": n} for n in (1, 2, 4)]
    plain = [parse(Decode, row) for row in entries]
    other_rows = [
        parse(Decode, row)
        for row in (
            entries[0] | {"engine": "onnxruntime", "compute_type": "int8"},
            entries[1] | {"tune": {"length_quantile": [0.6, 0.7]}},
            entries[2] | {"stop_threshold": 0.1},
            base | {"name": "score-alone", "steps": 3, "step_size": 0.5},
        )
    ]
    assert step_series(plain + other_rows) == [plain]
    (cost,) = summary.step_costs(plain + other_rows, seconds_of(plain, 0.0005), {}).costs
    assert cost.ms_per_step == pytest.approx(0.5)


def test_throughput_on_a_gpu_uses_the_best_batch(monkeypatch):
    monkeypatch.setattr(local, "best_batch", lambda run, start, most: (5, None))
    calls = []
    timer = local.Local({"lvm": Recorder(calls)}, grow_batch=True)
    measured = timing.measure({"eager": timer}, ROWS[1:2], ["a", "b"], SPEED)
    times = measured.times[("lvm", "delta-1")]
    assert (times.batch, times.batched) == (5, 5)
    assert calls[-1][0] == ["a", "b", "a", "b", "a"] and calls[-1][1]["batch"] == 5
