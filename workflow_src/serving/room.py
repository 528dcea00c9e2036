"""Check, before a search, that its hypotheses fit into memory."""

from __future__ import annotations

import bisect
import dataclasses

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
    names = [name for name in settings.named("holds") if getattr(settings, name) > 1]
    needed_bytes = search.bytes_held(settings, sizes)
    if not names or needed_bytes < SMALL or needed_bytes <= (free := device_memory.available(device)):
        return
    largest = max(names, key=lambda name: getattr(settings, name))

    def too_much(value: int) -> bool:
        return search.bytes_held(settings.model_copy(update={largest: value}), sizes) > free

    def too_many(sentences: int) -> bool:
        return search.bytes_held(settings, dataclasses.replace(sizes, sentences=sentences)) > free

    # The largest value, and the largest number of sentences, that fit; 0 where none does.
    value = bisect.bisect_left(range(1, getattr(settings, largest)), True, key=too_much)
    batch = bisect.bisect_left(range(1, sizes.sentences), True, key=too_many)
    cures = [f"{name} to {most}" for name, most in ((largest, value), ("batch", batch)) if most]
    further = ", ".join(f"{name} {getattr(settings, name)}" for name in names if name != largest)
    count = "1 sentence" if sizes.sentences == 1 else f"{sizes.sentences} sentences"
    raise ConfigError(
        largest,
        getattr(settings, largest),
        problem=f"search {search.name}{further and f' with {further}'} needs at least {needed_bytes / 1e9:,.1f} GB of "
        f"memory for {count} of {sizes.length} subwords together, and {free / 1e9:,.1f} GB are free",
        hint=f"lower {' or '.join(cures) or f'{largest} and batch'}",
    )
