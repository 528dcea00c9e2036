"""The YAML files of the project and of users: reading them, and laying one mapping over another."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from workflow_src.errors import ArtifactError, ConfigError, readable

PROJECT = Path(__file__).resolve().parents[2]
CONFIG_FOLDER = PROJECT / "config"


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a name that occurs twice in a section; YAML would silently take the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Checked before `<<` is replaced by the keys that it merges, which a section may override.
        section: yaml.MappingNode = super().compose_mapping_node(anchor)
        keys = [key for key, _ in section.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE]
        names = [self.construct_object(key) for key in keys]
        for number, (key, name) in enumerate(zip(keys, names, strict=True)):
            if name in names[:number]:
                first = keys[names.index(name)]
                lines = f"lines {first.start_mark.line + 1} and {key.start_mark.line + 1}"
                raise ValueError(f'it has "{first.value}" twice in one section, in {lines}; remove one')
        return section


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
    with readable(path):
        file = path.open(encoding="utf-8")
    try:
        with file:
            content = _parse(file.read())
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

    The text "null" does too: Snakemake reads values within sections of its command line as text.

    A definition of a dataset, which is a mapping with a name, replaces another one as a whole, because they describe
    different corpora. Without `null_removes` null replaces too, and definitions merge, as when Snakemake lays one
    configuration file over another.
    """
    merged = dict(below)
    for key, value in above.items():
        if value in (None, "null") and null_removes:
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


def read_preset(path: Path, name: Any, where: str = "") -> dict[str, Any]:
    """A copy of a preset in a YAML file. Raises ConfigError, in the section `where`, for a name that it has not."""
    presets = _mapping(path)
    if not isinstance(name, str) or name not in presets:
        raise ConfigError("preset", name, allowed=presets).within(where)
    return copy.deepcopy(presets[name])
