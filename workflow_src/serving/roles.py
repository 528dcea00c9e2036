"""Networks of searches by role: a system's own, those that its bundle carries, and those of other systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from workflow_src import registry
from workflow_src.config.recipe import READS_TEXT
from workflow_src.errors import ConfigError
from workflow_src.serving import bundle
from workflow_src.spec import Role, SearchSettings, phrase


def networks(owner: Any, settings: SearchSettings, systems: Mapping[str, Any]) -> dict[str, nn.Module]:
    """The networks of a search of the translator `owner` by role; `systems` are translators of others by role.

    Raises ConfigError for a role without a network, and for a search that the networks were not trained for.
    """
    declared = registry.search_of(settings)
    for name, family in owner._families:
        if name not in owner._role_networks and (
            reason := family.refuses(owner.models[name].config, declared, settings)
        ):
            problem = f"with family {family.name} it {reason}"
            raise ConfigError("search", declared.name, problem=problem)
    roles = registry.needs(settings)
    carried = bundle.roles(owner.description)
    family_roles = registry.of_the_family(settings, carried)
    named = {role: owner.models[name] for role, name in family_roles.items()}
    for name, role in settings.roles().items():
        translator = systems.get(role)
        if translator is not None:
            named[role] = _network_of(owner, translator, name, roles[role])
        elif role in carried and getattr(settings, name) == owner.description.defaults.get(name):
            named[role] = owner.models[carried[role]]
        elif getattr(settings, name) is not None:
            raise ConfigError(
                name,
                getattr(settings, name),
                problem="its bundle is not open",
                hint=f"open it with Translator.load, and give the translator as {name}",
            )
    own_networks = [(owner.models[name], family) for name, family in owner._families]
    return registry.fill(roles, own_networks, named)


def _network_of(owner: Any, translator: Any, name: str, role: Role) -> nn.Module:
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
    if "subwords" in role.agree and translator.subwords.digest != owner.subwords.digest:
        problem = "it was trained with other subwords than this system"
        raise ConfigError(name, system, problem=problem, hint="give one trained on the same recipe")
    if family.imported and translator.subwords.placeholders is not None:
        raise ConfigError(name, system, problem=READS_TEXT, hint="give the bundle of a system that is trained")
    return translator.models[network]
