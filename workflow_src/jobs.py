"""What every stage shares: arguments, a log on screen and in a file, and errors as one sentence."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler

from workflow_src.runtime import gpus, guard, torchrun
from workflow_src.runtime.signals import PeerFailed, Preempted

log = logging.getLogger("continuum")


def boolean(text: str) -> bool:
    """`True` or `False`, as Snakemake prints them."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, not {text!r}")
    return text.lower() == "true"


def named_paths(option: str, form: str, words: list[str]) -> dict[str, Path]:
    """NAME=PATH words of an option as a mapping. Raises ValueError for a word of another form than `form`."""
    paths = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not (name and equals and path):
            raise ValueError(f'{option} has "{word}"; write {form}.')
        paths[name] = Path(path)
    return paths


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with the arguments that all stages have: --settings (JSON) and --log (a file)."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--settings", type=json.loads, required=True, help="JSON: what changes the result")
    made.add_argument("--log", type=Path, help="file that also gets what is logged")
    return made


def add_runtime(made: argparse.ArgumentParser) -> None:
    """Arguments that say where and how fast, never what."""
    made.add_argument("--device", default="auto")
    made.add_argument("--precision", default="auto", choices=("auto", "float32", "bfloat16"))
    made.add_argument("--threads", type=int, default=1)


def lease_devices(device: str, count: int = 1, seconds: float | None = None) -> tuple[str, ...] | None:
    """Take GPUs for this process that no other job on this machine has taken; None where there is nothing to take.

    They are this process's until it ends. Call this before anything has looked at GPUs. A device with a number, such as
    cuda:1, is used without a lock. Waits while all are taken; raises gpus.Taken after `seconds`, if given.
    """
    kind, _, number = device.partition(":")
    if kind == "cuda" and number.isdigit():
        gpus.announce(int(number))
    if device not in ("auto", "cuda"):
        return None
    # A PyTorch that cannot use the GPUs that are there must not keep others from them.
    if device == "auto" and not (gpus.visible() and _built_for_gpus()):
        return None
    lease = gpus.lease(count, seconds=seconds)
    return lease.devices if lease else None


class _LogFile(logging.FileHandler):
    """A log that cannot be written, on a full disk say, does not stop the work or hide its error."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def _built_for_gpus() -> bool:
    import torch

    return torch.version.cuda is not None or torch.version.hip is not None


def _set_up_log(path: Path | None) -> None:
    """Colours on a terminal, plain lines elsewhere; the file also gets the traceback behind an error's sentence.

    Of several processes of one job the first says what happens; all say what goes wrong, with their number.
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
    form = f"[process {rank}] %(message)s" if rank else "%(message)s"
    # Remarks of libraries are for their developers.
    logging.basicConfig(level=logging.WARNING, format=form, handlers=handlers, force=True)
    log.setLevel(logging.WARNING if rank else logging.DEBUG)


def start(
    run: Callable[[argparse.Namespace], Any], made: argparse.ArgumentParser, words: list[str] | None = None
) -> None:
    """Parse, run, and leave: 0 when done, 1 with one sentence for bad input, 130 when interrupted.

    75 says that a signal stopped a training, which the same command goes on with; 69, that another process of the same
    job failed. Stages that compute on a GPU take one that no other job has. `run` returns a one-line summary or None.
    Anything but bad input is a fault of ours and keeps its traceback.
    """
    arguments = made.parse_args(words)
    _set_up_log(arguments.log)
    guard.watch()
    began = time.perf_counter()
    try:
        # torchrun's processes share: the first one takes GPUs for all.
        if hasattr(arguments, "device") and not torchrun.started():
            lease_devices(arguments.device)
        summary = run(arguments)
    except (Preempted, PeerFailed) as stop:
        log.warning("%s", stop)
        log.debug("where", exc_info=True)
        sys.exit(stop.exit_code)
    except (ValueError, OSError) as failure:
        # Bad input comes as ValueErrors (ConfigError and ArtifactError are such) and, from files, as OSErrors.
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
