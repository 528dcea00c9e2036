"""Lays an experiment over the one that it extends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflow_src.config.files import experiment_file, merge, read_yaml
from workflow_src.config.only import staying, without
from workflow_src.config.sweeps import everyone, listing, members_of, naming
from workflow_src.errors import ConfigError, DeclarationError
from workflow_src.registry import use


def is_file_name(name: str) -> bool:
    """Whether a configuration is named by its file, not by an experiment of `config/experiments/`."""
    return name.endswith((".yaml", ".yml"))


def experiment(name: Any, setting: str, chain: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings of the experiment that `setting` names, laid over what it extends. Raises ConfigError.

    It is one of `config/experiments/`, or a YAML file of the user's; its path starts from the working directory.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError(setting, name, allowed="an experiment of config/experiments/, or a YAML file")
    if name in chain:
        raise ConfigError(setting, name, problem=f"a circle, {' -> '.join([*chain, name])}", hint="break it")
    path = Path(name) if is_file_name(name) else experiment_file(name, setting)
    if not path.exists():
        relative = "" if path.is_absolute() else f", which starts from {Path.cwd()}"
        raise ConfigError(setting, name, problem="it does not exist", hint=f"change the path{relative}")
    return extended(read_yaml(path), (*chain, name))


def inherited(parent: dict[str, Any]) -> dict[str, Any]:
    """Settings that an experiment passes on through `extends`.

    Its description, title, notes, published figures and `search_defaults` are left out: they hold for it alone.
    """
    passed_on = {key: value for key, value in parent.items() if key not in ("extends", "description")}
    if isinstance(parent.get("systems"), dict):
        passed_on["systems"] = {name: _without(system, "search_defaults") for name, system in parent["systems"].items()}
    if isinstance(parent.get("report"), dict):
        left_out = {key for key in parent["report"] if key in ("title", "notes") or key.startswith("expected")}
        passed_on["report"] = {key: value for key, value in parent["report"].items() if key not in left_out}
        if isinstance(passed_on["report"].get("grids"), list):
            passed_on["report"]["grids"] = [_without(grid, "published") for grid in passed_on["report"]["grids"]]
    return passed_on


def _without(section: Any, name: str) -> Any:
    return {key: value for key, value in section.items() if key != name} if isinstance(section, dict) else section


def extended(raw: dict[str, Any], chain: tuple[str, ...] = ()) -> dict[str, Any]:
    """`raw` laid over what it extends. The result extends nothing, so that a key removed by null stays removed."""
    parent = raw.get("extends")
    if parent is None:
        if raw.get("only") is not None:
            hint = "add extends: EXPERIMENT, or remove only"
            raise ConfigError("only", raw["only"], problem="nothing is extended", hint=hint)
        return raw
    own = {key: value for key, value in raw.items() if key != "extends"}
    return laid_over(inherited(experiment(parent, "extends", chain)), own)


def laid_over(parent: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` laid over `parent`. `only` in `own` names the systems of `parent` that stay.

    Systems with settings in `own` stay too, and all systems that a staying one is built on or carries. Settings of
    `parent` that name a removed system are removed; those of `own` are checked like any others. `test` of `parent` is
    removed where `own` has another dataset. Raises ConfigError.
    """
    recipe = own.get("recipe")
    if isinstance(recipe, dict) and "dataset" in recipe:
        parent = _without(parent, "test")
    only = own.get("only")
    own = {key: value for key, value in own.items() if key != "only"}
    merged = merge(parent, own)
    systems = merged.get("systems")
    own_systems = own.get("systems")
    removed = [name for name, system in own_systems.items() if system is None] if isinstance(own_systems, dict) else []
    if removed and isinstance(systems, dict):
        # Null for one system of an entry with lists, which `members_of` removes.
        use_listed_plugins(merged)
        every = everyone(members_of(systems))
        systems |= {name: None for name in removed if name in every}
    if only is None or not isinstance(systems, dict):
        return merged
    # Searches and analyses say which settings name systems.
    use_listed_plugins(merged)
    members = members_of(systems)
    systems = everyone(members)
    parent, own = naming(parent, members), naming(own, members)
    own_systems, likelihood = listing(own.get("systems") or {}, members), merged.get("likelihood") or {}
    names = staying(listing(only, members) if isinstance(only, list) else only, own_systems, systems, likelihood)
    families = {name: system.get("family") for name, system in systems.items() if isinstance(system, dict)}
    merged = merge(without(parent, {name: family for name, family in families.items() if name not in names}), own)
    merged["systems"] = {name: system for name, system in systems.items() if name in names}
    if merged.get("decodes") == []:
        hint = "list decodes, or add a system that has some"
        raise ConfigError("only", only, problem="the extended experiment has no decodes of these", hint=hint)
    return merged


def use_listed_plugins(raw: dict[str, Any]) -> None:
    """Use the plug-ins of an experiment that is not checked yet, if it has a list of names. Raises ConfigError."""
    plugins = raw.get("plugins")
    if isinstance(plugins, list) and all(
        isinstance(m, str) and all(map(str.isidentifier, m.split("."))) for m in plugins
    ):
        use_plugins(plugins)


def use_plugins(modules: Sequence[str]) -> None:
    """Use the plug-ins of an experiment. Raises ConfigError for one that is missing or cannot be used."""
    try:
        use(modules)
    except DeclarationError as failure:
        raise ConfigError(
            "plugins", list(modules), problem=f"{failure.subject} {failure.problem}", hint=failure.fix
        ) from failure


def check_new_systems(raw: dict[str, Any]) -> None:
    """Raises ConfigError for a system without a family where others have one: its name is misspelt, or it is new."""
    systems = raw.get("systems")
    if not isinstance(systems, dict):
        return
    defined = [str(name) for name, system in systems.items() if isinstance(system, dict) and "family" in system]
    for name, system in systems.items():
        if defined and isinstance(name, str) and isinstance(system, dict) and "family" not in system:
            hint = "or a new one with a family"
            raise ConfigError(f"systems.{name}", problem="no system", allowed=defined, hint=hint)
