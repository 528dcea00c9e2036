"""Contents of files as checked objects."""

from __future__ import annotations

from typing import Any, TypeVar

import pydantic

from workflow_src.records.atomic import ArtifactError

Content = TypeVar("Content", bound=pydantic.BaseModel)


class Told(pydantic.BaseModel):
    """Part of a file, checked as it is read; keys that are no fields are not read."""

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


def checked(model: type[Content], content: Any, where: str, advice: str) -> Content:
    """`content` as a `model`. Raises ArtifactError: where, the first wrong key, its value, what is wrong, advice."""
    try:
        return model.model_validate(content)
    except pydantic.ValidationError as failure:
        error = failure.errors()[0]
        key = ".".join(str(part) for part in error["loc"]) or "the whole"
        problem = error["msg"].removeprefix("Value error, ")
        value = "" if error["type"] == "missing" else f" (value {str(error['input'])[:80]!r})"
        raise ArtifactError(f"{where}: {key}{value}: {problem}; {advice}.") from None
