"""Translation of text with an exported bundle.

from workflow_src import Translator
translator = Translator.load("results/tatoeba/bundles/score/seed-1")
print(translator.translate(["Das ist ein Satz."]))
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from workflow_src import registry
from workflow_src.config.recipe import READS_TEXT
from workflow_src.data.batching import pad
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.batches import Watch, longest_first, search_all, search_rows
from workflow_src.decoding.search import open_search
from workflow_src.engines.choose import EAGER, Opened, choose_mode, open_engine, why_not
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.families.build import build
from workflow_src.nn.layers import narrow_stacks
from workflow_src.nn.models import AutoregressiveModel
from workflow_src.nn.weights import set_weights
from workflow_src.records.atomic import load_tensors
from workflow_src.runtime import device_memory
from workflow_src.runtime.bounded import Bounded
from workflow_src.runtime.device import Runtime, choose, set_threads
from workflow_src.serving import bundle
from workflow_src.serving.arguments import check_batch, check_folder, check_threads
from workflow_src.serving.base import CACHED_SETTINGS, BaseTranslator, check_roles
from workflow_src.serving.bundle import AGAIN, DESCRIPTION, Description, read_bundle
from workflow_src.spec import Role, SearchSettings, phrase
from workflow_src.types import Hypotheses, max_positions


class Translator(BaseTranslator):
    """A trained system, ready to translate by our own code, or by an engine that reads our weights."""

    def __init__(self, description: Description, models: dict[str, nn.Module], subwords: Subwords, runtime: Runtime):
        super().__init__(description, models, subwords, runtime)
        self._fast: Opened | None = None
        self._automatic = True
        self._networks: Bounded[SearchSettings, dict[str, nn.Module]] = Bounded(CACHED_SETTINGS)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        precision: str = "auto",
        threads: int | None = None,
        engine: str = "auto",
    ) -> BaseTranslator:
        """Read a bundle folder, or the folder of another engine.

        `device`: auto, cpu, cuda or cuda:N. `precision`: auto, float32 or bfloat16 (int8 and float16 for folders of
        other engines). `threads`: CPU threads, unchanged by default. `engine`: see `use`.

        Raises ArtifactError when the folder is no bundle or a file of it is missing, damaged or of another model;
        ConfigError for a device that this machine lacks or an engine that cannot serve.
        """
        folder = check_folder(folder)
        check_threads(threads)
        description = read_bundle(folder)
        if description.engine is not None:
            imported = any(registry.families()[network.family].imported for network in description.models.values())
            # A model that was made elsewhere has no other engine.
            if engine != "auto" and not (imported and engine == EAGER):
                problem = f"it is for bundles, and {folder} is the folder of another engine"
                raise ConfigError("engine", engine, problem=problem, hint="remove it")
            opens = registry.import_object(registry.engines()[description.engine].open)
            return opens.open(folder, description, device, precision, threads)
        runtime = choose(device, precision, training=False)
        set_threads(threads)
        subwords = bundle.read_subwords(folder, description)
        models = load_models(folder, description, runtime)
        if not any(parameter.dtype == runtime.dtype for model in models.values() for parameter in model.parameters()):
            # No layer was narrowed: all compute in float32.
            runtime = dataclasses.replace(runtime, dtype=torch.float32)
        return cls(description, models, subwords, runtime).use(engine)

    def use(self, engine: str) -> Translator:
        """Select the engine: eager, fast, fast-int8, or auto (the faster one here, see docs/inference.md).

        fast and fast-int8 are modes of an engine of `engines/`, which depends on the device. Traces, and searches that
        it does not serve (`Engine.serves`), are eager. Raises InputError where `engine` cannot serve; auto always can.
        """
        self.engine, self._automatic, self._fast = engine, engine == "auto", None
        if engine == EAGER:
            return self
        families = [family for _, family in self._families]
        self.engine, declared = choose_mode(engine, self.device, self.precision, families[0], self.searches)
        if declared is not None:
            # Networks that only fill roles are arguments of a search, and may be of the same families.
            networks = {
                family.name: self.models[name] for name, family in self._families if name not in self._role_networks
            }
            self._fast = open_engine(declared, networks, self.engine, self.runtime.device)
        return self

    def search_ids(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        systems: Mapping[str, BaseTranslator] | None = None,
        batch: int = 64,
        trace: bool = False,
        scored: bool = True,
        ranked: bool = False,
        watch: Watch | None = None,
    ) -> Hypotheses:
        settings = self._completed(settings)
        check_batch(batch)
        networks = self.networks(settings, systems)
        self._check_room(settings, sources, batch)
        # Opening a search takes longer than some engines' sentences: tables of noise, for example.
        opened = functools.cache(lambda: open_search(networks, settings, scored))

        def eagerly(source: Tensor) -> Hypotheses:
            return opened().translate(source, trace=trace)

        if trace or self._fast is None:
            return search_all(eagerly, sources, batch, self.runtime.device, ranked, watch)
        engines: dict[bool, Opened | None] = {}

        def search_batch(rows: list[Sequence[int]]) -> Hypotheses:
            # A last batch may be a sentence by itself.
            alone = len(rows) == 1
            if alone not in engines:
                engines[alone] = self._faster(settings, networks, alone, scored)
            faster = engines[alone]
            if faster:
                return faster.search(rows, settings, scored, networks)
            return eagerly(pad(rows, eos=True).to(self.runtime.device, non_blocking=True))

        return search_rows(search_batch, sources, batch, ranked, watch)

    @torch.no_grad()
    def _origins(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        systems: Mapping[str, BaseTranslator] | None,
        outputs: Sequence[Sequence[Sequence[int]]],
        batch: int,
    ) -> list[list[list[int]]]:
        search = open_search(self.networks(settings, systems), settings)
        # Empty sources have one output, without subwords.
        positions: list[list[list[int]]] = [[[]] for _ in sources]
        for rows in longest_first(sources, batch):
            source = pad([sources[row] for row in rows], eos=True).to(self.runtime.device, non_blocking=True)
            origins = search.origins(source, [outputs[row] for row in rows])
            for row, values in zip(rows, origins, strict=True):
                positions[row] = values
        return positions

    def networks(
        self, settings: SearchSettings, systems: Mapping[str, BaseTranslator] | None = None
    ) -> dict[str, nn.Module]:
        """The networks of a search by role.

        Raises ConfigError for a role without a network, and for a search that the networks were not trained for.
        """
        if systems:
            return self._find(settings, systems)
        # Cached for calls with one sentence.
        networks = self._networks.get(settings)
        if networks is None:
            networks = self._networks[settings] = self._find(settings, {})
        return dict(networks)

    def _find(self, settings: SearchSettings, systems: Mapping[str, BaseTranslator]) -> dict[str, nn.Module]:
        declared = registry.search_of(settings)
        check_roles(systems, settings)
        for name, family in self._families:
            if name not in self._role_networks and (
                reason := family.refuses(self.models[name].config, declared, settings)
            ):
                problem = f"with family {family.name} it {reason}"
                raise ConfigError("search", declared.name, problem=problem)
        roles = registry.needs(settings)
        carried = bundle.roles(self.description)
        family_roles = registry.of_the_family(settings, carried)
        named = {role: self.models[name] for role, name in family_roles.items()}
        for name, role in settings.roles().items():
            translator = systems.get(role)
            if translator is not None:
                named[role] = self._network_of(translator, name, roles[role])
            elif role in carried and getattr(settings, name) == self.description.defaults.get(name):
                named[role] = self.models[carried[role]]
            elif getattr(settings, name) is not None:
                raise ConfigError(
                    name,
                    getattr(settings, name),
                    problem="its bundle is not open",
                    hint=f"open it with Translator.load, and give the translator as {name}",
                )
        own_networks = [(self.models[name], family) for name, family in self._families]
        return registry.fill(roles, own_networks, named)

    def _network_of(self, translator: BaseTranslator, name: str, role: Role) -> nn.Module:
        """The network of another system for a role. Raises ConfigError where it cannot fill the role."""
        system = translator.description.system
        if not translator.models:
            problem = "it is the folder of another engine, which scores no given text"
            raise ConfigError(name, system, problem=problem, hint="give its bundle")
        network, family = translator._families[0]
        traits = family.traits - family.lacks(getattr(translator.models[network], "config", None))
        if role.trait is not None and role.trait not in traits:
            fitting = " or ".join(
                family_name for family_name, candidate in registry.families().items() if role.trait in candidate.traits
            )
            problem = f"no system that {phrase(role.trait)}"
            raise ConfigError(name, system, problem=problem, hint=f"give the bundle of one of family {fitting}")
        if "subwords" in role.agree and translator.subwords.digest != self.subwords.digest:
            problem = "it was trained with other subwords than this system"
            raise ConfigError(name, system, problem=problem, hint="give one trained on the same recipe")
        if family.imported and translator.subwords.placeholders is not None:
            raise ConfigError(name, system, problem=READS_TEXT, hint="give the bundle of a system that is trained")
        return translator.models[network]

    def _prepare(
        self, settings: SearchSettings, systems: Mapping[str, BaseTranslator], alone: bool, scored: bool
    ) -> bool:
        fast = self._serving(settings)
        if fast is None or (self._automatic and not fast.gains(settings, alone)):
            return False
        return fast.prepare(settings, scored, self.networks(settings, systems), alone)

    def _serving(self, settings: SearchSettings) -> Opened | None:
        """The engine, if it computes a search; None for our own code."""
        fast = self._fast
        return None if fast is None or why_not(fast.declared, self._families[0][1], settings) else fast

    def _faster(
        self, settings: SearchSettings, networks: dict[str, nn.Module], alone: bool, scored: bool
    ) -> Opened | None:
        """The engine for sentences one at a time (`alone`) or in batches; None for our own code."""
        fast = self._serving(settings)
        if fast is None or not self._automatic:
            return fast
        # With engine auto, calls do not wait for an export, which takes seconds: `prepare` does.
        return fast if fast.gains(settings, alone) and fast.ready(settings, scored, networks, alone) else None

    def why_eager(self, settings: SearchSettings) -> str | None:
        if self._fast is None or self._automatic:
            return None
        reason = why_not(self._fast.declared, self._families[0][1], settings)
        name = registry.search_of(settings).name
        return f"search {name} is computed eagerly: engine {self._fast.declared.name} {reason}." if reason else None

    def _positions(self) -> int:
        return self._longest

    @functools.cached_property
    def _longest(self) -> int:
        return min(max_positions(model) for name, model in self.models.items() if name not in self._role_networks)


def load_models(folder: Path, description: Description, runtime: Runtime) -> dict[str, nn.Module]:
    """The models of a bundle by name, on their device and ready to translate.

    Raises ArtifactError when weights are missing, damaged or of another model.
    """
    bundle.check_weights(folder, description)
    models = {}
    for name, network in description.models.items():
        path = folder / network.weights
        weights = load_tensors(path)
        # First without memory for weights, whose number the settings say.
        for device in ("meta", "cpu"):
            try:
                with torch.device(device):
                    model = build(network.family, network.model, network.sizes.model_dump(exclude_unset=True))
            except (RuntimeError, MemoryError, OverflowError) as failure:
                problem = f"models.{name} cannot be built ({' '.join(str(failure).split())[:200]})"
                raise ArtifactError(f"{folder / DESCRIPTION}:", problem, AGAIN) from None
            set_weights(model, weights, path)
            needed = sum(buffer.nbytes for buffer in model.buffers())
            if needed > device_memory.available(torch.device("cpu")):
                problem = f"models.{name} needs {needed / 1e9:,.1f} GB beside its weights"
                raise ArtifactError(f"{folder / DESCRIPTION}:", problem, AGAIN)
        models[name] = _placed(model, runtime).eval()
    return models


def _placed(model: nn.Module, runtime: Runtime) -> nn.Module:
    """The model on its device, in its precision."""
    if runtime.dtype == torch.float32:
        return model.to(runtime.device)
    if isinstance(model, AutoregressiveModel):
        # Its decoding step keeps everything in one type.
        return model.to(runtime.device, runtime.dtype)
    return narrow_stacks(model.to(runtime.device), runtime.dtype)
