"""Checks of arguments of the Python API and of `continuum translate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn

from workflow_src.errors import ConfigError
from workflow_src.runtime.console import user_path
from workflow_src.spec import Search, SearchSettings

# More sentences than fit into any memory, more threads than any machine has: typing errors.
MOST_SENTENCES, MOST_THREADS = 1_000_000, 1024


def check_batch(batch: Any) -> None:
    """Raises InputError unless `batch` is a possible number of sentences."""
    _check_number("batch", batch, MOST_SENTENCES)


def check_threads(threads: Any) -> None:
    """Raises InputError unless `threads` is a possible number of CPU threads; None is the library's default."""
    if threads is not None:
        _check_number("threads", threads, MOST_THREADS)


def _check_number(name: str, value: Any, most: int) -> None:
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= most:
        raise ConfigError(name, value, allowed=f"a whole number from 1 to {most:,}")


def check_n_best(n_best: Any, search: Search, settings: SearchSettings, searches: Sequence[Search]) -> None:
    """Raises InputError where a search holds fewer hypotheses than `n_best`; `searches` are those of the system."""
    if n_best is None:
        return
    _check_number("n_best", n_best, MOST_SENTENCES)
    width = search.width(settings)
    if n_best > width:
        problem = f"search {search.name} holds {width} hypothes{'i' if width == 1 else 'e'}s of a sentence"
        raising = " or ".join(f"raise {name}" for name in settings.named("holds"))
        hint = raising if search.several else _instead([candidate for candidate in searches if candidate.several])
        raise ConfigError("n_best", n_best, problem=problem, hint=hint)


def refuse_origins(search: Search, searches: Sequence[Search]) -> NoReturn:
    """Raises InputError for a search without origins, with a hint at the `searches` of the system that have them."""
    problem = f"search {search.name} does not know the source subwords that its outputs were read off"
    raise ConfigError(
        "return_origins",
        True,
        problem=problem,
        hint=_instead([candidate for candidate in searches if candidate.origins]),
    )


def _instead(searches: Sequence[Search]) -> str:
    """Hint for an argument that a search does not allow but `searches` of the same system do."""
    return f"take search {' or '.join(search.name for search in searches)}" if searches else "leave it out"


def check_lines(lines: Any) -> None:
    """Raises InputError unless `lines` is a list of text: in a single text every letter would be a line."""
    if not isinstance(lines, Sequence) or isinstance(lines, (str, bytes)):
        raise ConfigError("lines", lines, allowed='a list of lines, such as ["Der Hund schläft."]')
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise ConfigError(f"line {number}", line, allowed="text (str)")


def check_systems(systems: Any) -> None:
    """Raises InputError unless `systems` is None or a dict of translators by role."""
    if systems is not None and not isinstance(systems, Mapping):
        raise ConfigError("systems", systems, allowed="a dict of translators by role")


def check_folder(folder: Any) -> Path:
    """The path of a bundle. Raises InputError unless `folder` is a path."""
    if not isinstance(folder, (str, Path)) or not str(folder):
        raise ConfigError("folder", folder, allowed="the path of an exported bundle")
    return user_path(str(folder))
