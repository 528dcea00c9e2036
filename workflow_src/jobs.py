"""The frame of every stage: inputs as options, a log on screen and in a file, and errors as one sentence."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import Field
from rich.console import Console
from rich.logging import RichHandler

from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.records.atomic import atomic, canonical, fingerprint, read_json
from workflow_src.runtime import garbage, gpus, guard, torchrun
from workflow_src.runtime.signals import PeerFailed, Preempted
from workflow_src.spec import Frozen, parse

if TYPE_CHECKING:
    from tyro.constructors import PrimitiveConstructorSpec, PrimitiveTypeInfo

log = logging.getLogger("continuum")


class Options(Frozen):
    """Fields that are options of a command line: `output_folder` is `--output-folder`, its description is the help.

    A field of another `Frozen` class is one option with JSON, `dict[str, Path]` one with words NAME=PATH, and
    `dict[str, int]` one with words NAME=NUMBER.
    """


class JobInputs(Options):
    """Base of the inputs of a stage: paths, `settings`, which alone change the result, and further options."""

    log: Path | None = Field(None, description="file that also gets what is logged")
    job: Path | None = Field(None, description="JSON file of further options by name, as Snakemake writes it")

    @property
    def title(self) -> str:
        """What begins the lines on the screen, where several jobs write side by side for long."""
        return ""


class Machine(Options):
    """The device, precision and threads that a job computes with, apart from its `settings`."""

    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    threads: int = Field(1, description="CPU threads")


class DeviceJobInputs(JobInputs):
    """Base of the inputs of a stage that computes on a device; it takes a GPU, or its place on one."""

    # Whether no other job may share its GPU.
    alone_on_gpu: ClassVar[bool] = False
    machine: Machine = Machine()


Inputs = TypeVar("Inputs", bound=JobInputs)


class Document:
    """The options of a job in a file, so that its command is short however many files and settings it has.

    The file is a JSON object of options by name: settings are an object, several words a list. Its name is the digest
    of its content, so that jobs of equal options share it and a written one never changes.
    """

    def __init__(self, folder: str | Path, options: Mapping[str, Any]):
        self.options = options
        self.path = Path(folder, f"{fingerprint(options)[:32]}.json")

    def write(self) -> None:
        """Write the file where it is absent or damaged. Raises ArtifactError where there is no room for it."""
        text = canonical(self.options)
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            if self.path.read_text(encoding="utf-8") == text:
                return
        with atomic(self.path) as file:
            file.write(text)


def read_document(path: str | Path) -> list[str]:
    """The words of a command line that a `Document` stands for. Raises ArtifactError for a file that is none."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ArtifactError(path, "is no JSON object of options", "start Snakemake again, which writes it")
    words: list[str] = []
    for name, value in content.items():
        listed = value if isinstance(value, list) else [value]
        words += [f"--{name}", *(json.dumps(word) if isinstance(word, dict) else str(word) for word in listed)]
    return words


class _RefusedError(Exception):
    """A wrong value of an option, with the reason. No ValueError: tyro would print that in a form of its own."""

    def __init__(self, reason: InputError):
        self.reason = reason


def parse_options(kind: type[Inputs], words: Sequence[str] | None = None, description: str | None = None) -> Inputs:
    """The inputs from the words of a command line (default: those of this process).

    Raises InputError for JSON and NAME=VALUE words that cannot be used; exits with code 2 for other wrong options.
    """
    import tyro

    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(_from_words)
    # Nested fields without the name of their group; `--compile True` as Snakemake prints values, not `--compile`.
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff)
    program = Path(sys.argv[0]).name
    try:
        return tyro.cli(kind, prog=program, args=words, description=description, config=config, registry=registry)
    except _RefusedError as refused:
        raise refused.reason from None


def _from_words(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """The reader of options of two types, for which tyro has no such form; None for other types."""
    from tyro.constructors import PrimitiveConstructorSpec

    kind: Any = info.type
    if get_origin(kind) is dict:
        parse_words: Callable[[list[str]], Any] = named_numbers if get_args(kind)[1] is int else named_paths
        count: Literal["*", 1] = "*"
        form, kind = f"[{'NAME=NUMBER' if parse_words is named_numbers else 'NAME=PATH'} ...]", dict
    elif isinstance(kind, type) and issubclass(kind, Frozen) and not issubclass(kind, Options):
        parse_words, count, form = functools.partial(_from_json, kind), 1, "JSON"
    else:
        return None

    def instance(words: list[str]) -> Any:
        try:
            return parse_words(words)
        except InputError as failure:
            raise _RefusedError(failure) from None

    def text(value: Any) -> list[str]:
        return [f"{name}={path}" for name, path in value.items()] if kind is dict else [value.model_dump_json()]

    return PrimitiveConstructorSpec(
        nargs=count,
        metavar=form,
        instance_from_str=instance,
        is_instance=lambda value: isinstance(value, kind),
        str_from_instance=text,
    )


def _from_json(kind: type[Frozen], words: list[str]) -> Frozen:
    try:
        raw = json.loads(words[0])
    except json.JSONDecodeError as failure:
        raise InputError("--settings", f"is no JSON ({failure}): {words[0][:80]}") from None
    return parse(kind, raw, "--settings")


def recorded(settings: Frozen) -> dict[str, Any]:
    """Settings as the rule wrote them, for records."""
    return settings.model_dump(mode="json", exclude_unset=True)


def log_progress(count: int, total: int, began: float, units: str) -> None:
    """Log how many `units` of a shard are done since `began` (`time.perf_counter`), and the minutes that are left."""
    rate = count / (time.perf_counter() - began)
    log.info("%d of %d, %.0f %s/s, %.1f minutes left", count, total, rate, units, (total - count) / rate / 60)


def missing_folder(system: str, option: str = "--bundles") -> ConfigError:
    """The error of an option that names no folder for a system that a job needs."""
    return ConfigError(option, problem=f'no folder for system "{system}"', hint=f"add {system}=FOLDER")


def named_paths(words: list[str]) -> dict[str, Path]:
    """NAME=PATH words as a mapping. Raises InputError for a word of another form, and for a name that comes twice."""
    return {name: Path(path) for name, path in _values_by_name(words, "path").items()}


def named_numbers(words: list[str]) -> dict[str, int]:
    """NAME=NUMBER words as a mapping. Raises InputError as `named_paths`, and for other values than whole numbers."""
    numbers = _values_by_name(words, "number")
    for name, number in numbers.items():
        if not re.fullmatch("-?[0-9]+", number):
            raise InputError(f'"{name}={number}"', "has no whole number", "write one")
    return {name: int(number) for name, number in numbers.items()}


def _values_by_name(words: list[str], kind: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise InputError(
                f'"{word}"', f"is not of the form NAME={kind.upper()}", f'write the name, "=", and the {kind}'
            )
        if name in values:
            raise InputError(name, f"comes twice, as {values[name]} and as {value}", "remove one of the two")
        values[name] = value
    return values


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
    # A PyTorch that cannot use GPUs must not keep them from others.
    if device == "auto" and not (gpus.visible() and _built_for_gpus()):
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


def _built_for_gpus() -> bool:
    import torch

    return torch.version.cuda is not None or torch.version.hip is not None


def _set_up_log(path: Path | None) -> logging.Handler:
    """Colours on a terminal, plain lines elsewhere; the file also gets the traceback behind an error's sentence.

    Of several processes of one job only the first logs progress; all log errors, with their number. Returns the
    handler of the screen.
    """
    several, rank = torchrun.started(), torchrun.rank()
    screen: logging.Handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty() and not several:
        console = Console(stderr=True, soft_wrap=True)
        screen = RichHandler(console=console, show_time=False, show_level=False, show_path=False)
    screen.setLevel(logging.INFO)
    handlers = [screen]
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(_LogFile(path, mode="a" if several else "w", encoding="utf-8"))
    # Not the remarks of libraries, which are for developers.
    logging.basicConfig(level=logging.WARNING, format=_line_form(), handlers=handlers, force=True)
    log.setLevel(logging.WARNING if rank else logging.DEBUG)
    return screen


def start(
    run: Callable[[Inputs], str | None],
    kind: type[Inputs],
    description: str | None = None,
    words: Sequence[str] | None = None,
) -> None:
    """Parse `words` (default: those of this process), run, and leave: 0 when done, 1 with one sentence for bad input.

    Exit code 130: a user interrupted it. 75: a signal stopped a training, which the same command goes on with. 69:
    another process of the same job failed. `run` returns a one-line summary or None. Any other error is a fault of the
    program and keeps its traceback.
    """
    garbage.collect_rarely()
    # Before the other options, so that errors of these are in the log too.
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--log", type=Path)
    first.add_argument("--job", type=Path)
    options, rest = first.parse_known_args(sys.argv[1:] if words is None else words)
    screen = _set_up_log(options.log)
    guard.watch()
    began = time.perf_counter()
    try:
        inputs = parse_options(kind, [*(read_document(options.job) if options.job else []), *rest], description)
        if inputs.title:
            screen.setFormatter(_Titled(inputs.title))
        # torchrun's processes share: the first one takes GPUs for all.
        if isinstance(inputs, DeviceJobInputs) and not torchrun.started():
            lease_devices(inputs.machine.device, alone=inputs.alone_on_gpu)
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
