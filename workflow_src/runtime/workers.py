"""Blocks of a text in several processes, with the results in the order of the blocks. No torch here."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from workflow_src import registry
from workflow_src.errors import InputError

Item = TypeVar("Item")
# Lines below which starting processes takes longer than they save.
WORTHWHILE = 100_000
# Blocks for each process that are computed before they are needed.
AHEAD = 2

# What a process does with a block.
_work: Callable[[Any], Any] | None = None


class Workers:
    """Apply the function that `make(*arguments)` returns to blocks, in `threads` processes.

    Each process makes a function of its own, so that it must not matter which one gets a block. With one thread, or for
    a text of few `lines`, this process does the work. `make` and its arguments, blocks and results are pickled.
    """

    def __init__(self, threads: int, lines: int, make: Callable[..., Callable[[Any], Any]], *arguments: Any):
        self.processes = threads if lines >= WORTHWHILE else 1
        self._pool: ProcessPoolExecutor | None = None
        if self.processes == 1:
            self._work = make(*arguments)
            return
        # Not forked from this process, which may have threads, but from one that has imported what all need.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([make.__module__])
        starting = (registry.used_modules(), make, arguments)
        self._pool = ProcessPoolExecutor(self.processes, context, initializer=_start, initargs=starting)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, blocks: Iterable[Item]) -> Iterator[tuple[Item, Any]]:
        """(block, result) in the order of the blocks; a few blocks are read ahead.

        Raises what the function raises, and InputError where the system ended a process.
        """
        if self._pool is None:
            yield from ((block, self._work(block)) for block in blocks)
            return
        waiting: collections.deque[tuple[Item, Future[Any]]] = collections.deque()
        try:
            for block in blocks:
                waiting.append((block, self._pool.submit(_apply, block)))
                if len(waiting) > AHEAD * self.processes:
                    first, result = waiting.popleft()
                    yield first, result.result()
            for block, result in waiting:
                yield block, result.result()
        except BrokenProcessPool:
            problem = "was ended by the system, for want of memory perhaps"
            raise InputError("a process of this job", problem, "allow more memory, or fewer threads") from None


def blocks_of(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items, the last one of fewer."""
    remaining = iter(items)
    while block := list(itertools.islice(remaining, size)):
        yield block


def _start(plugins: Iterable[str], make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    """Prepare a process. Errors wait for a block, whose result they are; that of a user's interruption is not shown."""
    global _work
    threading.Thread(target=_end_with_job, daemon=True).start()
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        registry.use(plugins)
        _work = make(*arguments)
    except Exception as failure:
        _work = functools.partial(_fail, failure)


def _end_with_job() -> None:
    """End this process when the one that it works for ends, however it ends."""
    job = multiprocessing.parent_process()
    assert job is not None, "this process was started by another"
    job.join()
    os._exit(1)


def _fail(failure: Exception, _block: Any) -> Any:
    raise failure


def _apply(block: Any) -> Any:
    assert _work is not None, "processes are started with a function"
    return _work(block)
