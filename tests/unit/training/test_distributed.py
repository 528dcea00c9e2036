"""Several processes: the same losses and weights as one process that accumulates, and what happens when one fails.

Every process is real, and they talk by gloo. Some tests start whole stages by torchrun, as the rules do.
"""

import dataclasses
import json
import math
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from killed import timeless
from pretended_cuda import environment, pretended
from stage_server import pytest_command, python_code
from stage_words import stage_line

import workflow_src.families.autoregressive as transformer
import workflow_src.families.lvm.validation as lvm
from workflow_src.config.runtime import RuntimeConfig
from workflow_src.config.training import TrainingConfig
from workflow_src.data.batching import epoch_batches
from workflow_src.decoding.search import searching
from workflow_src.errors import ConfigError
from workflow_src.families import refiners
from workflow_src.families.build import build
from workflow_src.losses.settings import CrossEntropyConfig, ElboConfig, ScoreMatchingConfig
from workflow_src.nn.weights import weights_of
from workflow_src.records.atomic import load_tensors
from workflow_src.runtime import gpus, signals
from workflow_src.runtime.device import choose
from workflow_src.runtime.processes import BUCKET, Group, Processes, _buckets, _peers
from workflow_src.runtime.signals import PeerFailed
from workflow_src.training import dev as dev_module
from workflow_src.training import devices, loop
from workflow_src.training.pairs import sized
from workflow_src.types import LossTerms

PROJECT = Path(__file__).resolve().parents[3]


def in_processes(count, work, folder):
    """What `work(group)` gives in each of `count` forked processes."""
    # The first optimiser would import it in each of them, which takes a second.
    import torch._dynamo  # noqa: F401

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
                os.environ |= {"MASTER_PORT": port}
                group = Processes()
                (folder / f"{rank}.pickle").write_bytes(pickle.dumps(work(group)))
                group.wait()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * count
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(count)]


def test_several_processes_forked_from_a_fresh_one(tmp_path):
    """The tests marked forks: forking is safe only where no thread runs yet, so not in this interpreter."""
    done = subprocess.run(
        pytest_command(tmp_path, __file__, "-q", "-m", "forks"),
        cwd=PROJECT,
        # Gradients of any device start a thread for each GPU that is not hidden.
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and re.search(r"^13 passed", done.stdout, re.MULTILINE), done.stdout + done.stderr


@pytest.mark.forks
def test_the_clock_of_the_first_process_saves_in_all(make_trainer, tmp_path, monkeypatch):
    """All compare weights before a state is written: a process that saved by its own clock would wait forever."""

    def train(group):
        trainer = make_trainer(
            "transformer",
            1,
            f"s{group.rank}",
            group=group,
            max_steps=5,
            batch_tokens=400,
            accumulate=2,
            save_minutes=5,
            save_every=1000,
            validate_every=1000,
        )
        # Five minutes pass after update 3 in the first process, and at once in the other.
        began, passed = trainer.saved_at, iter([300.0])
        monkeypatch.setattr(
            loop.time,
            "monotonic",
            lambda: began + (next(passed, 0.0) if trainer.progress.step == 3 or group.rank else 0.0),
        )
        saved, save = [], trainer._save
        trainer._save = lambda: (saved.append(trainer.progress.step), save())
        trainer.run()
        return saved

    assert in_processes(2, train, tmp_path) == [[3, 5], [3, 5]]


@pytest.mark.forks
def test_each_process_has_a_gpu_of_its_own(make_trainer, monkeypatch, tmp_path):
    """Two pretended ones, which the first process takes for both; gradients travel between them."""

    def train(group, device=None):
        if group.size > 1:
            torchrun = {"LOCAL_RANK": str(group.rank), "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x"}
            os.environ.update(torchrun)
        with pretended() as machine:
            device = devices.own_device("cuda", group) if device is None else device
            trainer = make_trainer(
                "transformer",
                1,
                f"s{group.size}-{group.rank}",
                group=group,
                runtime=choose(device, "float32"),
                max_steps=3,
                batch_tokens=400,
                accumulate=2,
                validate_every=100,
                model={"dropout": 0.0},
            )
            trainer.run()
            weights = {name: tensor.cpu() for name, tensor in weights_of(trainer.model).items()}
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            return device, torch.cuda.current_device(), visible == list(machine.uuids), weights

    for name, value in {**environment(), "CONTINUUM_DEVICE_LOCKS": str(tmp_path / "locks")}.items():
        monkeypatch.setenv(name, value)
    first, second = in_processes(2, train, tmp_path)
    assert first[:3] == ("cuda:0", 0, True) and second[:3] == ("cuda:1", 1, True)
    ((*_, alone),) = in_processes(1, lambda _: train(Group(), "cuda:0"), tmp_path)
    for name, tensor in alone.items():
        torch.testing.assert_close(first[3][name], tensor, rtol=0, atol=1e-5)
        assert torch.equal(first[3][name], second[3][name])


@pytest.mark.forks
def test_nccl_wants_a_gpu_of_its_own_for_each_process(tmp_path):
    def share(group):
        with pretended():
            try:
                group.use_cuda()
            except RuntimeError as failure:
                return str(failure)

    assert all("Duplicate GPU detected" in message for message in in_processes(2, share, tmp_path))


@pytest.mark.forks
@pytest.mark.parametrize(
    ("family", "model"), [("transformer", {}), ("lvm", {}), ("score", {}), ("energy", {}), ("nat", {"upsample": 1.0})]
)
def test_processes_are_parts_of_one(family, model, make_trainer, frozen, tmp_path):
    """In float64 without dropout, latents' noise included: figures and weights within 1e-9, and alike everywhere."""

    def train(group, accumulate):
        trainer = make_trainer(
            family,
            group=group,
            # No other training's state: nothing here is to be resumed.
            state=f"{group.size}-{accumulate}-{group.rank}",
            accumulate=accumulate,
            batch_tokens=400,
            max_steps=6,
            validate_every=2,
            save_every=100,
            model={"dropout": 0.0, **model},
            prepare=lambda model: model.double(),
        )
        if trainer.task.frozen is not None:
            trainer.task.frozen.double()
        progress = trainer.run()
        figures = [value for entry in timeless(progress.history[:3]) for value in entry.values()]
        return dict(weights_of(trainer.model)), figures, progress.target_tokens

    single, figures, tokens = train(Group(), 2)
    # Parts matter: a batch that is cut otherwise is seen.
    two_parts, *_ = train(Group(), 1)
    assert max((two_parts[name] - single[name]).abs().max() for name in single) > 1e-6
    frozen.float()
    for accumulate in (1, 2):
        for weights, group_figures, counted in in_processes(2, lambda group, a=accumulate: train(group, a), tmp_path):
            assert group_figures == pytest.approx(figures, abs=1e-9) and counted == tokens
            for name, tensor in weights.items():
                torch.testing.assert_close(tensor, single[name], rtol=0, atol=1e-9, msg=name)


@pytest.mark.forks
def test_with_dropout_parts_draw_the_same_whichever_process_computes_them(make_trainer, tmp_path):
    """Three parts in one process, and one each in three."""

    def losses(group, accumulate):
        trainer = make_trainer(
            "lvm",
            group=group,
            state=f"{group.size}-{group.rank}",
            accumulate=accumulate,
            batch_tokens=300,
            max_steps=4,
            validate_every=1,
            save_every=100,
            model={"dropout": 0.1},
        )
        return [entry["loss"] for entry in trainer.run().history if "loss" in entry]

    alone = losses(Group(), 3)
    assert len(alone) == 4
    assert in_processes(3, lambda group: losses(group, 1), tmp_path) == [pytest.approx(alone, rel=1e-5)] * 3


@pytest.mark.forks
def test_faults_of_one_process_are_everybodys(make_trainer, without_rehearsal, compare, tmp_path):
    """Its update that is not finite is skipped in all."""

    def fault(group):
        def wrap(objective):
            def call(model, batch, context):
                is_faulty = group.rank == 1 or (group.size == 1 and numbers[0] % 2 == 1)
                numbers[0] += 1
                terms = objective(model, batch, context)
                return LossTerms(terms.loss * float("nan"), *rest(terms)) if is_faulty and context.step == 1 else terms

            return call

        numbers = [0]
        rest = lambda terms: (terms.count, terms.figures)  # noqa: E731
        trainer = make_trainer(
            "transformer",
            group=group,
            state=f"{group.size}-{group.rank}",
            wrap=wrap,
            accumulate=2,
            batch_tokens=500,
            max_steps=5,
            max_skipped=2,
            keep="last",
            model={"dropout": 0.0},
            prepare=lambda model: model.double(),
        )
        progress = trainer.run()
        return dict(weights_of(trainer.model)), progress.skipped

    single, skipped = fault(Group())
    first, second = in_processes(2, fault, tmp_path)
    assert skipped == first[1] == second[1] == 1
    assert compare.equal(first[0], second[0])
    for name, tensor in first[0].items():
        torch.testing.assert_close(tensor, single[name], rtol=0, atol=1e-9, msg=name)


@pytest.mark.forks
@pytest.mark.parametrize("family", ["transformer", "lvm", "score"])
def test_validation_is_spread_and_its_figures_stay(family, tiny, tiny_settings, runtime, frozen, tmp_path, monkeypatch):
    """Bit for bit, whoever draws latents and translates which batch; there are more batches than processes."""
    monkeypatch.setattr(dev_module, "BATCH", 2)
    monkeypatch.setattr(dev_module, "BATCH_TOKENS", 50)
    torch.manual_seed(3)
    model = build(family, tiny_settings(family)["model"], tiny.sizes).eval()
    references = (tiny.corpus / "dev.reference.en").read_text().splitlines()

    def figures(group):
        looked = []
        dev = dev_module.Dev(tiny.dev, references, tiny.subwords.decode_target, runtime, 7, group)
        assert len(dev.batches()) >= 4
        if family == "transformer":
            declared = transformer.validate(CrossEntropyConfig())
        elif family == "lvm":
            declared = lvm.validate(ElboConfig())
        else:
            declared = refiners.validate(ScoreMatchingConfig(), frozen)

        def measure(model, batch, keys):
            looked.append(batch.indices)
            return declared.measure(model, batch, keys)

        translations = (
            dev.translate(lambda source: searching("greedy")(model, source)) if family == "transformer" else None
        )
        return dev.figures(model, dataclasses.replace(declared, measure=measure)), translations, looked

    alone = figures(Group())
    by_process = in_processes(3, figures, tmp_path)
    assert [part[:2] for part in by_process] == [alone[:2]] * 3
    assert sorted(batch for _, _, looked in by_process for batch in looked) == sorted(alone[2])
    assert all(len(looked) < len(alone[2]) for _, _, looked in by_process)


# In a process that imports what the first optimiser does while its group is open.
CLOSED = """
import importlib, sys
from pathlib import Path
from workflow_src.runtime.processes import Processes

def threads():
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]

for name in [name for name in sys.modules if name.startswith("torch.distributed.nn")]:
    del sys.modules[name]
group = Processes()
importlib.import_module("torch.distributed.nn.functional")
assert group.gather(1) == [1] and any("gloo" in name for name in threads())
group.close()
assert not any("gloo" in name for name in threads()), threads()
"""


def test_a_closed_group_has_no_threads():
    """One that worked while Python ends could abort the process, with its training done."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    done = subprocess.run(python_code(CLOSED), cwd=PROJECT, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def started(tmp_path, stage, words, processes=1, script=None, **environment):
    """Start a training stage (or a script that runs it) in so many processes."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT), "STAGE": stage, **environment}
    start = RuntimeConfig(devices=processes).launch.split()
    environment |= dict(word.split("=", 1) for word in start if "=" in word)
    start = [sys.executable, *[word for word in start if "=" not in word][1:]]
    program = f"workflow_src.stages.{stage}"
    if script is not None:
        program = str(tmp_path / "stage.py")
        Path(program).write_text(script)
        # The last of them says that a module follows.
        del start[len(start) - 1 - start[::-1].index("-m")]
    command = [*start, program, *stage_line(stage, words, tmp_path)]
    return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=-1, stderr=-1, text=True)


def launch(*words, **more):
    """`started`, run to its end."""
    with started(*words, **more) as job:
        out, error = job.communicate(timeout=240)
    return subprocess.CompletedProcess(job.args, job.returncode, out, error)


def history(folder):
    return timeless(json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines())


KILLED = """
import importlib, os, signal, sys
from workflow_src import jobs
from workflow_src.errors import InputError
from workflow_src.training import update

plain = update.Updater.update

def call(self, step, parts):
    if step == int(os.environ["AT"]) and self.task.group.rank == 1:
        {what}
    return plain(self, step, parts)

update.Updater.update = call
stage = importlib.import_module(f"workflow_src.stages.{{os.environ['STAGE']}}")
jobs.start(stage.run, stage.Inputs)
"""
SIGKILL = KILLED.format(what="os.kill(os.getpid(), signal.SIGKILL)")
ERROR = KILLED.format(what='raise InputError("the second process", "has had enough")')
SIGTERM = KILLED.format(what="os.kill(os.getpid(), signal.SIGTERM)")


@pytest.mark.runs
def test_a_training_that_is_killed_or_told_to_stop_goes_on_with_the_same_bits(training_words, tmp_path):
    """One process is killed; one alone gets SIGTERM; torchrun gets a signal, which it hands to both."""
    training = {"max_steps": 100, "batch_tokens": 300, "save_every": 2, "validate_every": 50}
    words = [*training_words("transformer", tmp_path / "cut", **training), "--log-every", "1"]
    killed = launch(tmp_path, "train", words, 2, SIGKILL, AT="5")
    assert killed.returncode != 0 and "another process of this training ended" in killed.stderr, killed.stderr
    stopped = launch(tmp_path, "train", words, 2, SIGTERM, AT="9")
    assert stopped.returncode != 0 and "stopped by a signal to another process" in stopped.stderr, stopped.stderr
    assert re.search(r"resumed\D+4 ", stopped.stderr)
    job, lines = started(tmp_path, "train", words, 2), []
    while not re.search(r"step 2\d/100", lines[-1] if lines else ""):
        lines.append(job.stderr.readline())
        assert lines[-1], "".join(lines)
    # Slurm's warning, which torchrun does not forward by default. Its processes are in sessions of their own.
    job.send_signal(signal.SIGUSR1)
    output = "".join(lines) + job.communicate(timeout=200)[1]
    assert job.returncode != 0 and re.search(r"resumed\D+10 ", output), output
    last = re.search(r"SIGUSR1[^\d\n]+(\d+)[^\d\n]+(\d+)", output)
    assert last and last[1] == last[2], output
    assert not (tmp_path / "cut/model.safetensors").exists()
    repeated = launch(tmp_path, "train", words, 2)
    assert repeated.returncode == 0 and re.search(rf"resumed\D+{last[1]} ", repeated.stderr), repeated.stderr
    straight = launch(tmp_path, "train", training_words("transformer", tmp_path / "straight", **training), 2)
    assert straight.returncode == 0, straight.stderr
    weights = [load_tensors(tmp_path / name / "model.safetensors") for name in ("cut", "straight")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[1])
    assert history(tmp_path / "cut") == history(tmp_path / "straight")


def test_torchrun_is_told_to_hand_on_every_signal_that_trainings_save_at():
    options = dict(word.partition("=")[::2] for word in RuntimeConfig(devices=2).launch.split())
    assert {number.name for number in signals.SIGNALS} <= set(options["PET_SIGNALS_TO_HANDLE"].split(","))


@pytest.mark.runs
def test_a_process_that_fails_is_heard_first(training_words, tmp_path):
    words = [*training_words("transformer", tmp_path / "out", batch_tokens=300), "--log", str(tmp_path / "log")]
    done = launch(tmp_path, "train", words, 2, ERROR, AT="2")
    assert done.returncode != 0
    for log in (done.stderr, (tmp_path / "log").read_text()):
        own_error = log.index("[process 1] error: the second process has had enough.")
        assert own_error < log.index("another process of this training ended, so this one stops too (")
    assert not (tmp_path / "out/model.safetensors").exists()


@pytest.mark.runs
def test_what_a_batch_is_cut_into_does_not_depend_on_processes_where_it_can(training_words, tmp_path):
    """A state of one process with two parts goes on in two processes; one of one part does not."""
    for accumulate, resumes in ((2, True), (1, False)):
        words = training_words(
            "transformer", tmp_path / str(accumulate), max_steps=4, batch_tokens=300, accumulate=accumulate
        )
        assert launch(tmp_path, "train", words).returncode == 0
        done = launch(tmp_path, "train", words, 2)
        assert done.returncode == 0, done.stderr
        assert bool(re.search(r"resumed\D+4 ", done.stderr)) == resumes
        assert ("training starts afresh" in done.stderr) != resumes


def test_parts():
    def parts(accumulate: int, processes: int) -> tuple[int, int]:
        config = TrainingConfig(max_steps=1, batch_tokens=1200, accumulate=accumulate)
        return config.parts(processes), config.part_tokens(processes)

    assert [parts(*pair) for pair in ((1, 1), (4, 1), (4, 2))] == [(1, 1200), (4, 300), (4, 300)]
    assert [parts(*pair) for pair in ((1, 4), (3, 2))] == [(4, 300), (6, 200)]


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_epochs_are_made_in_full_by_any_number_of_processes(processes, tiny):
    """Small parts are less full, so that an epoch has more of them."""
    training = TrainingConfig(max_steps={"epochs": 20}, batch_tokens=200)
    parts = len(epoch_batches(tiny.train, training.part_tokens(processes), 1, 0))
    config = sized(training, tiny.train, 1, processes)
    assert config.max_steps == math.ceil(20 * parts / processes)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (RuntimeError("[../gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:4"), PeerFailed),
        (RuntimeError("[1] Timed out waiting 7200000ms for recv operation to complete"), PeerFailed),
        (dist.DistNetworkError("no route"), PeerFailed),
        (torch.OutOfMemoryError("CUDA out of memory."), torch.OutOfMemoryError),
        (RuntimeError("[../gloo/transport/tcp/buffer.cc:3] std::bad_alloc"), RuntimeError),
        (RuntimeError("Tensors must be contiguous"), RuntimeError),
    ],
)
def test_only_broken_connections_are_laid_to_another_process(raised, expected):
    with pytest.raises(expected) as stopped, _peers():
        raise raised
    assert stopped.type is expected and (stopped.value is raised) == (expected is not PeerFailed)


def test_a_machine_that_waits_for_gpus_keeps_in_touch(monkeypatch):
    """Others hear every time that it has waited in vain, so that no connection is silent for long."""
    tries, gathered = [], []

    def lease(device, count, seconds):
        tries.append((device, count, seconds))
        if len(tries) < 3:
            raise gpus.GpuBusy
        return ("GPU-a",)

    class Watched(Group):
        def gather(self, value):
            gathered.append(value)
            return [value]

    monkeypatch.setattr(devices, "lease_devices", lease)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError) as refused:
        devices.own_device("cuda", Watched())
    assert (refused.value.setting, refused.value.value) == ("runtime.devices", 1)
    assert tries == [("cuda", 1, devices.LEASE_SECONDS)] * 3 and os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert gathered == [(True, None), (True, None), (False, ("GPU-a",))]


def test_buckets_keep_order_type_and_size():
    sizes = [3, BUCKET - 2, 1, BUCKET + 5, 2, 2]
    tensors = [torch.empty(size, device="meta") for size in sizes]
    tensors.append(torch.empty(1, device="meta", dtype=torch.float64))
    buckets = [[tensor.numel() for tensor in bucket] for bucket in _buckets(tensors)]
    assert buckets == [[3], [BUCKET - 2, 1], [BUCKET + 5], [2, 2], [1]]
    assert list(_buckets([])) == []
