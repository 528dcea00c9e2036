"""The stage on miniature bundles: in this process what it writes and refuses, and processes that fail."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import timers
import torch
from pretended_cuda import environment
from refusals import fields_of
from stage_words import stage_line, start_stage

from workflow_src.config.experiment import SpeedConfig
from workflow_src.config.resolved import Decode
from workflow_src.errors import ArtifactError, TimingFailed
from workflow_src.evaluation.speed import processes
from workflow_src.evaluation.speed.load import OtherLoad
from workflow_src.evaluation.speed.processes import WAITING, Order, Worker
from workflow_src.evaluation.speed.timing import measure
from workflow_src.searches.beam import BeamSettings
from workflow_src.serving.translator import Translator
from workflow_src.spec import parse
from workflow_src.stages import measure_speed
from workflow_src.training import counting

ROWS = [
    {"system": "teacher", "name": "beam-4", "search": "beam", "beam": 4, "length_penalty": 1.0},
    {"system": "lvm", "name": "prior-mean", "search": "prior-mean"},
]
INT8 = ROWS[0] | {"name": "beam-4-ctranslate2-int8", "engine": "ctranslate2", "compute_type": "int8"}
SPEED = {"sentences": 3, "warmup": 1, "repeats": 2, "batch": 2, "protocols": ["cpu-1-thread"]}


class InProcess:
    """A worker without a process; keeps the orders that workers were given."""

    orders: list = []

    def __init__(self, make, order):
        self.orders.append(order)
        self.timer, self.device = make(order)
        self.time_row, self.time_alternating = self.timer.time_row, self.timer.time_alternating
        self.lengths = self.timer.lengths

    def restart(self):
        pass

    def wait(self):
        pass

    def close(self):
        pass


@pytest.fixture
def quiet_machine(monkeypatch):
    """No other process computes: no round is redone."""
    monkeypatch.setattr(OtherLoad, "__exit__", lambda load, *_: setattr(load, "cores", 0.0))


@pytest.fixture
def in_process(tiny_bundles, monkeypatch, tmp_path):
    """No processes; `t` and `l` are the bundles of the miniature teacher and latent-variable model, `c` an export."""
    monkeypatch.setattr(InProcess, "orders", [])
    monkeypatch.setattr(measure_speed, "Worker", InProcess)
    monkeypatch.chdir(tmp_path)
    for name, family in (("t", "transformer"), ("l", "lvm"), ("u", "lvm")):
        (tmp_path / name).symlink_to(tiny_bundles[family])
    yield InProcess.orders
    # Protocols set the threads of the measuring process, which is this one.
    torch.set_num_threads(1)


@pytest.fixture
def exported(tiny_bundles, run_stage, tmp_path):
    pytest.importorskip("ctranslate2", reason="needs the extra fast")
    words = ["--settings", "{}", "--bundle", str(tiny_bundles["transformer"]), "--output-folder", str(tmp_path / "c")]
    run_stage("export_engine", ["--engine", "ctranslate2", *words])
    return tmp_path / "c"


def _run(tmp_path, text, *bundles, rows=ROWS, ctranslate2=(), chosen=None, device="cpu", **settings):
    source = tmp_path / "test.de"
    source.write_text(text, encoding="utf-8")
    settings = {"speed": SPEED | settings, "rows": rows, "reference": ["teacher", "beam-4"]}
    words = ["--settings", json.dumps(settings), "--bundles", *bundles, "--source", str(source), "--device", device]
    exports = {"ctranslate2": dict(word.split("=") for word in ctranslate2)}
    words += ["--exports", json.dumps(exports), "--output", str(tmp_path / "speed.json")]
    words += ["--chosen", chosen] if chosen else []
    start_stage(measure_speed, words)
    return shown(tmp_path / "speed.json")


def shown(path):
    """The content of a file with the figures of tables: those of the first protocol that timed a row."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content | next((m for m in content["protocols"] if m["rows"]), content["protocols"][0])


def test_writes_rows_and_protocol(tmp_path, in_process):
    lines = ["der Hund ruht", "ein", "Baum", "der"]
    speed = _run(tmp_path, "".join(f"{line}\n" for line in lines), "teacher=t", "lvm=l", "unused=u")
    assert [(row["system"], row["name"]) for row in speed["rows"]] == [("teacher", "beam-4"), ("lvm", "prior-mean")]
    first = speed["rows"][0]
    assert len(first["latency_rounds"]) == SPEED["repeats"] and min(first["latency_rounds"]) > 0
    assert first["speedup"] == 1 and first["latency_ms"] > 0 and first["sentences_per_second"] > 0
    # Lengths in subwords of the three sentences that are measured.
    lengths = [len(ids) for ids in Translator.load("t", "cpu").subwords.encode_source(lines[:3])]
    groups = [(group["shortest"], group["longest"]) for group in first["by_length"]]
    assert lengths[0] > max(lengths[1:]) and all(sum(a <= n <= b for a, b in groups) == 1 for n in lengths)
    assert (groups[0][0], groups[-1][1]) == (min(lengths), max(lengths))
    protocol = speed["protocol"]
    assert protocol["sentences"] == 3 and protocol["device"] == "cpu" and protocol["precision"] == "float32"
    assert len(protocol["other_load_cores"]) == SPEED["repeats"]
    assert "torch" in speed["provenance"]["versions"]
    assert sorted(speed["provenance"]["inputs"]) == ["bundle lvm", "bundle teacher", "source"]
    assert len(speed["protocols"]) == 1


def test_each_engine_has_a_process_and_each_protocol_its_threads(tmp_path, in_process, exported, monkeypatch):
    monkeypatch.setattr("workflow_src.runtime.device.cores", lambda: 3)
    half = INT8 | {"name": "beam-4-ctranslate2-float16", "compute_type": "float16"}
    options = {"rows": [*ROWS, INT8, half], "ctranslate2": ["teacher=c"]}
    speed = _run(tmp_path, "a\nb\n", "teacher=t", "lvm=l", protocols=["cpu-1-thread", "cpu-all-threads"], **options)
    orders = [
        (order.engine_word, order.compute_type or order.precision, sorted(order.folders), order.threads)
        for order in in_process
    ]
    by_engine = [("eager", "auto", ["lvm", "teacher"]), ("ctranslate2-int8", "int8", ["teacher"])]
    # float16 is for GPUs and has no row here.
    assert orders == [(*entry, threads) for threads in (1, 3) for entry in by_engine]
    assert {str(order.folders["teacher"]) for order in in_process} == {"t", "c"}
    protocols = [measurement["protocol"] for measurement in speed["protocols"]]
    assert [(one["name"], one["threads"]) for one in protocols] == [("cpu-1-thread", 1), ("cpu-all-threads", 3)]
    assert speed["protocol"]["threads"] == 1 and len(speed["rows"]) == 3
    assert speed["protocol"]["baseline"] == {"system": "teacher", "name": "beam-4"}


def test_a_row_is_timed_with_what_dev_chose(tmp_path, in_process, monkeypatch):
    timed, search = [], Translator.search_ids

    def record(self, sources, request, *words):
        timed.append(request.settings)
        return search(self, sources, request, *words)

    monkeypatch.setattr(Translator, "search_ids", record)
    content = {"chosen": {"length_penalty": 0.25}, "curve": [{"settings": {"length_penalty": 0.25}, "bleu": 30.0}]}
    (tmp_path / "chosen.json").write_text(json.dumps(content))
    speed = _run(tmp_path, "a\n", "teacher=t", rows=[ROWS[0] | {"name": "tuned"}], chosen="teacher/tuned=chosen.json")
    assert len(speed["rows"]) == 1 and {settings.length_penalty for settings in timed} == {0.25}
    assert "chosen teacher tuned" in speed["provenance"]["inputs"]


def test_on_a_gpu_a_library_that_does_not_run_is_left_out(tmp_path, in_process, exported, monkeypatch):
    class Refuses(InProcess):
        def __init__(self, make, order):
            assert order.device == "cuda"
            self.engine = order.engine_word
            # There is no GPU here; rows are left out before a device computes.
            super().__init__(make, dataclasses.replace(order, device="cpu"))

        def wait(self):
            if self.engine == refusing:
                raise TimingFailed(self.engine, "RuntimeError: Library libcublas.so.12 is not found")

    monkeypatch.setattr(measure_speed, "Worker", Refuses)
    monkeypatch.setattr(measure_speed, "gpu", lambda device: "cuda")
    options = dict(rows=[*ROWS, INT8], ctranslate2=["teacher=c"], protocols=["gpu"])
    refusing = "ctranslate2-int8"
    speed = _run(tmp_path, "a\nb\n", "teacher=t", "lvm=l", **options)
    assert [row["name"] for row in speed["rows"]] == ["beam-4", "prior-mean"]
    (left_out,) = speed["protocol"]["not_timed"]
    assert "libcublas.so.12" in left_out.pop("reason")
    assert left_out == {"system": "teacher", "name": INT8["name"], "engine": "ctranslate2-int8", "batch": None}
    refusing = "eager"
    speed = _run(tmp_path, "a\nb\n", "teacher=t", "lvm=l", **options)
    assert [row["name"] for row in speed["rows"]] == [INT8["name"]] and speed["protocol"]["baseline"] is None
    assert [row["name"] for row in speed["protocol"]["not_timed"]] == ["beam-4", "prior-mean"]


def test_a_gpu_that_is_not_there_is_said_and_the_other_protocol_is_measured(tmp_path, in_process):
    speed = _run(tmp_path, "a\nb\n", "teacher=t", "lvm=l", protocols=["gpu", "cpu-1-thread"])
    assert speed["protocol"]["name"] == "cpu-1-thread" and len(speed["rows"]) == 2
    on_gpu = speed["protocols"][0]
    assert on_gpu["rows"] == [] and [row["name"] for row in on_gpu["protocol"]["not_timed"]] == ["beam-4", "prior-mean"]
    assert all("no GPU" in row["reason"] for row in on_gpu["protocol"]["not_timed"])


def test_a_row_that_fails_is_said_and_the_others_are_timed(tmp_path, in_process, monkeypatch, capsys):
    """Its error names engine, row and batch; the log has its traceback."""
    search = Translator.search_ids

    def failing(self, sources, request, *words):
        if isinstance(request.settings, BeamSettings):
            raise KeyError("a fault")
        return search(self, sources, request, *words)

    monkeypatch.setattr(Translator, "search_ids", failing)
    speed = _run(tmp_path, "a\nb\n", "teacher=t", "lvm=l")
    assert [row["name"] for row in speed["rows"]] == ["prior-mean"]
    (row,) = speed["protocol"]["not_timed"]
    reason = "KeyError: 'a fault'"
    assert row == {"system": "teacher", "name": "beam-4", "engine": "eager", "batch": 1, "reason": reason}
    log = capsys.readouterr().err
    assert f"eager, teacher beam-4, batch 1: {reason}" in log and 'raise KeyError("a fault")' in log


def test_protocols_follow_the_machine():
    names = lambda *arguments: [(p.name, p.device, p.threads) for p in measure_speed.protocols(*arguments)]  # noqa: E731
    protocols = ["cpu-1-thread", "cpu-all-threads"]
    assert names(protocols, None, 4) == [("cpu-1-thread", "cpu", 1), ("cpu-all-threads", "cpu", 4)]
    assert names(["cpu-all-threads"], "cuda:1", 4) == [("gpu", "cuda:1", 1), ("cpu-all-threads", "cpu", 4)]
    assert names(["cpu-1-thread", "gpu"], "cuda", 4)[0] == ("gpu", "cuda", 1)
    # What cannot be measured is not left out without a word.
    usable = lambda *arguments: [not p.problem for p in measure_speed.protocols(*arguments)]  # noqa: E731
    assert usable(["gpu", "cpu-1-thread"], None, 4) == [False, True]
    assert (usable(protocols, None, 4), usable(protocols, None, 1)) == ([True, True], [True, False])
    assert usable(["cpu-all-threads"], None, 1) == [True]


@pytest.mark.parametrize(
    ("text", "bundle", "fields"),
    [
        ("a\n", "teacher=t", {"setting": "bundles", "mentions": ('system "lvm"',)}),
        ("", "teacher=t", {"mentions": ("no sentences",)}),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, in_process, text, bundle, fields):
    with pytest.raises(SystemExit) as exit_info:
        _run(tmp_path, text, bundle)
    assert exit_info.value.code == 1
    assert fields_of(exit_info.value.__context__, fields) == fields
    assert not (tmp_path / "speed.json").exists()


DELTA = parse(Decode, {"system": "lvm", "name": "d", "search": "delta", "steps": 2, "engine": "eager"})


def test_operations_of_a_step_are_those_of_what_a_step_computes(tiny_bundles):
    """Of delta: the decoder, the projection onto the vocabulary and the posterior, once for each subword."""
    ((key, counted),) = measure_speed.operations([DELTA], {"lvm": tiny_bundles["lvm"]}).items()
    (network,) = Translator.load(tiny_bundles["lvm"], device="cpu").models.values()
    weights = sum(
        parameter.numel()
        for name, parameter in network.named_parameters()
        if parameter.dim() == 2 and name.startswith(("decoder", "posterior", "latent_projection", "target_embedding"))
    )
    # Two layers, which attend to 21 positions of both sides.
    attention = 4 * 4 * 21 * network.config.dim
    assert key == ("lvm", "delta") and counted == pytest.approx((2 * weights + attention) * 21 / 20, rel=0.15)


def test_what_cannot_be_counted_is_named_and_nothing_that_was_timed_is_lost(tiny_bundles, monkeypatch, caplog):
    monkeypatch.setattr(counting, "without_weights", lambda *_: 1 / 0)
    assert measure_speed.operations([DELTA, DELTA], {"lvm": tiny_bundles["lvm"]}) == {}
    (record,) = caplog.records
    assert "lvm" in record.getMessage() and "division by zero" in record.getMessage()


def test_steps_of_networks_for_short_sentences_are_counted(tiny_bundles, tmp_path):
    short = tmp_path / "short"
    shutil.copytree(tiny_bundles["lvm"], short)
    description = json.loads((short / "bundle.json").read_text())
    for network in description["models"].values():
        network["model"]["max_positions"] = 8
    (short / "bundle.json").write_text(json.dumps(description))
    assert measure_speed.operations([DELTA], {"lvm": short})["lvm", "delta"] > 0


def test_a_batch_that_does_not_fit_on_a_gpu_ends_its_growth_and_is_said(tmp_path, tiny_bundles):
    """On a pretended GPU whose memory holds tensors of 32 KB, by processes that really start.

    The first or second larger size fails, before the growth could end because a busy machine was slow.
    """
    (tmp_path / "test.de").write_text("der Hund ruht\nein Baum\n", encoding="utf-8")
    settings = {"speed": SPEED | {"protocols": ["gpu"], "repeats": 1, "batch": 4}, "rows": ROWS[1:]}
    words = ["--settings", json.dumps(settings), "--source", "test.de", "--output", "speed.json", "--device", "cuda"]
    words += ["--bundles", f"lvm={tiny_bundles['lvm']}"]
    command = [sys.executable, "-m", "workflow_src.stages.measure_speed", *stage_line("measure_speed", words, tmp_path)]
    variables = os.environ | environment(1, 2**15) | {"CONTINUUM_DEVICE_LOCKS": str(tmp_path / "locks")}
    process = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    speed = shown(tmp_path / "speed.json")
    (row,) = speed["rows"]
    assert row["failed_batch"]["size"] > row["batch"] and "memory" in row["failed_batch"]["reason"]


def _order(folder, threads=1):
    return Order("eager", None, "cpu", "auto", threads, {"a": folder})


@contextlib.contextmanager
def working(make, threads=1):
    """A worker that has its timer."""
    with contextlib.closing(Worker(make, _order("x", threads))) as timing_worker:
        timing_worker.wait()
        yield timing_worker


def test_a_worker_that_refuses_or_dies_says_so():
    with pytest.raises(ArtifactError) as refused:
        Worker(processes.make, _order("/nowhere/at/all")).wait()
    assert refused.value.path == "/nowhere/at/all"
    with pytest.raises(TimingFailed) as ended:
        Worker(timers.ends, _order("x")).wait()
    assert ended.value.engine == "eager" and "exit code 1" in ended.value.reason


def test_an_error_in_a_process_keeps_its_traceback_and_a_fresh_process_takes_its_place():
    row = parse(Decode, ROWS[0])
    with working(timers.faulty) as timing_worker:
        with pytest.raises(TimingFailed) as failed:
            timing_worker.time_row(row, ["a word"], None, 1)
        assert "KeyError: 'a word'" in failed.value.reason and "return {}[lines[0]]" in failed.value.trace
        with pytest.raises(TimingFailed) as ended:
            timing_worker.time_row(row, ["end"], None, 1)
        assert ended.value.row == row.key and "exit code 3" in ended.value.reason
        timing_worker.restart()
        with pytest.raises(TimingFailed, match="KeyError"):
            timing_worker.time_row(row, ["a word"], None, 1)


def test_a_size_of_batch_that_ends_the_process_ends_its_growth(quiet_machine):
    row = parse(Decode, ROWS[1])
    with working(timers.growing) as timing_worker:
        measured = measure({"eager": timing_worker}, [row], ["a", "b"], SpeedConfig(warmup=0, repeats=1, batch=4))
    times = measured.times[row.key]
    assert not measured.failures and times.batch == 8 and len(times.batches) == 1
    assert times.failed_batch.size == 16 and "exit code" in times.failed_batch.reason


def test_a_worker_that_nobody_has_waited_for_ends_at_once_and_says_nothing(capfd):
    timing_worker = Worker(timers.slow, _order("x"))
    while "begun" not in capfd.readouterr().out:
        time.sleep(0.1)
    timing_worker.close()
    assert timing_worker._process.exitcode == -signal.SIGTERM and capfd.readouterr().err == ""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_has_its_threads_and_those_that_wait_spin(threads, monkeypatch):
    for name in WAITING:
        monkeypatch.delenv(name, raising=False)
    with working(timers.thread_settings, threads) as timing_worker:
        expected = WAITING if threads > 1 else dict.fromkeys(WAITING)
        assert timing_worker.device == {"OMP_NUM_THREADS": str(threads)} | expected
        assert not WAITING.keys() & os.environ.keys()


def test_a_worker_that_waits_leaves_the_cores_to_others():
    """Threads that spin for ever would share the cores with the engine that is timed."""
    with working(timers.multiplied, threads=2) as timing_worker:
        process = psutil.Process(timing_worker._process.pid)
        assert process.num_threads() > 1
        time.sleep(0.2)
        before = process.cpu_times()
        time.sleep(0.5)
        after = process.cpu_times()
        assert after.user + after.system - before.user - before.system < 0.1


def test_what_only_ranks_is_opened_by_our_own_engine(tiny_bundles):
    row = {"system": "a", "name": "ranked", "search": "latent-search", "steps": 0, "rescorer": "teacher"}
    row |= {"engine": "onnxruntime", "compute_type": "int8"}
    folders = {measure_speed.OWN: {"a": tiny_bundles["lvm"], "teacher": tiny_bundles["transformer"]}}
    row, protocol = parse(Decode, row), measure_speed.TimingProtocol("cpu-1-thread", "cpu", 1)
    (order,) = measure_speed.orders([row], folders, protocol, "auto").values()
    assert order.in_roles == ("teacher",)
    timer, device = processes.make(order)
    assert {name: translator.engine for name, translator in timer.translators.items()} == {
        "a": "fast-int8",
        "teacher": "eager",
    }
    assert device.precision == "int8"
    rows = [row, parse(Decode, {"system": "teacher", "name": "greedy", "search": "greedy"})]
    roles = [order.in_roles for order in measure_speed.orders(rows, folders, protocol, "auto").values()]
    assert roles == [("teacher",), ()]
