"""Reads YAML, finds experiments by name, and lays an experiment over the one that it extends."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from workflow_src.config.only import staying, without
from workflow_src.errors import ArtifactError, ConfigError, DeclarationError
from workflow_src.registry import use

PROJECT = Path(__file__).resolve().parents[2]
CONFIG_FOLDER = PROJECT / "config"


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a name that occurs twice in a section; YAML would silently take the last value."""

    def get_single_node(self) -> yaml.Node | None:
        # Checked before `<<` is replaced by the keys that it merges, which a section may override.
        top = super().get_single_node()
        waiting, visited = [top], set()
        while waiting:
            node = waiting.pop()
            if id(node) in visited or not isinstance(node, yaml.CollectionNode):
                continue
            visited.add(id(node))
            if isinstance(node, yaml.MappingNode):
                self._refuse_twice(node)
                waiting += [part for pair in node.value for part in pair]
            else:
                waiting += node.value
        return top

    def _refuse_twice(self, section: yaml.MappingNode) -> None:
        keys = [key for key, _ in section.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE]
        names = [self.construct_object(key) for key in keys]
        for number, (key, name) in enumerate(zip(keys, names, strict=True)):
            if name in names[:number]:
                first = keys[names.index(name)]
                lines = f"lines {first.start_mark.line + 1} and {key.start_mark.line + 1}"
                raise ValueError(f'it has "{first.value}" twice in one section, in {lines}; remove one')


# The tag of `<<`, which a section may have several times, to merge several others.
MERGE = "tag:yaml.org,2002:merge"


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Any:
    return yaml.load(text, _Loader)


def read_yaml(path: Path) -> dict[str, Any]:
    """A copy of the mapping in a YAML file, which the caller may change. Equal text is parsed once.

    Tags that build objects are refused. Raises ArtifactError when the file is missing, is not YAML or holds no mapping.
    """
    return copy.deepcopy(_mapping(path))


def _reason(failure: Exception) -> str:
    """What is wrong with a text, on one line, and where."""
    mark = getattr(failure, "problem_mark", None)
    if mark is None:
        return " ".join(str(failure).split())
    return f"line {mark.line + 1}: {getattr(failure, 'problem', None) or failure}"


def _mapping(path: Path) -> dict[str, Any]:
    try:
        content = _parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(path, "does not exist") from None
    except IsADirectoryError:
        raise ArtifactError(path, "is a folder", "name a file") from None
    except OSError as failure:
        raise ArtifactError(path, f"cannot be read ({failure.strerror})") from None
    except RecursionError:
        raise ArtifactError(path, "nests too deeply", "check its brackets") from None
    except KeyError as failure:
        raise ArtifactError(path, f"has {failure}, which is not what its tag says") from None
    except (yaml.YAMLError, ValueError, OverflowError) as failure:
        # Text that is no UTF-8, days that no month has, numbers of thousands of digits.
        raise ArtifactError(path, f"is not valid YAML ({_reason(failure)})") from None
    if not isinstance(content, dict):
        raise ArtifactError(path, "has no settings", "write `name: value` lines")
    return content


def merge(below: dict[str, Any], above: dict[str, Any], null_removes: bool = True) -> dict[str, Any]:
    """`above` laid over `below`: mappings merge key by key, anything else replaces, null removes a key.

    A definition of a dataset, which is a mapping with a name, replaces another one as a whole, because they describe
    different corpora. Without `null_removes` null replaces too, and definitions merge, as when Snakemake lays one
    configuration file over another.
    """
    merged = dict(below)
    for key, value in above.items():
        if value is None and null_removes:
            merged.pop(key, None)
        elif key == "dataset" and null_removes and isinstance(value, dict) and "name" in value:
            merged[key] = merge({}, value)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value, null_removes)
        else:
            merged[key] = value
    return merged


def dataset_names() -> list[str]:
    """Names of the datasets in `config/datasets/`."""
    return sorted(path.stem for path in (CONFIG_FOLDER / "datasets").glob("*.yaml"))


def _experiment_files() -> dict[str, Path]:
    """The files of `config/experiments/` and of its folder `papers/`, by name."""
    folder = CONFIG_FOLDER / "experiments"
    files = [*folder.glob("*.yaml"), *(folder / "papers").glob("*.yaml")]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def experiment_names() -> list[str]:
    """Names of the shipped experiments, including those of `config/experiments/papers/`."""
    return list(_experiment_files())


def experiment_file(name: str, setting: str = "experiment") -> Path:
    """The YAML file of the shipped experiment that `setting` names. Raises ConfigError for another name."""
    files = _experiment_files()
    if name not in files:
        raise ConfigError(setting, name, allowed=files)
    return files[name]


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
    if only is None or not isinstance(systems, dict):
        return merged
    plugins = merged.get("plugins")
    if isinstance(plugins, list) and all(isinstance(module, str) for module in plugins):
        # Their searches and analyses say which settings name systems.
        use_plugins(plugins)
    own_systems, likelihood = own.get("systems") or {}, merged.get("likelihood") or {}
    names = staying(only, own_systems, systems, likelihood)
    families = {name: system.get("family") for name, system in systems.items() if isinstance(system, dict)}
    merged = merge(without(parent, {name: family for name, family in families.items() if name not in names}), own)
    merged["systems"] = {name: system for name, system in systems.items() if name in names}
    if merged.get("decodes") == []:
        hint = "list decodes, or add a system that has some"
        raise ConfigError("only", only, problem="the extended experiment has no decodes of these", hint=hint)
    return merged


def use_plugins(modules: Sequence[str]) -> None:
    """Use the plug-ins of an experiment. Raises ConfigError for one that is missing or cannot be used."""
    try:
        use(modules)
    except DeclarationError as failure:
        raise ConfigError(
            "plugins", list(modules), problem=f"{failure.subject} {failure.problem}", hint=failure.fix
        ) from failure


def read_preset(path: Path, name: Any, where: str) -> dict[str, Any]:
    """A preset in a YAML file, as a copy that the caller may change. Raises ConfigError for an unknown name."""
    presets = _mapping(path)
    if not isinstance(name, str) or name not in presets:
        raise ConfigError(f"{where}.preset", name, allowed=presets)
    return copy.deepcopy(presets[name])


def with_training_presets(raw: dict[str, Any]) -> dict[str, Any]:
    """`raw` with the settings of `config/training.yaml` in place of `preset` in trainings; keys beside it win.

    Raises ConfigError for an unknown preset.
    """
    systems = raw.get("systems")
    if not isinstance(systems, dict):
        return raw
    return raw | {"systems": {name: _with_training_preset(name, system) for name, system in systems.items()}}


def _with_training_preset(name: Any, system: Any) -> Any:
    training = system.get("training") if isinstance(system, dict) else None
    preset = training.get("preset") if isinstance(training, dict) else None
    if training is None or preset is None:
        return system
    settings = read_preset(CONFIG_FOLDER / "training.yaml", preset, f"systems.{name}.training")
    return system | {"training": merge(settings, {key: training[key] for key in training if key != "preset"})}


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
