"""Check, before a search, that its hypotheses fit into memory."""

from __future__ import annotations

import bisect
import dataclasses
import operator

import torch

from workflow_src.errors import ConfigError
from workflow_src.registry import search_of
from workflow_src.runtime import device_memory
from workflow_src.spec import SearchSettings, Sizes

# Bytes that fit everywhere: free memory is not looked up for less.
SMALL = 2**28


def check_room(settings: SearchSettings, sizes: Sizes, device: torch.device) -> None:
    """Raises ConfigError where the hypotheses of a batch need more memory than is free.

    The estimate is a lower bound: a search that passes may still run out of memory.
    """
    search = search_of(settings)
    values = {name: getattr(settings, name) for name in settings.named("holds") if getattr(settings, name) > 1}
    # Of other searches, one hypothesis is bounded where the search says what it holds.
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
