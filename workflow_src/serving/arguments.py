"""Checks of what a call asks for, and that a search of it fits into memory."""

from __future__ import annotations

import bisect
import dataclasses
import operator
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn

import torch

from workflow_src.config.experiment import REMOVALS
from workflow_src.engines.choose import AUTO, EAGER
from workflow_src.engines.session import Request
from workflow_src.errors import ConfigError
from workflow_src.registry import families, search_of
from workflow_src.runtime import device_memory
from workflow_src.runtime.console import user_path
from workflow_src.serving.bundle import Description
from workflow_src.spec import Search, SearchSettings, Sizes

# More sentences than fit into any memory, more threads than any machine has: typing errors.
MOST_SENTENCES, MOST_THREADS = 1_000_000, 1024
# Bytes that fit everywhere: free memory is not looked up for less.
SMALL = 2**28


def check_request(request: Request) -> None:
    """Raises ConfigError for an impossible number of sentences, for a field that is on or off and has another value,
    and for an unknown way to remove repetitions."""
    _check_number("batch", request.batch, MOST_SENTENCES)
    for field in dataclasses.fields(request):
        if isinstance(field.default, bool) and not isinstance(value := getattr(request, field.name), bool):
            raise ConfigError(field.name, value, allowed="True or False")
    check_removal(request.remove_repetitions)


def check_removal(removal: Any) -> None:
    """Raises ConfigError unless `removal` is a way to remove repetitions; None is the default of the system."""
    if removal is not None and removal not in REMOVALS:
        raise ConfigError("remove_repetitions", removal, allowed=REMOVALS)


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


def check_folder(folder: Any) -> Path:
    """The path of a bundle. Raises InputError unless `folder` is a path."""
    if not isinstance(folder, (str, Path)) or not str(folder):
        raise ConfigError("folder", folder, allowed="the path of an exported bundle")
    return user_path(str(folder))


def check_engine(description: Description, engine: str) -> None:
    """Raises ConfigError unless the folder that `description` is of can serve with `engine`: it has its own alone."""
    imported = any(families()[network.family].imported for network in description.models.values())
    # A model that was made elsewhere has no other engine.
    if engine != AUTO and not (imported and engine == EAGER):
        problem = f"it is for bundles, and this is a folder of {description.engine}"
        raise ConfigError("engine", engine, problem=problem, hint="remove it, or give the bundle")


def check_systems(systems: Any, settings: SearchSettings, kind: type) -> None:
    """Raises ConfigError unless `systems` has translators (`kind`) by roles that the settings of a search name."""
    if not isinstance(systems, Mapping):
        raise ConfigError("systems", systems, allowed="a dict of translators by role")
    named = list(settings.roles().values())
    for role, system in systems.items():
        if role not in named:
            raise ConfigError("systems", role, problem="no role of this search", allowed=named)
        if not isinstance(system, kind):
            raise ConfigError(f"systems.{role}", system, allowed="a translator, which Translator.load opens")


def check_room(settings: SearchSettings, sizes: Sizes, device: torch.device) -> None:
    """Raises ConfigError where the hypotheses of a batch need more memory than is free.

    The estimate is a lower bound: a search that passes may still run out of memory.
    """
    search = search_of(settings)
    values = {name: getattr(settings, name) for name in settings.named("holds") if getattr(settings, name) > 1}
    # Other searches hold one hypothesis, which is bounded where the search says what it holds.
    if not values and search.held is None:
        return
    needed_bytes = search.bytes_held(settings, sizes)
    if needed_bytes < SMALL or needed_bytes <= (free := device_memory.available(device)):
        return

    def too_many(sentences: int) -> bool:
        return search.bytes_held(settings, dataclasses.replace(sizes, sentences=sentences)) > free

    # The largest number of sentences, and the largest value, that fit; 0 where none does.
    fitting = {"batch": bisect.bisect_left(range(1, sizes.sentences), True, key=too_many)}
    setting, value = "batch", sizes.sentences
    if values:
        setting, value = max(values.items(), key=operator.itemgetter(1))

        def too_much(number: int) -> bool:
            return search.bytes_held(settings.model_copy(update={setting: number}), sizes) > free

        fitting = {setting: bisect.bisect_left(range(1, value), True, key=too_much)} | fitting
    cures = [f"{name} to {most}" for name, most in fitting.items() if most]
    further = ", ".join(f"{name} {number}" for name, number in values.items() if name != setting)
    count = "1 sentence" if sizes.sentences == 1 else f"{sizes.sentences} sentences"
    raise ConfigError(
        setting,
        value,
        problem=f"search {search.name}{further and f' with {further}'} needs at least {needed_bytes / 1e9:,.1f} GB of "
        f"memory for {count} of {sizes.length} subwords together, and {free / 1e9:,.1f} GB are free",
        hint=f"lower {' or '.join(cures) or f'{setting} and batch'}" if cures or values else "split long sentences",
    )
