"""How a bundle's default search was chosen: entries of its description, and a phrase of them. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflow_src.registry import default_engine
from workflow_src.serving.bundle import Description
from workflow_src.spec import SearchSettings


def default_fields(settings: SearchSettings, carried: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a search that differ from the defaults of a bundle that carries systems.

    `carried` are names of carried systems by the setting that names one. The setting is None where the search works
    without that system.
    """
    kind = type(settings)
    defaults = {name: carried.get(name) if name in carried else _default(kind, name) for name in kind.model_fields}
    return {name: value for name, value in settings.model_dump(mode="json").items() if value != defaults[name]}


def _default(kind: type[SearchSettings], name: str) -> Any:
    """The default of a setting; None for a required one."""
    return None if kind.option(name).required else kind.default(name)


def choice_words(description: Description) -> str:
    """The default search of a bundle and how it was chosen: `ctc-beam, the best of 3 rows on dev (…)`."""
    search, choice = description.defaults["search"], description.default_from
    if choice is None:
        return f"{search}, the first of the system's searches; bundles of an experiment have the one that dev chose"
    if choice.row is None:
        why = f"{search}, the first of the system's searches, because {choice.experiment} measures none of them on dev"
    else:
        best = "the only row" if choice.rows == 1 else f"the best of {choice.rows} rows"
        engine = "" if choice.engine == default_engine().name else f" in {choice.engine}"
        why = f"{search}, {best} on dev ({choice.row}{engine}, BLEU {choice.dev_bleu:.2f})"
    return why + ("; with the experiment's search_defaults" if choice.settings else "")
