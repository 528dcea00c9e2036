"""Settings in words, for labels of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from workflow_src.config.experiment import setting_words
from workflow_src.spec import Search, SearchSettings


def words(settings: Mapping[str, Any], values: bool = True) -> str:
    """Settings in words: `length quantile 0.6`, or their names only.

    A setting that is true is its name alone; one that is false or null is `no` and its name.
    """
    return ", ".join(_setting(name.replace("_", " "), value if values else True) for name, value in settings.items())


def _setting(name: str, value: Any) -> str:
    if value is True:
        return name
    if value is None or value is False:
        return f"no {name}"
    return f"{name} {setting_words(value)}"


def differing(entry: Mapping[str, Any], entries: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, Any]:
    """The settings among `names` in which an entry of an analysis differs from another entry of its search."""
    twins = [other for other in entries if other["search"] == entry["search"]]
    return {name: entry[name] for name in names if name in entry and any(o.get(name) != entry[name] for o in twins)}


def changed(search: Search, values: SearchSettings, without: Collection[str] = ()) -> dict[str, Any]:
    """Settings with other values than their defaults, except those that the row's label or details show and those in
    `without`. Labels show whose steps are taken, where there are any."""
    shown = search.shown(values)
    return {
        name: value
        for name, value in values
        if not (name in without or values.option(name).steps)
        and value != values.default(name)
        and shown == search.shown(values.model_copy(update={name: values.default(name)}))
    }


def common_label(labels: Sequence[str]) -> str:
    """One label for the seeds of a row: words in which theirs differ are left out."""
    split = [label.split(" ") for label in labels]
    if any(len(parts) != len(split[0]) for parts in split):
        return labels[0]
    return " ".join(parts[0] if len(set(parts)) == 1 else "…" for parts in zip(*split, strict=True))
