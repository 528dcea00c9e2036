"""Orderly ends: jobs end with their workflow, killed or stopped, and a job that is terminated cleans up.

A job that went on by itself would write the same files as the one that the next start of the workflow runs.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from workflow_src.runtime import torchrun

ENDING = (signal.SIGTERM, signal.SIGUSR1)
# The process of Snakemake that runs the job, as `identity` writes it; the rules set it.
VARIABLE = "CONTINUUM_WORKFLOW_PROCESS"
# Modules of jobs, as their commands name them.
STAGES = "workflow_src.stages."
# Seconds in which jobs end that a terminal has sent SIGINT, as Snakemake itself.
OF_TERMINAL = 5.0
log = logging.getLogger("continuum")


def identity(process: int | None = None) -> str:
    """A process (default: this one) as MACHINE:PID:START, which no other process ever has.

    MACHINE is one start of one machine and its namespace of process numbers. Empty where it is unknown (not Linux).
    """
    process = os.getpid() if process is None else process
    try:
        return f"{_machine()}:{process}:{_started(process)}"
    except OSError:
        return ""


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}/{os.readlink('/proc/self/ns/pid')}".replace(":", "-")


def _started(process: int) -> str:
    """The start of a process, in ticks since the machine's. Raises OSError when there is none of that number."""
    # Its name, which may be anything, ends at the last bracket.
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]


def watch() -> None:
    """Turn SIGTERM and SIGUSR1 into an exit that removes partial files, and end when the workflow's process ends, or
    torchrun, which started this one of several processes.

    A stage that handles the signals itself, as training does, keeps its handlers.
    """
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _terminated)
        if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupted)
    _watch("Snakemake", os.environ.get(VARIABLE, ""))
    if torchrun.started():
        _watch("torchrun", identity(os.getppid()))


def _watch(name: str, expected: str) -> None:
    """End when the process with this identity ends, or if it has ended. Does nothing where it cannot be known."""
    machine, process = [*expected.split(":"), ""][:2]
    try:
        if not process.isdigit() or machine != _machine():
            return
        handle = os.pidfd_open(int(process))
    except ProcessLookupError:
        _end(name)
        return
    except (AttributeError, OSError):
        # Without handles of processes (not Linux) a job does not notice.
        return
    # The process may have ended before, and another one may have its number now. The identity is unknown where
    # processes of other users are hidden.
    if identity(int(process)) not in ("", expected):
        os.close(handle)
        _end(name)
        return
    threading.Thread(target=_follow, args=(name, handle), daemon=True).start()


def _terminated(number: int, _: FrameType | None) -> None:
    _ignore_further()
    log.error("terminated")
    sys.exit(128 + number)


def _interrupted(*_: object) -> None:
    _ignore_further()
    raise KeyboardInterrupt


def _ignore_further() -> None:
    """A second signal, to a group of processes say, must not interrupt the clean-up after the first."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _follow(name: str, handle: int) -> None:
    """Wait until the process ends, in a thread of its own."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    waiting.poll()
    _end(name)


def _end(name: str) -> None:
    log.error("error: %s, which started this job, has ended; the job ends too, so that it does not run twice.", name)
    os.kill(os.getpid(), signal.SIGTERM)


def stop_jobs_at_signals(snakemake_log: logging.Logger) -> None:
    """Let SIGTERM and SIGINT of this process, a Snakemake, also end its jobs on this machine.

    By itself Snakemake starts no more jobs and waits for those that run, for hours if need be. After a signal its
    messages, which are about jobs that failed, go to its log file alone. Signals that are ignored stay so.
    """
    received: list[str] = []

    def handler(before: Callable[[int, FrameType | None], object]) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            if not received:
                received.append(signal.Signals(number).name)
                print(f"{received[0]}: jobs end, and trainings save their states", file=sys.stderr, flush=True)
                wait = OF_TERMINAL if number == signal.SIGINT else 0.0
                threading.Thread(target=_terminate_jobs, args=(wait,), daemon=True).start()
            before(number, frame)

        return handle

    def report() -> None:
        if received:
            print(f"stopped by {received[0]}; the same command goes on from here", file=sys.stderr, flush=True)

    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if callable(before):
            signal.signal(number, handler(before))
    for output in snakemake_log.handlers:
        if not isinstance(output, logging.FileHandler):
            output.addFilter(lambda _: not received)
    atexit.register(report)


def _terminate_jobs(wait: float) -> None:
    """Send SIGTERM, once, to each job that runs or that is just being started, until this process ends."""
    # Jobs, which import this module, may run in environments without it.
    import psutil

    time.sleep(wait)
    terminated: set[psutil.Process] = set()
    while True:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process not in terminated and any(word.startswith(STAGES) for word in process.cmdline()):
                    process.terminate()
                    terminated.add(process)
        time.sleep(0.5)
