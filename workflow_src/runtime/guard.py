"""Orderly ends: a job whose workflow was killed does not go on, and a job that is terminated cleans up.

A job that went on by itself would write the same files as the one that the next start of the workflow runs.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

# The process of Snakemake that runs the job, as `identity` writes it; the rules set it.
VARIABLE = "CONTINUUM_WORKFLOW_PROCESS"
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
    """Turn SIGTERM and SIGUSR1 into an exit that removes partial files, and end when the workflow's process ends.

    A stage that handles the signals itself, as training does, keeps its handlers.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGUSR1):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _terminated)
    machine, process = [*os.environ.get(VARIABLE, "").split(":"), ""][:2]
    try:
        if not process.isdigit() or machine != _machine():
            return
        handle = os.pidfd_open(int(process))
    except ProcessLookupError:
        _end()
        return
    except (AttributeError, OSError):
        # Without handles of processes (not Linux) a job does not notice.
        return
    # It may have ended before, and another process may have its number now. That is unknown where processes of other
    # users are hidden.
    if identity(int(process)) not in ("", os.environ[VARIABLE]):
        os.close(handle)
        _end()
        return
    threading.Thread(target=_follow, args=(handle,), daemon=True).start()


def _terminated(number: int, _: FrameType | None) -> None:
    log.error("terminated")
    sys.exit(128 + number)


def _follow(handle: int) -> None:
    """Wait until the process ends, in a thread of its own."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    waiting.poll()
    _end()


def _end() -> None:
    log.error("error: Snakemake, which started this job, has ended; the job ends too, so that it does not run twice.")
    os.kill(os.getpid(), signal.SIGTERM)
