"""Number and place of this process among those that torchrun started. No torch here: every stage imports this."""

from __future__ import annotations

import os


def started() -> bool:
    """Whether this is one of several processes of one job."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def rank() -> int:
    """This process's number in its job; 0 for one that is alone."""
    return int(os.environ.get("RANK", "0")) if started() else 0


def local_rank() -> int:
    """Its number on its own machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if started() else 0


def local_size() -> int:
    """Processes of the job on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if started() else 1
