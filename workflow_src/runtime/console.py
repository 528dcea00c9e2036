"""Output and exit codes of commands: whole lines, one sentence for an error of input."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from workflow_src.errors import InputError

# The exit code of a command that Ctrl-C ended, as in shells.
INTERRUPTED = 130


def user_path(text: str) -> Path:
    """The path that a user writes: shells do not expand ~ in `--output=~/FILE`."""
    return Path(os.path.expanduser(text))


@contextlib.contextmanager
def command() -> Iterator[None]:
    """End a command with a code: 1 after one sentence on standard error for a wrong input, 130 after Ctrl-C.

    Any other error is a fault of the program and keeps its traceback.
    """
    try:
        try:
            yield
        except SystemExit:
            # As after `--help`.
            _flush()
            raise
        _flush()
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`): no error.
        _drop_output()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (InputError, OSError) as failure:
        sys.exit(f"error: {failure}")


def _flush() -> None:
    if sys.stdout is not None:
        write(sys.stdout, ())


def standard_output(instead: str = "") -> TextIO:
    """Standard output in UTF-8. Raises InputError where it is closed; `instead` ends the hint with an alternative."""
    if sys.stdout is None:
        raise InputError("standard output", "is closed", f"redirect it to a file{instead}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The same bytes whatever the terminal's own encoding is.
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    return sys.stdout


def write(output: TextIO, lines: Iterable[str]) -> None:
    """Write lines to standard output, flushed at the end. Raises InputError where there is no room for them."""
    for line in lines:
        with _room():
            output.write(f"{line}\n")
    with _room():
        output.flush()


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as failure:
        _drop_output()
        problem = f"cannot be written: {failure.strerror}"
        raise InputError("standard output", problem, "make room, or write elsewhere") from None


def _drop_output() -> None:
    """Discard the rest of the buffer: writing it at exit would end with a message of Python's."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
