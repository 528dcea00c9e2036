"""`continuum check`: whether a configuration is valid, its files are there, and its texts can be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from workflow_src.cli.sizes import limit_in_words, sizes
from workflow_src.cli.texts import looks_tokenised, own_text_counts
from workflow_src.config import Plan, costs
from workflow_src.data.tokenised import warning as tokenised_words
from workflow_src.errors import MISSING, ArtifactError, ConfigError
from workflow_src.registry import import_plugins


def check(plan: Plan) -> Iterator[str]:
    """Lines that say what is valid. Raises InputError for the first thing that is wrong."""
    costs.check(plan)
    import_plugins()
    check_files(plan)
    counts = own_text_counts(plan)
    systems = ", ".join(plan.loaded.systems)
    yield (
        f"Experiment {plan.experiment} is valid: data recipe {plan.recipe.name}, systems {systems}, "
        f"{len(plan.rows)} translations."
    )
    if counts:
        read = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        yield f"Your texts can be read; their lines or rows: {read}."
    if sentence := tokenised_words(looks_tokenised(plan)):
        yield f"warning: {sentence}"
    if "train" in counts and (limit := sizes(plan).limit):
        yield limit_in_words(limit)


def check_files(plan: Plan) -> None:
    """Raises ConfigError for a missing file of the user's that the configuration names."""
    dataset = plan.loaded.dataset
    where = f", relative to {Path.cwd()}, where Snakemake would start"
    for path in plan.own_files():
        if not Path(path).is_file():
            hint = f": {dataset.folder_hint}" if dataset.folder_hint else ""
            relative = "" if Path(path).is_absolute() else where
            fix = f"put it there, or change its path in dataset {dataset.name}{relative}"
            raise ArtifactError(path, f"{_problem(path)}{hint}", fix)
    files = plan.own_inputs + (list(plan.own_monolingual.items()) if plan.reads_monolingual else [])
    for setting, path in files:
        if not Path(path).is_file():
            relative = "" if Path(path).is_absolute() else where
            raise ConfigError(setting, path, problem=f"it {_problem(path)}", hint=f"change the path{relative}")


def _problem(path: str) -> str:
    return "is a folder" if Path(path).is_dir() else MISSING
