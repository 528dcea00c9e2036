"""The JSON schema of an experiment's file, against which editors complete and check it.

`python -m workflow_src.config.schema` writes config/schemas/experiment.json. The first line of a file names it by its
path from there:

    # yaml-language-server: $schema=../schemas/experiment.json
"""

from __future__ import annotations

import json
from typing import Any

from workflow_src.config.experiment import WorkflowConfig
from workflow_src.config.files import CONFIG_FOLDER

SCHEMA = CONFIG_FOLDER / "schemas/experiment.json"


def schema() -> dict[str, Any]:
    """The schema of `WorkflowConfig` for a file that may be laid over another one.

    Such a file may lack any setting, and null in place of an entry removes it.
    """
    content = _laid_over(WorkflowConfig.model_json_schema())
    # A list gives a system for each value.
    systems, training = (content["$defs"][name]["properties"] for name in ("SystemConfig", "TrainingConfig"))
    for kind in (systems["preset"], *training.values()):
        kind["anyOf"].append({"type": "array"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **content, "title": "Experiment of Continuum"}


def _laid_over(part: Any) -> Any:
    """A part of a schema without settings that must be there, whose values may be null.

    A section that lacks settings may fit several alternatives of a kind.
    """
    if isinstance(part, list):
        return [_laid_over(item) for item in part]
    if not isinstance(part, dict):
        return part
    part = {name: _laid_over(value) for name, value in part.items() if name not in ("required", "minProperties")}
    if "oneOf" in part:
        part["anyOf"] = part.pop("oneOf")
    if isinstance(part.get("properties"), dict):
        part["properties"] = {name: _nullable(value) for name, value in part["properties"].items()}
    if isinstance(part.get("additionalProperties"), dict):
        part["additionalProperties"] = _nullable(part["additionalProperties"])
    return part


def _nullable(value: dict[str, Any]) -> dict[str, Any]:
    about = {name: value[name] for name in ("description", "default", "title") if name in value}
    kind = {name: entry for name, entry in value.items() if name not in about}
    return about | ({"anyOf": [kind, {"type": "null"}]} if kind else {})


def text() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text(), encoding="utf-8")
