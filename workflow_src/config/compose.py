"""Lays an experiment over the one that it extends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workflow_src.config.experiment import Layer
from workflow_src.config.files import experiment_file, merge, read_yaml
from workflow_src.config.only import staying, without
from workflow_src.config.sweeps import everyone, listing, members_of, naming
from workflow_src.errors import ConfigError, DeclarationError
from workflow_src.registry import use
from workflow_src.spec import parse


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
    passed_on = _without(parent, "extends", "description")
    if "systems" in parent:
        systems = parent["systems"].items()
        passed_on["systems"] = {name: system and _without(system, "search_defaults") for name, system in systems}
    if "report" in parent:
        expected = [name for name in parent["report"] if name.startswith("expected")]
        passed_on["report"] = _without(parent["report"], "title", "notes", *expected)
        if "grids" in parent["report"]:
            passed_on["report"]["grids"] = [_without(grid, "published") for grid in parent["report"]["grids"]]
    return passed_on


def _without(section: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name not in names}


def extended(raw: dict[str, Any], chain: tuple[str, ...] = ()) -> dict[str, Any]:
    """`raw` laid over what it extends. The result extends nothing, so that a key removed by null stays removed."""
    parent = raw.get("extends")
    if parent is not None:
        settings = inherited(experiment(parent, "extends", chain))
        merged = laid_over(settings, _without(raw, "extends"))
        _check_new_recipe(settings.get("recipe") or {}, merged.get("recipe") or {})
        return merged
    raw = merge({}, raw)
    if _layer(raw).only is not None:
        hint = "add extends: EXPERIMENT, or remove only"
        raise ConfigError("only", raw["only"], problem="nothing is extended", hint=hint)
    return raw


def laid_over(parent: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` laid over `parent`. `only` in `own` names the systems of `parent` that stay.

    Systems with settings in `own` stay too, and all systems that a staying one is built on or carries. Settings of
    `parent` that name a removed system are removed; those of `own` are checked like any others. `test` and
    `recipe.tokenised` of `parent` are removed where `own` has another dataset. Raises ConfigError.
    """
    merged = merge(parent, own)
    only = _layer(merged).only
    own_systems = own.get("systems") or {}
    if removed := {name: None for name, system in own_systems.items() if system is None}:
        _check_removed(removed, parent.get("systems") or {}, merged["systems"])
        # `members_of` needs the null of a system that a list stands for: it removes that one of the list's systems.
        merged["systems"] = merged["systems"] | removed
    own_recipe = own.get("recipe") or {}
    if "dataset" in own_recipe:
        if "test" not in own:
            merged.pop("test", None)
        if "tokenised" not in own_recipe:
            merged["recipe"] = _without(merged["recipe"], "tokenised")
    if only is None:
        return merged
    members = members_of(merged.get("systems", {}))
    systems = everyone(members)
    names = staying(listing(only, members), listing(own_systems, members), systems, _layer(merged).likelihood)
    dropped = {name: system.get("family") for name, system in systems.items() if name not in names}
    reduced = merge(without(naming(parent, members), dropped), naming(_without(own, "only"), members))
    if reduced.get("decodes") == []:
        hint = "list decodes, or add a system that has some"
        raise ConfigError("only", list(only), problem="the extended experiment has no decodes of these", hint=hint)
    return reduced | {"systems": {name: system for name, system in systems.items() if name in names}}


def _check_new_recipe(parent: dict[str, Any], merged: dict[str, Any]) -> None:
    """Raises ConfigError for another recipe in the folder of the extended one, whose files it would replace.

    Text of one language, and distilled text of the user's, may be added: nothing else is made from them.
    """
    name = parent.get("name")
    if name is None or merged.get("name") != name:
        return
    added = {"monolingual", "distilled"} - parent.keys()
    if not all(isinstance(recipe.get("limits") or {}, dict) for recipe in (parent, merged)):
        # Whoever reads the recipe refuses it.
        return
    before, after = ({**recipe, "limits": {**(recipe.get("limits") or {})}} for recipe in (parent, merged))
    if "monolingual" in added:
        after["limits"].pop("monolingual", None)
    changed = sorted(key for key in (before.keys() | after.keys()) - added if before.get(key) != after.get(key))
    if changed:
        problem = f"its folder is that of the extended recipe, which differs in {', '.join(changed)}"
        raise ConfigError("recipe.name", name, problem=problem, hint="give the recipe a name of its own")


def _check_removed(removed: Iterable[str], extended_systems: dict[str, Any], merged_systems: dict[str, Any]) -> None:
    """Raises ConfigError for null in place of a system that is none of the extended experiment, nor of its lists."""
    known = {name for name, system in extended_systems.items() if system is not None}
    known |= everyone(members_of(merged_systems)).keys()
    for name in removed:
        if name not in known:
            problem = "null removes a system, and the extended experiment has none of this name"
            raise ConfigError(f"systems.{name}", problem=problem, allowed=known)


def _layer(raw: dict[str, Any]) -> Layer:
    """The sections of an experiment that laying over reads, after its plug-ins are used. Raises ConfigError."""
    layer = parse(Layer, {name: raw[name] for name in Layer.model_fields if raw.get(name) is not None})
    try:
        use(layer.plugins)
    except DeclarationError as failure:
        raise ConfigError(
            "plugins", list(layer.plugins), problem=f"{failure.subject} {failure.problem}", hint=failure.fix
        ) from failure
    return layer


def check_new_systems(systems: dict[str, Any]) -> None:
    """Raises ConfigError for a system without a family where others have one: its name is misspelt, or it is new."""
    defined = [name for name, system in systems.items() if "family" in system]
    for name, system in systems.items():
        if defined and "family" not in system:
            hint = "or a new one with a family"
            raise ConfigError(f"systems.{name}", problem="no system", allowed=defined, hint=hint)
