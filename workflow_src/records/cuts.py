"""How many shards a text is joined from: those that are on disk already, or as many as the configuration says.

A changed number of shards alone makes nothing anew, so shards that are there are used however many they are. Where what
they hold must be made anew all the same, the configuration's number counts. Records on disk tell that of

    the settings that the shards or the translations were made with
    the training settings of the systems that made them, and of all that those are built on
    for distillation, files that the shards were made of and that are newer now

They do not tell of the rest, such as a corpus that this run will make anew: the old number stays then, and every job
asks for as much as its shard needs (`config/resources.py`).
"""

from __future__ import annotations

import json
import os
from functools import cache
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workflow_src.records.atomic import read_json

if TYPE_CHECKING:
    from workflow_src.config.plan import Plan
    from workflow_src.config.resolved import Decode


class Cuts:
    """Shards by what they are joined to."""

    def __init__(self, plan: Plan):
        self.plan = plan
        # Once for each system and seed, not once for each of its decodes.
        self._to_train_anew = cache(self._trained_otherwise)

    def distilled(self, teacher: str) -> list[str]:
        """Shards of a teacher's distilled text."""
        plan, wanted = self.plan, self.plan.shards(teacher)
        counts = [wanted, *_counts(plan.distilled_shard(escape(teacher), "0", "*"))]
        sets = [[plan.distilled_shard(teacher, shard, count) for shard in range(count)] for count in counts]
        whole = [shards for shards in sets if _all_exist(shards)]
        return next((shards for shards in whole if not self._to_distil_anew(teacher, shards)), sets[0])

    def translated(self, decode: Decode, seed: int | str, split: str) -> list[str]:
        """Shards of a split's translations; none where one job translates the whole."""
        plan, place = self.plan, (decode, seed, split)

        def shards(number: int) -> list[str]:
            return [plan.translation_shard(*place, shard, number) for shard in range(number)] if number > 1 else []

        counts = _counts(plan.translation_shard(decode, escape(str(seed)), split, "0", "*"))
        whole = [number for number in (decode.shards, *counts) if number > 1 and _all_exist(shards(number))]
        text, record = plan.translation(*place), plan.translation_record(*place)
        if not os.path.exists(text):
            return shards(next(iter(whole), decode.shards))
        made, wanted = _made(record), json.loads(plan.settings_decode(decode))
        systems = [decode.system, *plan.systems_in_roles(decode).values()]
        if made.get("settings", wanted) != wanted or any(self._to_train_anew(name, seed) for name in systems):
            return shards(decode.shards)
        # Shards of this number that are newer than the text were made to replace it: a job on a cluster asks again.
        if decode.shards in whole and _newer(shards(decode.shards), record):
            return shards(decode.shards)
        return shards(made.get("shards") or next(iter(whole), 1))

    def _to_distil_anew(self, teacher: str, shards: list[str]) -> bool:
        """Whether records or times tell that shards must be made anew."""
        plan, seed = self.plan, self.plan.distillation_seed(teacher)
        wanted = json.loads(plan.settings_distillation(teacher))
        if any(_made(shard).get("settings", wanted) != wanted for shard in shards):
            return True
        sources = [plan.weights(teacher, seed), f"{plan.subwords}/subwords.json", plan.corpus("train", "source")]
        return self._to_train_anew(teacher, seed) or _newer(sources, *shards)

    def _trained_otherwise(self, name: str, seed: int | str) -> bool:
        """Whether a system that is there, or one that it is built on, was trained with other settings than now."""
        system = self.plan.system(name)
        wanted = json.loads(self.plan.settings_training(name))
        if _made(self.plan.weights(name, seed), "config.json").get("settings", wanted) != wanted:
            return True
        others = [(name, seed) for name in (*system.filled.values(), system.init_from) if name]
        others += [(system.teacher, self.plan.distillation_seed(system.teacher))] if system.teacher else []
        return any(self._to_train_anew(*other) for other in others)


def _counts(pattern: str) -> list[int]:
    """Numbers of shards of which the first is there."""
    return sorted(int(Path(name).stem.split("-of-")[1]) for name in glob(pattern))


def _all_exist(paths: list[str]) -> bool:
    return all(map(os.path.exists, paths))


def _newer(paths: list[str], *than: str) -> bool:
    """Whether one of `paths` was changed after one of `than`; files that are missing do not count."""
    times, others = ([os.path.getmtime(path) for path in some if os.path.exists(path)] for some in (paths, than))
    return bool(times and others) and max(times) > min(others)


def _made(path: str, record: str | None = None) -> dict[str, Any]:
    """The provenance of a file by the record beside it; nothing where there is none to read."""
    beside = Path(path).with_name(record) if record else Path(path).with_suffix(".json")
    try:
        made = read_json(beside)["provenance"]
    except (OSError, KeyError, TypeError, ValueError):
        return {}
    return made if isinstance(made, dict) else {}
