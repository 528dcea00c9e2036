"""Types of the fields of declarations, which are checked where a member is declared."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from workflow_src.errors import ConfigError

CHECKED = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False, extra="forbid")
# Names become parts of names of files and of rules; an engine's is followed by "-" and its compute type.
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
EngineName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_]*$")]
RuleName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
TrainingRule = Annotated[str, Field(pattern=r"^train_[a-z0-9_]+$")]
# Names of metrics are keys of files.
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_+-]*$")]
FigureName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Title = Annotated[str, Field(min_length=1)]
# An object that jobs import: "module:object".
Code = Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]


def _colour(value: str) -> str:
    if not re.fullmatch("#[0-9a-fA-F]{6}", value):
        raise ConfigError("", allowed="# and six hexadecimal digits, such as #0072b2")
    return value


# Charts and pages use colours as they are; `evaluation.charts` has a shape for every marker.
Colour = Annotated[str, AfterValidator(_colour)]
Marker = Literal["o", "s", "D", "d", "^", "v", "<", ">", "P", "X", "*", "p", "h"]
