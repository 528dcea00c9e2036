"""Which share of training pairs is changed so that a system can read capitals, titles and typing errors."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from workflow_src.errors import ConfigError
from workflow_src.spec import Frozen

MODIFIERS = ("upper", "title", "typos", "no_accents")
Share = Annotated[float, Field(ge=0, le=1)]


class AugmentConfig(Frozen):
    """Shares of training pairs; a pair is changed in one way at most."""

    upper: Share = Field(0.0, description="in capitals, both sides")
    title: Share = Field(0.0, description="with a capital at the start of every word, both sides")
    typos: Share = Field(0.0, description="with typing errors in the source")
    no_accents: Share = Field(0.0, description="without accents in the source")
    seed: int = Field(1, ge=0, description="another one changes other pairs")

    @model_validator(mode="after")
    def _shares(self):
        total = sum(getattr(self, name) for name in MODIFIERS)
        if not 0 < total <= 1 + 1e-9:
            problem = f"the shares of {', '.join(MODIFIERS)} add up to {total:g}"
            raise ConfigError("", problem=problem, allowed="more than 0, at most 1")
        return self

    @property
    def suffix(self) -> str:
        """The end of the name of a text that is changed in this way; names of other texts have no +."""
        shares = [f"{name}-{getattr(self, name):g}" for name in MODIFIERS if getattr(self, name)]
        return "".join(f"+{part}" for part in [*shares, *([f"seed-{self.seed}"] if self.seed != 1 else [])])
