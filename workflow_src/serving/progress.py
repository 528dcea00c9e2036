"""A progress bar of a translation, on a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

# Seconds of which the speed is the mean: batches of long sentences take longer than others.
SPEED_OVER = 600


@contextlib.contextmanager
def shown_progress(count: Callable[[], int | None], to_terminal: bool) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error, where that is a terminal: lines done, their total, and the time left.

    `count` returns the total, or None. The context's value is a function of the number of lines done. Nothing is shown
    where translations go to a terminal (`to_terminal`): the bar would be between them.
    """
    if to_terminal or sys.stderr is None or not sys.stderr.isatty():
        yield lambda _done: None
        return
    columns = (TextColumn("translating"), BarColumn(), MofNCompleteColumn(), TextColumn("lines"), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, speed_estimate_period=SPEED_OVER) as progress:
        task = progress.add_task("", total=count())
        yield lambda done: progress.update(task, completed=done)
