"""Types of the fields of declarations, which are checked where a member is declared."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

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
