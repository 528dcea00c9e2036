"""The frame of every stage: a job's document as its inputs, a log on screen and in a file, errors as one sentence."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field
from rich.console import Console
from rich.logging import RichHandler

from workflow_src.errors import ConfigError, InputError
from workflow_src.records.atomic import copy_file
from workflow_src.records.documents import read_document
from workflow_src.records.provenance import commit
from workflow_src.runtime import console, garbage, gpus, guard, torchrun
from workflow_src.runtime.signals import PeerFailed, Preempted
from workflow_src.spec import Frozen, parse

log = logging.getLogger("continuum")


class JobInputs(Frozen):
    """Base of the inputs of a stage: files, `settings`, which alone change the result, and further options.

    They are the fields of the job's document. Those that the document lacks come from the run's document.
    """

    @property
    def title(self) -> str:
        """What begins the lines on the screen, where several jobs write side by side for long."""
        return ""


class Machine(Frozen):
    """The device, precision and threads that a job computes with, apart from its `settings`."""

    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int = Field(1, gt=0, description="CPU threads")


class DeviceJobInputs(JobInputs, Machine):
    """Base of the inputs of a stage that computes on a device; it takes a GPU, or its place on one."""

    # Whether no other job may share its GPU.
    alone_on_gpu: ClassVar[bool] = False

    @property
    def machine(self) -> Machine:
        return Machine(device=self.device, precision=self.precision, threads=self.threads)

    @property
    def computes(self) -> bool:
        """False for a job that needs no device, such as one that only joins shards."""
        return True


Inputs = TypeVar("Inputs", bound=JobInputs)


def read_inputs(
    kind: type[Inputs], job: str | Path, run: str | Path | None = None, threads: int | None = None
) -> Inputs:
    """The inputs of a job from its document, and from that of the run, if given.

    Raises ArtifactError for a file that is no document, and ConfigError for a field that is wrong.
    """
    of_machine = read_document(run) if run else {}
    content = {name: value for name, value in of_machine.items() if name in kind.model_fields} | read_document(job)
    if threads is not None and "threads" in kind.model_fields:
        content["threads"] = threads
    return parse(kind, content, "")


def _read_line(kind: type[JobInputs], description: str | None, words: Sequence[str] | None) -> argparse.Namespace:
    """The options of a stage's command line: `job`, `run`, `log`, `threads`. Exits with code 2 for others."""
    fields = [
        f"  {name:<16} {field.description or ''}{'' if field.is_required() else ' (may be absent)'}"
        for name, field in kind.model_fields.items()
    ]
    parser = argparse.ArgumentParser(
        description=description,
        epilog="\n".join(["fields of the document:", *fields]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--job", type=Path, required=True, help="the job's document: JSON with the fields below")
    parser.add_argument("--run", type=Path, help="the run's document: JSON with settings of the machine; default: none")
    parser.add_argument("--log", type=Path, help="file that also gets what is logged; the document is copied beside it")
    parser.add_argument("--threads", type=int, help="CPU threads")
    with console.command():
        return parser.parse_args(words)
    # The reader of the help has closed the pipe.
    sys.exit(0)


def _keep_beside(job: Path, log_path: Path) -> None:
    """Copy the document of a job beside its log. A disk that has no room for it does not stop the job."""
    copy = log_path.with_suffix(".json")
    with contextlib.suppress(OSError, InputError):
        if copy.absolute() != job.absolute():
            copy_file(job, copy)


def recorded(settings: Frozen) -> dict[str, Any]:
    """Settings as the rule wrote them, for records."""
    return settings.model_dump(mode="json", exclude_unset=True)


def log_progress(count: int, total: int, began: float, units: str) -> None:
    """Log how many `units` of a shard are done since `began` (`time.perf_counter`), and the minutes that are left."""
    rate = count / (time.perf_counter() - began)
    log.info("%d of %d, %.0f %s/s, %.1f minutes left", count, total, rate, units, (total - count) / rate / 60)


def missing_folder(system: str, field: str = "bundles") -> ConfigError:
    """The error of a field that names no folder for a system that a job needs."""
    return ConfigError(field, problem=f'no folder for system "{system}"', hint=f"add {system} and its folder")


def lease_devices(
    device: str, count: int = 1, seconds: float | None = None, alone: bool = False
) -> tuple[str, ...] | None:
    """Take GPUs for this process that no other job on this machine has taken; None where there is nothing to take.

    With `runtime.jobs_per_gpu` it may share them with others, unless it is to be `alone`.

    They are this process's until it ends. Call this before anything has looked at GPUs. A device with a number, such as
    cuda:1, is used without a lock. Waits while all are taken; raises gpus.GpuBusy after `seconds`, if given.
    """
    kind, _, number = device.partition(":")
    if kind == "cuda" and number.isdigit():
        gpus.announce(int(number))
    if device not in ("auto", "cuda"):
        return None
    if device == "auto":
        if not gpus.visible():
            return None
        import torch

        # A PyTorch that cannot use GPUs must not keep them from others.
        if torch.version.cuda is None and torch.version.hip is None:
            return None
    lease = gpus.lease(count, seconds=seconds, alone=alone)
    return lease.devices if lease else None


class _LogFile(logging.FileHandler):
    """A log that cannot be written, on a full disk say, does not stop the work or hide its error."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def _line_form() -> str:
    """The format of a line, with the number of the process of several unless it is the first."""
    rank = torchrun.rank()
    return f"[process {rank}] %(message)s" if rank else "%(message)s"


class _Titled(logging.Formatter):
    """Lines that begin with a title, except for the sentence of an error, whose "error:" comes first."""

    def __init__(self, title: str):
        super().__init__(_line_form())
        self.title = title

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return line if record.levelno >= logging.ERROR else f"[{self.title}] {line}"


def _set_up_log(path: Path | None) -> logging.Handler:
    """Colours on a terminal, plain lines elsewhere; the file also gets the traceback behind an error's sentence.

    Of several processes of one job only the first logs progress; all log errors, with their number. Returns the
    handler of the screen.

    Raises ConfigError, which the screen shows, where the file cannot be written.
    """
    several, rank = torchrun.started(), torchrun.rank()
    screen: logging.Handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty() and not several:
        console = Console(stderr=True, soft_wrap=True)
        screen = RichHandler(console=console, show_time=False, show_level=False, show_path=False)
    screen.setLevel(logging.INFO)
    # Not the remarks of libraries, which are for developers.
    logging.basicConfig(level=logging.WARNING, format=_line_form(), handlers=[screen], force=True)
    log.setLevel(logging.WARNING if rank else logging.DEBUG)
    if path:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = _LogFile(path, mode="a" if several else "w", encoding="utf-8")
        except OSError as failure:
            problem = f"it cannot be written ({failure.strerror})"
            raise ConfigError("--log", str(path), problem=problem, hint="name a file elsewhere") from None
        file.setFormatter(logging.Formatter(_line_form()))
        logging.getLogger().addHandler(file)
    return screen


def start(
    run: Callable[[Inputs], str | None],
    kind: type[Inputs],
    description: str | None = None,
    words: Sequence[str] | None = None,
) -> None:
    """Read the job that `words` name (default: those of this process), run it, and leave: 0 when done, 1 with one
    sentence for bad input.

    Exit code 130: a user interrupted it. 75: a signal stopped a training, which the same command goes on with. 69:
    another process of the same job failed. `run` returns a one-line summary or None. Any other error is a fault of the
    program and keeps its traceback.
    """
    garbage.collect_rarely()
    options = _read_line(kind, description, words)
    began = time.perf_counter()
    try:
        screen = _set_up_log(options.log)
        guard.watch()
        # For records that are written when the job ends.
        commit()
        inputs = read_inputs(kind, options.job, options.run, options.threads)
        if options.log and not torchrun.rank():
            _keep_beside(options.job, options.log)
        if inputs.title:
            screen.setFormatter(_Titled(inputs.title))
        # torchrun's processes share: the first one takes GPUs for all.
        if isinstance(inputs, DeviceJobInputs) and inputs.computes and not torchrun.started():
            lease_devices(inputs.device, alone=inputs.alone_on_gpu)
        summary = run(inputs)
    except (Preempted, PeerFailed) as stop:
        log.warning("%s", stop)
        log.debug("where", exc_info=True)
        sys.exit(stop.exit_code)
    except (InputError, OSError) as failure:
        log.error("error: %s", " ".join(str(failure).split("\n")))
        log.debug("where", exc_info=True)
        sys.exit(1)
    except KeyboardInterrupt:
        log.error("interrupted")
        sys.exit(130)
    except Exception:
        log.exception("a fault in the program, not in its input:")
        sys.exit(70)
    if summary:
        log.info("%s (%.1f s)", summary, time.perf_counter() - began)
