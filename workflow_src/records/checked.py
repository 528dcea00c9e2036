"""Contents of files as checked objects."""

from __future__ import annotations

from typing import Any, TypeVar

import pydantic

from workflow_src.records.atomic import ArtifactError
from workflow_src.spec import place, problem, shown

Content = TypeVar("Content", bound=pydantic.BaseModel)


class Told(pydantic.BaseModel):
    """Part of a file, checked as it is read; keys that are no fields are not read."""

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Strict(pydantic.BaseModel):
    """Part of a file that is written and read by one schema: keys that are no fields are refused."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def check_format(content: Any, number: int, where: str, advice: str) -> None:
    """Raises ArtifactError where `content`, of a whole file, does not say that its format is `number`."""
    told = content.get("format") if isinstance(content, dict) else None
    if told != number:
        raise ArtifactError(f"{where} has format {shown(told)}; this version reads format {number}; {advice}.")


def checked(model: type[Content], content: Any, where: str, advice: str) -> Content:
    """`content` as a `model`. Raises ArtifactError: where, the first wrong key, its value, what is wrong, advice."""
    try:
        return model.model_validate(content)
    except pydantic.ValidationError as failure:
        error = failure.errors()[0]
        key = place(error["loc"])
        if not key:
            # Of several entries together, or of something that is no object.
            raise ArtifactError(f"{where}: {problem(error)}; {advice}.") from None
        if error["type"] == "missing":
            raise ArtifactError(f"{where}: {key} is missing; {advice}.") from None
        raise ArtifactError(f"{where}: {key} is {shown(error['input'])}: {problem(error)}; {advice}.") from None
