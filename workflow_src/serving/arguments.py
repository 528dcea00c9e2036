"""Checks of arguments of the Python API and of `continuum translate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn

from workflow_src.errors import ConfigError
from workflow_src.spec import Search, SearchSettings

# More sentences than fit into any memory, more threads than any machine has: typing errors.
MOST_SENTENCES, MOST_THREADS = 1_000_000, 1024


def check_batch(batch: Any) -> None:
    """Raises ValueError for a number of sentences that cannot be translated together."""
    _check_number("batch", batch, MOST_SENTENCES)


def check_threads(threads: Any) -> None:
    """Raises ValueError for a number of CPU threads that cannot be; None is the library's own choice."""
    if threads is not None:
        _check_number("threads", threads, MOST_THREADS)


def _check_number(name: str, value: Any, most: int) -> None:
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not 1 <= value <= most:
        raise ConfigError(name, value, allowed=f"a whole number from 1 to {most:,}")


def check_n_best(n_best: Any, search: Search, settings: SearchSettings, searches: Sequence[Search]) -> None:
    """Raises ValueError for a number of hypotheses that a search does not hold; `searches` are those of the system."""
    if n_best is None:
        return
    _check_number("n_best", n_best, MOST_SENTENCES)
    width = search.width(settings)
    if n_best > width:
        problem = f"search {search.name} holds {width} hypothes{'i' if width == 1 else 'e'}s of a sentence"
        raising = " or ".join(f"raise {name}" for name in settings.named("holds"))
        hint = raising if search.several else _instead([one for one in searches if one.several])
        raise ConfigError("n_best", n_best, problem=problem, hint=hint)


def refuse_origins(search: Search, searches: Sequence[Search]) -> NoReturn:
    """Raises ValueError: a search does not know what its outputs were read off; `searches` of the system may."""
    problem = f"search {search.name} does not know the source subwords that its outputs were read off"
    raise ConfigError("return_origins", True, problem=problem, hint=_instead([one for one in searches if one.origins]))


def _instead(searches: Sequence[Search]) -> str:
    """Hint for a setting that a search does not allow: `searches` of the same system do."""
    return f"take search {' or '.join(search.name for search in searches)}" if searches else "leave it out"


def check_lines(lines: Any) -> None:
    """Raises ValueError for anything but a list of text: of a text by itself every letter would be a line."""
    if not isinstance(lines, Sequence) or isinstance(lines, (str, bytes)):
        raise ConfigError("lines", lines, allowed='a list of lines, such as ["Der Hund schläft."]')
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise ConfigError(f"line {number}", line, allowed="text (str)")


def check_systems(systems: Any) -> None:
    """Raises ValueError for anything but a dict of translators by role, or None."""
    if systems is not None and not isinstance(systems, Mapping):
        raise ConfigError("systems", systems, allowed="a dict of translators by role")


def check_folder(folder: Any) -> Path:
    """The path of a bundle. Raises ValueError for what is no path."""
    if not isinstance(folder, (str, Path)) or not str(folder):
        raise ConfigError("folder", folder, allowed="the path of an exported bundle")
    return Path(folder)
