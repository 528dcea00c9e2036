"""Operations of a plan's jobs and parameters of its systems, which PyTorch counts once and `work/` keeps.

Without PyTorch nothing but what was kept is known.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workflow_src.config.costs import Sizes
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import System
from workflow_src.config.roles import fill, named_systems, needs, of_the_family
from workflow_src.config.rules import Work
from workflow_src.decoding.settings import RESCORER
from workflow_src.errors import ArtifactError, InputError, reason_of
from workflow_src.records.atomic import read_json, write_json
from workflow_src.records.provenance import code_digest, installed_version
from workflow_src.registry import search_of
from workflow_src.spec import MODEL, Frozen, SearchSettings

FILE = Path("work/operations.json")
FORMAT = 1


class Operations:
    """Counts for a plan without auto, for sentences of the mean length; None where they cannot be counted.

    `keep` writes new counts beside those of the code as it is now. What cannot be counted is tried and named every
    time.
    """

    def __init__(self, plan: Plan, sizes: Sizes):
        self.plan, self.length = plan, max(1, round(sizes.length))
        vocabulary = plan.recipe.subwords.size
        self.sizes = {"source": vocabulary, "target": vocabulary, "joint": plan.recipe.subwords.joint}
        self.code = {"code": code_digest(), "torch": installed_version("torch")}
        self.counts, self.new = _kept(self.code), 0
        self._networks: dict[str, Any] = {}

    def parameters(self, system: System) -> int:
        """Trained parameters; 0 of a family that is counted."""
        if system.family.weights:
            return sum(system.family.weights(system.model).values())
        if system.family.fit:
            return 0

        def count(_counting: Any, networks: Mapping[str, Any]) -> float:
            return float(sum(parameter.numel() for parameter in networks[MODEL].parameters()))

        return int(self._counted("parameters", {MODEL: system}, None, count) or 0)

    def of(self, work: Work) -> float | None:
        """Operations of a job's work; None where the number of its sentences is not known."""
        if not work.tokens:
            # Nothing is computed for a family that is counted.
            return work.tokens
        system = self.plan.system(work.system)
        if work.training:
            each = self._update(system)
        elif work.searches:
            counts = [self._search(system, settings) for settings in work.searches]
            known = [count for count in counts if count is not None]
            each = None if len(known) < len(counts) else sum(known) if work.every else max(known)
        else:
            each = self._scoring(system)
        if each is None:
            return None
        return work.tokens * (each if work.training else each / self.length)

    def keep(self) -> None:
        counts = {digest: count for digest, count in self.counts.items() if count is not None}
        if self.new and counts:
            try:
                write_json(FILE, {"format": FORMAT, **self.code, "counts": counts})
            except (OSError, InputError) as failure:
                print(f"warning: counted operations are not kept: {failure}", file=sys.stderr)

    def _update(self, system: System) -> float | None:
        """Of an update, for a position of the target."""
        family, objective = system.family.name, system.objective
        members = {MODEL: system} | {role: self.plan.system(name) for role, name in system.filled.items()}
        return self._counted(
            "update",
            members,
            objective,
            lambda counting, networks: counting.update(networks, family, objective, self.length),
        )

    def _search(self, system: System, settings: SearchSettings) -> float | None:
        """Of a sentence, with its rescorer."""
        outputs = search_of(settings).width(settings)
        if system.family.weights:
            return self._imported(system.family.weights(system.model), outputs)
        rescorer = named_systems(settings).get(RESCORER)
        searched = self._without_counted_elsewhere(settings)
        names = of_the_family(searched, system.served_with) | named_systems(searched)
        members = [system, *map(self.plan.system, system.served_with.values())]
        by_role = {role: self.plan.system(name) for role, name in names.items()}
        filled = fill(needs(searched), [(member, member.family) for member in members], by_role)
        vocabulary = self.sizes["target"] + len(filled[MODEL].family.symbols)
        own = self._counted(
            search_of(searched).name,
            filled,
            searched,
            lambda counting, networks: counting.search(networks, searched, vocabulary, self.length),
        )
        ranking = self._scoring(self.plan.system(rescorer), outputs) if rescorer else 0.0
        return None if own is None or ranking is None else own + ranking

    def _without_counted_elsewhere(self, settings: SearchSettings) -> SearchSettings:
        """Settings of the search alone: without a rescorer and language models that are counted; numbers that weigh and
        bound at their defaults, so that dev's choices among them are counted once."""
        changes = {
            name: settings.default(name)
            for name, value in settings
            if isinstance(value, float) or isinstance(settings.default(name), float)
        }
        for name, role in settings.roles().items():
            system = getattr(settings, name)
            if role == RESCORER or (system and not self.plan.system(system).family.updated):
                changes[name] = None
        return settings.model_copy(update=changes)

    def _scoring(self, system: System, outputs: int = 1) -> float | None:
        """Of scoring so many outputs of a sentence in one pass."""
        if system.family.weights:
            return self._imported(system.family.weights(system.model), outputs)
        return self._counted(
            f"score {outputs}",
            {MODEL: system},
            None,
            lambda counting, networks: counting.scoring(networks[MODEL], self.length, outputs),
        )

    def _imported(self, weights: Mapping[str, int], outputs: int) -> float:
        """Of a model without a network here: two for each weight and position, the source's once."""
        return 2.0 * (self.length + 1) * (weights["encoder"] + outputs * (weights["decoder"] + weights["output"]))

    def _counted(
        self, kind: str, members: Mapping[str, System], settings: Frozen | None, count: Callable[[Any, Any], float]
    ) -> float | None:
        """`count` of the module `training.counting` and the networks of `members`, by role, where it is not kept."""
        described = {
            role: [member.family.name, member.model.model_dump(mode="json")] for role, member in members.items()
        }
        key = [kind, described, settings and settings.model_dump(mode="json"), self.sizes, self.length]
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        if digest not in self.counts:
            if not self.new:
                print("counting operations of networks", file=sys.stderr, flush=True)
            self.new += 1
            try:
                # Commands that count nothing start without PyTorch.
                from workflow_src.training import counting

                for member in members.values():
                    if member.name not in self._networks:
                        network = counting.without_weights(member.family.name, member.model, self.sizes)
                        self._networks[member.name] = network
                networks = {role: self._networks[member.name] for role, member in members.items()}
                self.counts[digest] = count(counting, networks)
            except Exception as failure:
                # Networks and searches of plug-ins may need more than zeros.
                problem = f"hours leave out what cannot be counted ({kind}): {reason_of(failure)}"
                print(f"warning: {problem}", file=sys.stderr)
                self.counts[digest] = None
        return self.counts[digest]


def _kept(code: Mapping[str, Any]) -> dict[str, float | None]:
    """Counts that were kept by the same code; none where there are none."""
    try:
        content = read_json(FILE)
        same = content["format"] == FORMAT and code.items() <= content.items()
        return dict(content["counts"]) if same else {}
    except (ArtifactError, OSError, KeyError, TypeError, AttributeError):
        return {}
