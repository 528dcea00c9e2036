"""Contents of files as checked objects."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, TypeVar

import pydantic

from workflow_src.errors import ArtifactError, ConfigError, short_repr
from workflow_src.records.atomic import read_json
from workflow_src.spec import config_error

Content = TypeVar("Content", bound=pydantic.BaseModel)


class Lenient(pydantic.BaseModel):
    """Part of a file, keys that are no fields are ignored."""

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def check_inside(path: str) -> str:
    """`path` if it leads to a file below the folder that it is relative to; else raises ConfigError. For validators."""
    parts = PurePath(path).parts
    if not parts or PurePath(path).is_absolute() or ".." in parts:
        raise ConfigError("", problem="it leads out of the folder", allowed="the path of a file in it")
    return path


def other_format(content_format: object, number: int) -> str:
    """The problem of a file whose format is not `number`."""
    return f"has format {short_repr(content_format)}, and this version reads format {number}"


def check_format(content: Any, number: int, path: str, advice: str) -> None:
    """Raises ArtifactError for the content of a file whose format is not `number`."""
    actual = content.get("format") if isinstance(content, dict) else None
    if actual != number:
        raise ArtifactError(path, other_format(actual, number), advice)


def checked(model: type[Content], content: Any, path: str, advice: str) -> Content:
    """`content` as a `model`. Raises ArtifactError for the first wrong key, with advice what to do about the file."""
    try:
        return model.model_validate(content)
    except pydantic.ValidationError as failure:
        reason = str(config_error(failure, content, "its content")).removesuffix(".")
        raise ArtifactError(path, f"cannot be used ({reason})", advice) from None


def read_file(model: type[Content], path: str | Path) -> Content:
    """The content of a JSON file. Raises ArtifactError for one that is missing, damaged or of another kind."""
    return checked(model, read_json(path), str(path), "delete it and make it again")
