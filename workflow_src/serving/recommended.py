"""The `continuum translate` command of a decode."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from workflow_src.config.resolved import Decode
from workflow_src.registry import searches
from workflow_src.serving import bundle
from workflow_src.serving.folders import placement
from workflow_src.serving.options import option


def translate_command(
    folder: str,
    description: bundle.Description,
    decode: Decode,
    systems: Mapping[str, str],
    device: str = "auto",
    precision: str = "auto",
) -> str:
    """The command as a line for a shell, without its input.

    `folder` and `description` are those of the bundle, `decode` has the values chosen on dev, and `systems` the folders
    of other systems by role. Options that are defaults of the bundle are left out.
    """
    values, search = decode.values, searches()[decode.search]
    defaults = bundle.defaults(description, search)
    words = ["--search", search.name] if search.name != description.defaults.get("search") else []
    kind = type(values)
    roles = kind.roles()
    for name, role in roles.items():
        system = getattr(values, name)
        if system != defaults.get(name):
            words += [option(name), systems[role] if system else "none"]
    defaults = bundle.defaults(description, search, [name for name in roles if getattr(values, name) is None])
    for name in kind.model_fields:
        value, default = getattr(values, name), defaults.get(name, kind.default(name))
        if name not in roles and value != default:
            words += option_words(name, value)
    if description.plugins:
        words += ["--plugins", *(plugin.module for plugin in description.plugins)]
    device, precision, engine = placement(decode.engine, decode.compute_type, device, precision)
    # CPUs compute in float32 by default.
    precision = "auto" if (device, precision) == ("cpu", "float32") else precision
    places = {"--device": device, "--precision": precision, "--engine": engine}
    words += [word for name, value in places.items() if value != "auto" for word in (name, value)]
    return shlex.join(["continuum", "translate", "--bundle", folder, *words])


def option_words(name: str, value: Any) -> list[str]:
    """The words of `continuum translate` that give a setting of a search this value."""
    if isinstance(value, bool):
        return [option(name if value else f"no_{name}")]
    return [option(name), "none" if value is None else str(value)]
