"""The configuration that a look-up command is asked about: named as for Snakemake, or by the name of an experiment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workflow_src.config import load
from workflow_src.config.compose import is_file_name
from workflow_src.config.files import CONFIG_FOLDER, experiment_file, experiment_names, merge, read_yaml
from workflow_src.config.load import check_own_name
from workflow_src.config.resolved import Loaded
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.runtime import snakemake_parts

# Arguments that name a configuration: the same, with the same meaning, for every command.
CONFIGURATION = argparse.ArgumentParser(add_help=False)
CONFIGURATION.add_argument(
    "configuration",
    nargs="?",
    help=f"an experiment ({', '.join(experiment_names())}) or a YAML file; default: what config/config.yaml says",
)
CONFIGURATION.add_argument(
    "--configfile", nargs="+", default=[], metavar="FILE", help="as for snakemake, laid over CONFIGURATION"
)
CONFIGURATION.add_argument(
    "--config",
    nargs="+",
    default=[],
    metavar="KEY=VALUE",
    help="as for snakemake, over both; a YAML file here counts as one of --configfile",
)


def configuration_files(arguments: argparse.Namespace) -> list[Path]:
    """The YAML files that the arguments name, each laid over the one before. Raises ConfigError or ArtifactError."""
    files = [Path(name) for name in [*arguments.configfile, *filter(_is_file, arguments.config)]]
    if arguments.configuration is not None:
        files.insert(0, configuration_file(arguments.configuration))
    for path in files:
        # Snakemake's own messages do not name the file.
        read_yaml(path)
    return files


def configuration_file(name: str) -> Path:
    """The YAML file of an experiment of `config/experiments/`, or the file `name`. Raises ConfigError for neither."""
    if name in experiment_names():
        return experiment_file(name)
    path = Path(name)
    if path.is_dir():
        raise ArtifactError(name, "is a folder", "give the name of an experiment or a YAML file")
    if is_file_name(name) or path.is_file():
        return path
    raise ConfigError("experiment", name, allowed=experiment_names())


def configuration_of(arguments: argparse.Namespace) -> Loaded:
    """The configuration that Snakemake would have with the same files and settings. Raises ConfigError."""
    raw = read_yaml(CONFIG_FOLDER / "config.yaml")
    for section in (*map(read_yaml, configuration_files(arguments)), settings_of(setting_words(arguments))):
        raw = merge(raw, section, null_removes=False)
    check_own_name(raw)
    return load(raw)


def setting_words(arguments: argparse.Namespace) -> list[str]:
    """The words of `--config` that are settings."""
    return [word for word in arguments.config if not _is_file(word)]


def _is_file(word: str) -> bool:
    """Whether a word of `--config` names a file: `extends=base.yaml` is a setting."""
    return is_file_name(word) and "=" not in word


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """Settings of the words after `--config`, as Snakemake reads them. Raises ConfigError for a word that is none."""
    if not words:
        return {}
    try:
        return snakemake_parts.read_settings(words)
    except ValueError:
        raise ConfigError("--config", " ".join(words), allowed="NAME=VALUE, such as 'seeds=[1, 2]'") from None
