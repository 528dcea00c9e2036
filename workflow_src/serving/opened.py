"""Opening a bundle; its networks by role, and the settings of its searches with its defaults."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workflow_src import registry
from workflow_src.config.experiment import Removal, removal
from workflow_src.config.recipe import READS_TEXT
from workflow_src.config.roles import decoded, fill, needs, of_the_family
from workflow_src.data.subwords import Subwords
from workflow_src.engines.choose import open_session
from workflow_src.engines.session import Request, Session, SessionConfig
from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.families.build import build
from workflow_src.nn.layers import narrow_stacks
from workflow_src.nn.models import AutoregressiveModel
from workflow_src.nn.weights import set_weights
from workflow_src.records.atomic import load_tensors
from workflow_src.runtime import device_memory
from workflow_src.runtime.bounded import Bounded
from workflow_src.runtime.device import Runtime, set_threads
from workflow_src.serving import bundle
from workflow_src.serving.bundle import AGAIN, DESCRIPTION, Description
from workflow_src.serving.text import normalisers
from workflow_src.spec import AUTOREGRESSIVE, MODEL, REPETITIONS, Role, Search, SearchSettings, Sizes, parse, phrase
from workflow_src.types import max_positions

# Settings of searches whose look-ups are cached, for calls with one sentence.
CACHED_SETTINGS = 64


class OpenBundle:
    """A bundle with its networks (`models`, by name) in memory.

    `own` has the names and families of the system's own network and of its base's, in this order; `carried` the names
    of all others by the role of searches that they fill. `searches` are names of searches.
    """

    def __init__(self, description: Description, models: dict[str, nn.Module], subwords: Subwords):
        self.description = description
        self.models = models
        self.subwords = subwords
        self.searches = list(description.searches)
        self.carried = bundle.roles(description)
        self._all = bundle.networks(description)
        self.own = [(name, family) for name, family in self._all if name not in self.carried.values()]
        self.name, self.family = self.own[0]
        self._networks: Bounded[SearchSettings, dict[str, nn.Module]] = Bounded(CACHED_SETTINGS)
        self._removals: Bounded[SearchSettings, Removal] = Bounded(CACHED_SETTINGS)

    @functools.cached_property
    def longest_source(self) -> int:
        """Subwords of the longest source that the system reads, without its end symbol."""
        if self.family.imported:
            imported: Any = self.models[self.name]
            return imported.longest_source
        if not self.models:
            # The library of an engine's folder has the network.
            settings: Any = self.family.model.model_validate(self.description.models[self.name].model)
            return settings.max_positions - 1
        return min(max_positions(self.models[name]) for name, _ in self.own) - 1

    @functools.cached_property
    def longest_trained(self) -> int | None:
        """Subwords of the longest source that the system was trained on; None where that is not known."""
        lengths = [self.description.models[name].longest_source for name, _ in self.own]
        return min((length for length in lengths if length is not None), default=None)

    def sizes(self, longest: int, sentences: int) -> Sizes:
        """What the memory of a search depends on, for a batch of `sentences` whose longest source has so many
        subwords."""
        name, family = self.own[0]
        per_subword = family.positions(self.models[name].config) if family.positions and name in self.models else 1
        positions = min(math.ceil((longest + 1) * per_subword), self.longest_source + 1)
        width = self.description.models[name].model["dim"]
        return Sizes(self.subwords.target_size, longest + 1, width, sentences, positions)

    def removal(self, settings: SearchSettings) -> Removal:
        """The removal of repetitions for a search: by the traits of the network that outputs its words."""
        default_removal = self._removals.get(settings)
        if default_removal is None:
            decoding = decoded(settings, [(entry, entry[1]) for entry in self.own])
            traits = self._traits(decoding[0]) if decoding else frozenset()
            default_removal = removal(
                AUTOREGRESSIVE in traits, REPETITIONS in traits, self.description.remove_repetitions
            )
            self._removals[settings] = default_removal
        return default_removal

    def _traits(self, name: str) -> frozenset[str]:
        """Traits of a network of `own`, without those that its settings take away."""
        family, config = dict(self.own)[name], getattr(self.models.get(name), "config", None)
        return family.traits - (frozenset() if config is None else family.lacks(config))

    def networks(self, settings: SearchSettings, systems: Mapping[str, OpenBundle]) -> dict[str, nn.Module]:
        """The networks of a search by role; `systems` fill roles that its settings name.

        Raises ConfigError for a role without a network, and for a search that the networks were not trained for.
        """
        if systems:
            return self._filled(settings, systems)
        networks = self._networks.get(settings)
        if networks is None:
            networks = self._networks[settings] = self._filled(settings, {})
        return dict(networks)

    def _filled(self, settings: SearchSettings, systems: Mapping[str, OpenBundle]) -> dict[str, nn.Module]:
        declared = registry.search_of(settings)
        for name, family in self.own:
            if reason := family.refuses(self.models[name].config, declared, settings):
                problem = f"with family {family.name} it {reason}"
                raise ConfigError("search", declared.name, problem=problem)
        roles = needs(settings)
        family_roles = of_the_family(settings, self.carried)
        named = {role: self.models[name] for role, name in family_roles.items()}
        for name, role in settings.roles().items():
            value, partner = getattr(settings, name), systems.get(role)
            if partner is not None:
                named[role] = partner.network_for(self, name, roles[role])
            elif role in self.carried and value == self.description.defaults.get(name):
                named[role] = self.models[self.carried[role]]
            elif value is not None:
                hint = f"open it with Translator.load, and give the translator as {name}"
                raise ConfigError(name, value, problem="its bundle is not open", hint=hint)
        return fill(roles, [(self.models[name], family) for name, family in self._all], named)

    def network_for(self, other: OpenBundle, setting: str, role: Role) -> nn.Module:
        """The system's own network, for a role in a search of another system that a setting names.

        Raises ConfigError where it cannot fill the role.
        """
        system = self.description.system
        if not self.models:
            problem = "it is the folder of another engine, which scores no given text"
            raise ConfigError(setting, system, problem=problem, hint="give its bundle")
        if role.trait is not None and role.trait not in self._traits(self.name):
            families = registry.families().items()
            fitting = " or ".join(name for name, candidate in families if role.trait in candidate.traits)
            problem = f"no system that {phrase(role.trait)}"
            raise ConfigError(setting, system, problem=problem, hint=f"give the bundle of one of family {fitting}")
        if "subwords" in role.agree and self.subwords.digest != other.subwords.digest:
            problem = "it was trained with other subwords than this system"
            raise ConfigError(setting, system, problem=problem, hint="give one trained on the same recipe")
        if self.family.imported and self.subwords.placeholders is not None:
            raise ConfigError(setting, system, problem=READS_TEXT, hint="give the bundle of a system that is trained")
        return self.models[self.name]

    def check_owner(self, request: Request) -> None:
        """Raises ConfigError for a request that was made for another system, with networks of that one."""
        own_networks = self.models.values() if self.description.engine is None else [None]
        if request.networks.get(MODEL) not in own_networks:
            raise ConfigError("request", problem="it was made by another translator", hint="make it with this one")

    def settings(self, search: str | None, fields: Mapping[str, Any]) -> SearchSettings:
        """Settings of a search (default: the bundle's). Missing `fields` get the bundle's defaults for the search, or
        else the search's own. None, or the text "none", turns off a setting that may be None; None is the default of
        others.

        Raises ConfigError for a search that the bundle lacks, for fields that the search lacks, that are out of range
        or without effect; InputError for a system that translates nothing.
        """
        declared = self.search(search)
        kind = declared.settings
        for name in fields:
            if name not in kind.model_fields:
                raise ConfigError(name, problem=f"no setting of search {declared.name}", allowed=kind.model_fields)
        roles = kind.named("role")
        turned_off = [name for name in roles if name in fields and fields[name] in (None, "none")]
        defaults = bundle.defaults(self.description, declared, turned_off)
        # None in place of a number that may not be None is the default.
        changed = {name: value for name, value in fields.items() if value is not None or kind.may_be_none(name)}
        settings = parse(kind, {**defaults, **changed})
        # Dev may have chosen a default of the bundle beside a setting that turns it off.
        settings.check_used(names=changed)
        return self.completed(settings)

    def search(self, name: str | None) -> Search:
        """The search of this name (default: the bundle's). Raises ConfigError for one that the bundle lacks, InputError
        for a system that translates nothing."""
        if not self.searches:
            raise InputError(self.description.system, "is no system that translates", "give the bundle of one")
        return self._search(name or self.description.defaults["search"])

    def _search(self, name: str) -> Search:
        if name not in self.searches:
            raise ConfigError("search", name, allowed=self.searches)
        return registry.searches()[name]

    def completed(self, settings: SearchSettings) -> SearchSettings:
        """Settings that name the search whose steps are taken: by default the first of the system with steps.

        Raises ConfigError for a search, or for steps, that the system lacks.
        """
        self._search(registry.search_of(settings).name)
        if not settings.named("steps"):
            return settings
        names = dict.fromkeys(name for _, family in self.own for name in registry.searches_of(family))
        stepping = [name for name in names if registry.searches()[name].refines]
        for name in settings.named("steps"):
            value = getattr(settings, name)
            if value is None and stepping:
                settings = settings.model_copy(update={name: stepping[0]})
            elif value is not None and value not in stepping:
                raise ConfigError(name, value, allowed=stepping)
        return settings


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


def open_engine_folder(
    folder: Path, description: Description, device: str, precision: str, threads: int | None
) -> tuple[Subwords, Session]:
    """The subwords of a folder of an engine with files of its own, and its session.

    Raises ArtifactError when the model is missing or another one, InputError when the library is not installed or
    cannot compute in this precision here.
    """
    assert description.engine is not None, "the description names the engine of the folder"
    name, *further_networks = description.models
    if further_networks:
        raise ArtifactError(folder / DESCRIPTION, "has more than one network", AGAIN)
    settings = bundle.check_weights(folder, description)[name]
    threads = threads or torch.get_num_threads()
    set_threads(threads)
    subwords = bundle.read_subwords(folder, description)
    source, target = normalisers(description, subwords)
    config = SessionConfig(device, precision, threads, {}, folder, settings, subwords, source, target)
    return subwords, open_session(registry.engines()[description.engine], config)
