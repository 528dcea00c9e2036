"""Contents of files of analyses: base classes, searches that are followed, curves; and their check.

Log-probabilities and energies are in nats, shares in [0, 1], BLEU in [0, 100], lengths and distances of outputs in
subwords. Errors are standard errors over sentences unless a class says otherwise. No torch here.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

import pydantic
from pydantic import AfterValidator, Field, model_validator

from workflow_src.config.base import distinct
from workflow_src.errors import ArtifactError
from workflow_src.records.checked import Lenient, check_format, checked
from workflow_src.registry import analyses

# Format of the files of all analyses.
FORMAT = 1

Scalar = bool | int | float | str | None
# A setting: numbers of refinement steps after which outputs are looked at.
Steps = Annotated[tuple[Annotated[int, Field(ge=0)], ...], AfterValidator(distinct)]


class Record(Lenient):
    """Part of the file of an analysis. Its schema is built when a file is read or written, not where a plan is made."""

    model_config = pydantic.ConfigDict(defer_build=True)


class Content(Record):
    """The file of an analysis of sentences of a split."""

    split: str


class FirstSentences(Content):
    """An analysis of the first `sentences` of a split; pairs with an empty side are skipped."""

    sentences: int

    @property
    def scope(self) -> str:
        """The sentences in words, for captions."""
        return f"the first {self.sentences:,} sentences of {self.split}"


class Entry(Record):
    """A search of a system; `model` is the system whose latents it moves, or which it decodes.

    `kept` are the settings that analyses keep of it: every search has its own, so that a file has them as keys beside
    the others.
    """

    system: str
    search: str
    model: str
    kept: dict[str, Scalar] = Field({})

    @model_validator(mode="before")
    @classmethod
    def _settings(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        settings = {name: value for name, value in content.items() if name not in cls.model_fields}
        # Values of settings are numbers, words and flags.
        return {"kept": {name: value for name, value in settings.items() if isinstance(value, Scalar)}} | content

    @property
    def settings(self) -> dict[str, Scalar]:
        """System, search and kept settings: together they differ between entries."""
        return {"system": self.system, "search": self.search, **self.kept}


class CurvePoint(Record):
    """Figures after `steps` steps, means over sentences."""

    steps: int


class GainPoint(CurvePoint):
    """Gain of refinement over step 0, in nats a sentence, and the shares of sentences that rose and fell."""

    gain: float
    gain_error: float
    risen: float
    fallen: float


Figures = TypeVar("Figures", bound=CurvePoint)


class Curve(Entry, Generic[Figures]):
    """A point for each number of steps that was looked at, the first of them 0."""

    points: tuple[Figures, ...]


class Curves(FirstSentences, Generic[Figures]):
    """A curve for each search that was followed."""

    curves: tuple[Curve[Figures], ...]


def inspected_steps(steps: tuple[int, ...]) -> list[int]:
    """The numbers of steps after which outputs are looked at: 0, and those of the setting in order."""
    return sorted({0, *steps})


def check(content: Any, where: str, advice: str) -> Content:
    """The content of an analysis by the class of its name.

    Raises ArtifactError for the content of no analysis, or for the first wrong key. `where` names the file, and
    `advice` ends the sentence.
    """
    name = content.get("analysis") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in analyses():
        raise ArtifactError(where, f"is no analysis ({', '.join(analyses())})", advice)
    check_format(content, FORMAT, where, advice)
    content_class: type[Content] = analyses()[name].content
    return checked(content_class, content, where, advice)
