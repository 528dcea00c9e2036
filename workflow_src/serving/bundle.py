"""Bundles: folders with all files of a system for translation. Their description, its reading and its entries."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator, model_validator

from workflow_src import registry
from workflow_src.config.costs import most_weights
from workflow_src.config.experiment import Removal
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.settings import at_least
from workflow_src.errors import ArtifactError, ConfigError, short_repr
from workflow_src.records.atomic import copy_file, read_json, sha256
from workflow_src.records.checked import Lenient, check_format, check_inside, checked
from workflow_src.spec import BASE, MODEL, Family, Search

log = logging.getLogger("continuum")

FORMAT = 1
AGAIN = "export the system again"
COPY_AGAIN = "copy the bundle again"
DESCRIPTION = "bundle.json"


class Sizes(Lenient):
    source: int = Field(gt=0, strict=True)
    target: int = Field(gt=0, strict=True)
    joint: bool
    symbols: tuple[str, ...] = ()


class Network(Lenient):
    """A network of a bundle, with its role in searches."""

    family: str
    model: dict[str, Any]
    sizes: Sizes
    weights: str
    sha256: str
    role: str

    @field_validator("weights")
    @classmethod
    def _in_the_bundle(cls, value: str) -> str:
        return check_inside(value)

    # Subwords of the longest source that it was trained on; None where that is not known.
    longest_source: int | None = None


class Languages(Lenient):
    source: str
    target: str


class RequiredPlugin(Lenient):
    """A plug-in that a bundle needs."""

    name: str
    version: str
    module: str
    digest: str


class Choice(Lenient):
    """How the default search of a finished bundle was chosen: the experiment, and the row on dev, if any.

    `rows`: number of rows on dev. `settings`: "search_defaults" where the experiment has these.
    """

    experiment: str
    rows: int = Field(ge=0, strict=True)
    row: str | None = None
    engine: str | None = None
    dev_bleu: float | None = None
    settings: str | None = None


class Vouched(Lenient):
    """The part of a provenance that vouches for files: their digests by name."""

    files: dict[str, str]


class Description(Lenient):
    """The description of a bundle. One that is read has a provenance."""

    system: str
    models: dict[str, Network] = Field(min_length=1)
    searches: tuple[str, ...]
    defaults: dict[str, Any]
    search_defaults: dict[str, dict[str, Any]] = Field(default_factory=dict)
    default_from: Choice | None = None
    remove_repetitions: Removal | None = None
    languages: Languages
    normalisation: NormalisationConfig
    plugins: tuple[RequiredPlugin, ...] = ()
    engine: str | None = None
    provenance: Vouched | None = None

    @model_validator(mode="after")
    def _a_network_for_a_role(self):
        names = [network.role for network in self.models.values()]
        if MODEL not in names:
            raise ConfigError("models", problem=f"none has the role {MODEL}")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError("models", problem=f"two have the role {twice}")
        return self


def read_bundle(folder: Path) -> Description:
    """The description of a bundle. Raises ArtifactError where the folder is none, or a plug-in of it is missing."""
    if folder.is_file():
        raise ArtifactError(folder, "is a file", f"name the folder of a bundle, such as {folder.parent}")
    if not (folder / DESCRIPTION).is_file():
        raise ArtifactError(folder, f"is no bundle: it has no {DESCRIPTION}", "export a trained system first")
    content = read_json(folder / DESCRIPTION)
    check_format(content, FORMAT, str(folder / DESCRIPTION), AGAIN)
    description = checked(Description, content, str(folder / DESCRIPTION), AGAIN)
    if description.provenance is None:
        raise ArtifactError(folder / DESCRIPTION, "has no provenance", AGAIN)
    _check_plugins(folder, description)
    return description.model_copy(update={"searches": (*description.searches, *_plugged_searches(description))})


def read_subwords(folder: Path, description: Description) -> Subwords:
    """The subwords of a bundle. Raises ArtifactError where they are not those that its networks were trained with."""
    subwords = Subwords.load(folder / "subwords")
    vouched = description.provenance.files if description.provenance else {}
    for name in ("subwords.json", *subwords.description["files"]):
        if vouched and sha256(folder / "subwords" / name) != vouched.get(f"subwords/{name}"):
            raise ArtifactError(folder / "subwords" / name, f"is not the one that {DESCRIPTION} describes", COPY_AGAIN)
    sizes = subwords.source_size, subwords.target_size, subwords.joint
    for name, network in description.models.items():
        if (network.sizes.source, network.sizes.target, network.sizes.joint) != sizes:
            problem = f"has models.{name}.sizes {network.sizes.model_dump(exclude={'symbols'})}"
            fix = f"its subwords have {sizes[0]} and {sizes[1]}, {'' if sizes[2] else 'not '}joint; {AGAIN}"
            raise ArtifactError(folder / DESCRIPTION, problem, fix)
    return subwords


def check_weights(folder: Path, description: Description) -> dict[str, Any]:
    """The settings of the networks by name. Raises ArtifactError for weights that are missing or others, and for
    settings that are not a family's."""
    settings_by_name: dict[str, Any] = {}
    for name, network in description.models.items():
        path = folder / network.weights
        if not path.is_file():
            raise ArtifactError(folder, f"lacks {network.weights}", AGAIN)
        if sha256(path) != network.sha256:
            raise ArtifactError(path, f"does not match the checksum in {DESCRIPTION}", COPY_AGAIN)
        declared = registry.families()[network.family]
        place = f"{folder / DESCRIPTION}: models.{name}.model"
        settings = settings_by_name[name] = checked(declared.model, network.model, place, AGAIN)
        if declared.imported:
            continue
        # A network may use a weight several times, but not so often.
        needed = most_weights(declared, settings, network.sizes.target)
        if needed > 1000 * path.stat().st_size:
            raise ArtifactError(place, f"describes {needed:,.0f} weights, and {network.weights} is too small", AGAIN)
    return settings_by_name


def _check_plugins(folder: Path, description: Description) -> None:
    loaded = {plugin.plugin.name for plugin in registry.plugins()}
    for plugin in description.plugins:
        if plugin.name not in loaded:
            raise ArtifactError(
                folder,
                f"needs the plug-in {plugin.name} {plugin.version}",
                f"install it, or name its package ({plugin.module}) with --plugins",
            )
    for name, network in description.models.items():
        if network.family not in registry.families():
            raise ArtifactError(folder, f"has {name} of family {network.family}, which is not declared here", AGAIN)
    for name in description.searches:
        if name not in registry.searches():
            raise ArtifactError(folder, f"has the search {name}, which is not declared here", AGAIN)
    search_names = description.searches
    if search_names and (default := description.defaults.get("search")) not in search_names:
        raise ArtifactError(
            folder / DESCRIPTION, f"has defaults.search {short_repr(default)}, none of {', '.join(search_names)}", AGAIN
        )
    if "engine" in description.model_fields_set:
        engine = registry.engines().get(description.engine or "")
        if engine is None or not engine.exports:
            raise ArtifactError(
                folder, f"is for engine {description.engine}, which has no folders of its own here", AGAIN
            )


def warn_of_other_plugins(folder: Path, description: Description) -> None:
    """Log a line for each plug-in that a bundle needs and that is used here in another version or with other files."""
    loaded = {plugin.plugin.name: plugin for plugin in registry.plugins()}
    for plugin in description.plugins:
        used = loaded[plugin.name]
        if (used.plugin.version, used.digest) != (plugin.version, plugin.digest):
            log.warning(
                "warning: %s was made with the plug-in %s %s (digest %.12s), and %s (digest %.12s) is used",
                folder,
                plugin.name,
                plugin.version,
                plugin.digest,
                used.plugin.version,
                used.digest,
            )


def networks(description: Description) -> list[tuple[str, Family]]:
    """Names of a bundle's networks with their families: the system's own, that of its base, then other roles."""
    by_name = [(name, registry.families()[network.family]) for name, network in description.models.items()]
    return sorted(by_name, key=lambda entry: {MODEL: 0, BASE: 1}.get(description.models[entry[0]].role, 2))


def roles(description: Description) -> dict[str, str]:
    """Names of a bundle's networks by their role in searches, without the system's own and its base's."""
    return {network.role: name for name, network in description.models.items() if network.role not in (MODEL, BASE)}


def defaults(description: Description, search: Search, turned_off: Iterable[str] = ()) -> dict[str, Any]:
    """Defaults of a search in a bundle: names of carried systems, and settings if the bundle is finished; these were
    chosen for both, and are left out where the setting of a carried system is `turned_off`."""
    carried = {name: value for name, value in description.defaults.items() if name in search.settings.model_fields}
    settings = carried | description.search_defaults.get(search.name, {})
    roles = search.settings.named("role")
    if any(settings.get(name) for name in turned_off):
        return {name: value for name, value in settings.items() if name in roles}
    return settings


def choice_words(description: Description) -> str:
    """The default search of a bundle and how it was chosen: `ctc-beam, the best of 3 rows on dev (…)`."""
    search, choice = description.defaults["search"], description.default_from
    if choice is None:
        return f"{search}, the first of the system's searches; bundles of an experiment have the one that dev chose"
    if choice.row is None:
        why = f"{search}, the first of the system's searches, because {choice.experiment} measures none of them on dev"
    else:
        best = "the only row" if choice.rows == 1 else f"the best of {choice.rows} rows"
        engine = "" if choice.engine == registry.default_engine().name else f" in {choice.engine}"
        why = f"{search}, {best} on dev ({choice.row}{engine}, BLEU {choice.dev_bleu:.2f})"
    return why + ("; with the experiment's search_defaults" if choice.settings else "")


def searches(families: list[Family]) -> list[str]:
    """Names of the searches of a system: those of its base, then its own."""
    return list(dict.fromkeys(name for family in reversed(families) for name in registry.searches_of(family)))


def describe(
    family: Family,
    base: Family | None = None,
    role_families: Iterable[Family] = (),
    models: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Entries of a bundle's description: `searches`, `defaults`, and the `plugins` that its networks need.

    `role_families` are the families of systems in other roles than the base. `models` are the settings of the system's
    model and of its base's; searches that these refuse are left out. So are searches of other plug-ins, which
    `read_bundle` adds where they are used: experiments that share a bundle may use different ones.
    """
    families = [family, *([base] if base else [])]
    owners = registry.members().owners
    needed = {
        loaded.plugin.name: loaded
        for member in [*families, *role_families]
        if (loaded := owners.get(("family", member.name)))
    }
    search_names = [
        name
        for name in served(families, models)
        if (owner := owners.get(("search", name))) is None or owner.plugin.name in needed
    ]
    default = next((name for name in family.searches if name in search_names), None)
    entries = {"searches": search_names, "defaults": {"search": default} if default else {}}
    return entries | ({"plugins": [loaded.record() for loaded in needed.values()]} if needed else {})


def served(families: list[Family], models: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the searches of a system and of its base that the settings of their models do not refuse."""
    configs = [(member, member.model.model_validate(model)) for member, model in zip(families, models, strict=False)]

    def refused(name: str) -> bool:
        search = registry.searches()[name]
        return any(member.refuses(config, search, at_least(search)) for member, config in configs)

    return [name for name in searches(families) if not refused(name)]


def _plugged_searches(description: Description) -> list[str]:
    """Searches of plug-ins in use that serve a bundle's networks and are not listed in it."""
    own = [network for role in (MODEL, BASE) for network in description.models.values() if network.role == role]
    families = [registry.families()[network.family] for network in own]
    owners = registry.members().owners
    plugged = [name for name in searches(families) if ("search", name) in owners and name not in description.searches]
    allowed = served(families, [network.model for network in own]) if plugged else []
    return [name for name in plugged if name in allowed]


def names(families: dict[str, str]) -> dict[str, str]:
    """Role -> name of a network in a bundle: the name of its family, with the role where two are of one family."""
    values = list(families.values())
    return {
        role: f"{role}-{family}" if role != MODEL and values.count(family) > 1 else family
        for role, family in families.items()
    }


def copy_subwords(source: Path, folder: Path) -> list[str]:
    """Copy the subword models into a bundle; returns the names of their files in it."""
    paths = sorted(source.iterdir())
    for path in paths:
        copy_file(path, folder / "subwords" / path.name)
    return [f"subwords/{path.name}" for path in paths]


def remove_bundle(folder: Path) -> None:
    """Remove the files of the bundle in a folder, and nothing else of it; create the folder if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        files = list(read_json(folder / DESCRIPTION)["provenance"]["files"])
    except (ArtifactError, KeyError, TypeError):
        files = []
    (folder / DESCRIPTION).unlink(missing_ok=True)
    for path in (folder / name for name in files):
        if path.resolve().is_relative_to(folder.resolve()):
            path.unlink(missing_ok=True)
