"""How often Python searches for unreachable objects. Standard library only."""

from __future__ import annotations

import gc

# New objects between two searches; Python's default is 700 or 2,000.
OBJECTS = 100_000


def collect_rarely() -> None:
    """Let Python search rarely for unreachable objects, and never among those that exist now.

    For the start of a process. Imported libraries and a plan are hundreds of thousands of objects that stay until it
    ends. Searching them again and again takes a tenth of the time of a short job, and a fifth of that of a dry run.
    Objects without cycles, such as tensors of a training, are freed at once all the same.
    """
    gc.freeze()
    gc.set_threshold(OBJECTS)
