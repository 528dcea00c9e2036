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

from workflow_src.config.costs import Sizes, vocabulary_size
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import System
from workflow_src.config.rules import Work
from workflow_src.decoding.settings import RESCORER
from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json, write_json
from workflow_src.records.provenance import code_digest, installed_version
from workflow_src.registry import fill, named_systems, needs, of_the_family, search_of
from workflow_src.spec import MODEL, SearchSettings

FILE = Path("work/operations.json")
FORMAT = 1


class Operations:
    """Counts for a plan without auto, for sentences of the mean length; None where they cannot be counted.

    `keep` writes new counts beside those of the code as it is now.
    """

    def __init__(self, plan: Plan, sizes: Sizes):
        self.plan, self.length = plan, max(1, round(sizes.length))
        vocabulary = vocabulary_size(plan)
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
        count = self._counted(["parameters", *self._described(system)], lambda: _size(self._network(system)))
        return int(count or 0)

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
        if self.new:
            try:
                write_json(FILE, {"format": FORMAT, **self.code, "counts": self.counts})
            except OSError as failure:
                print(f"warning: counted operations are not kept: {failure}", file=sys.stderr)

    def _update(self, system: System) -> float | None:
        """Of an update, for a position of the target."""
        roles = {role: self.plan.system(name) for role, name in system.filled.items()}

        def count() -> float:
            from workflow_src.families.build import build_objective
            from workflow_src.training import counting

            objective = build_objective(system.family.name, system.objective)
            networks = {role: self._network(other) for role, other in roles.items()}
            return counting.update(self._network(system), objective, networks, self.length)

        described = {role: self._described(other) for role, other in roles.items()}
        objective = system.objective.model_dump(mode="json")
        return self._counted(["update", self._described(system), objective, described, self.length], count)

    def _search(self, system: System, settings: SearchSettings) -> float | None:
        """Of a sentence, with its rescorer."""
        outputs = search_of(settings).width(settings)
        if system.family.weights:
            return self._made_elsewhere(system.family.weights(system.model), outputs)
        rescorer = named_systems(settings).get(RESCORER)
        searched = self._without_counted_elsewhere(settings)
        names = of_the_family(searched, system.served_with) | named_systems(searched)
        members = [system, *map(self.plan.system, system.served_with.values())]
        by_role = {role: self.plan.system(name) for role, name in names.items()}
        filled = fill(needs(searched), [(member, member.family) for member in members], by_role)

        def count() -> float:
            from workflow_src.training import counting

            networks = {role: self._network(member) for role, member in filled.items()}
            vocabulary = self.sizes["target"] + len(filled[MODEL].family.symbols)
            return counting.search(networks, searched, vocabulary, self.length)

        described = {role: self._described(member) for role, member in filled.items()}
        key = ["search", search_of(searched).name, searched.model_dump(mode="json"), described, self.length]
        own = self._counted(key, count)
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
            return self._made_elsewhere(system.family.weights(system.model), outputs)

        def count() -> float:
            from workflow_src.training import counting

            return counting.scoring(self._network(system), self.length, outputs)

        return self._counted(["scoring", self._described(system), self.length, outputs], count)

    def _made_elsewhere(self, weights: Mapping[str, int], outputs: int) -> float:
        """Of a model without a network here: two for each weight and position, the source's once."""
        return 2.0 * (self.length + 1) * (weights["encoder"] + outputs * (weights["decoder"] + weights["output"]))

    def _described(self, system: System) -> list[Any]:
        """Of what a network's operations depend on."""
        return [system.family.name, system.model.model_dump(mode="json"), self.sizes]

    def _network(self, system: System) -> Any:
        from workflow_src.runtime.device import keep_memory
        from workflow_src.training import counting

        if system.name not in self._networks:
            keep_memory()
            network = counting.without_weights(system.family.name, system.model, self.sizes)
            self._networks[system.name] = network
        return self._networks[system.name]

    def _counted(self, key: list[Any], count: Callable[[], float]) -> float | None:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        if digest not in self.counts:
            if not self.new:
                print("counting operations of networks", file=sys.stderr, flush=True)
            self.new += 1
            try:
                self.counts[digest] = count()
            except Exception as failure:
                # Networks and searches of plug-ins may need more than zeros.
                reason = " ".join(str(failure).split()) or type(failure).__name__
                print(f"warning: hours leave out what cannot be counted ({key[0]}): {reason}", file=sys.stderr)
                self.counts[digest] = None
        return self.counts[digest]


def _size(network: Any) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _kept(code: Mapping[str, Any]) -> dict[str, float | None]:
    """Counts that were kept by the same code; none where there are none."""
    try:
        content = read_json(FILE)
        same = content["format"] == FORMAT and code.items() <= content.items()
        return dict(content["counts"]) if same else {}
    except (ArtifactError, OSError, KeyError, TypeError, AttributeError):
        return {}
