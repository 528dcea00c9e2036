"""Ending in good order: a job whose workflow was killed does not go on, and one that is terminated cleans up.

A job that went on by itself would write the same files as the one that the next start of the workflow runs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
from types import FrameType

# The process of Snakemake that runs the job; the rules set it.
VARIABLE = "CONTINUUM_WORKFLOW_PROCESS"
TERMINATED = 128 + signal.SIGTERM
log = logging.getLogger("continuum")


def watch() -> None:
    """Turn SIGTERM into an exit that removes what is half-written, and send it when the workflow's process is gone.

    A stage that handles SIGTERM itself, as training does, goes on to do so.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)
    # Where there are no handles of processes (not Linux), or the process is not of this machine, jobs end as before.
    with contextlib.suppress(AttributeError, KeyError, ValueError, OSError):
        handle = os.pidfd_open(int(os.environ[VARIABLE]))
        threading.Thread(target=_follow, args=(handle,), daemon=True).start()


def _terminated(number: int, frame: FrameType | None) -> None:
    log.error("terminated")
    sys.exit(TERMINATED)


def _follow(handle: int) -> None:
    """Wait until the process ends, in a thread of its own."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    waiting.poll()
    log.error("error: Snakemake, which started this job, has ended; the job ends too, so that no other meets it.")
    os.kill(os.getpid(), signal.SIGTERM)
