"""What files of analyses hold of searches that are followed step by step, as curves; and what all analyses share.

Log-probabilities are in nats, shares in [0, 1], BLEU in [0, 100], lengths and distances of outputs in subwords. Errors
are standard errors over sentences where nothing else is said. No torch here.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import model_validator

from workflow_src.config.experiment import Removal
from workflow_src.records.checked import Lenient

Scalar = bool | int | float | str | None


class Content(Lenient):
    """An analysis of sentences of a split."""

    split: str


class FirstSentences(Content):
    """Of the first `sentences` of the split, without those that are empty on a side."""

    sentences: int


class Entry(Lenient):
    """A search that is followed, of a system; `model` is the system whose latents it moves, or which it decodes.

    `kept` are the settings that analyses keep of it: every search has its own, so that a file has them as keys beside
    the others.
    """

    system: str
    search: str
    model: str
    kept: dict[str, Scalar] = {}

    @model_validator(mode="before")
    @classmethod
    def _settings(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        others = {name: value for name, value in content.items() if name not in cls.model_fields}
        # Values of settings are numbers, words and flags.
        return {"kept": {name: value for name, value in others.items() if isinstance(value, Scalar)}} | content

    @property
    def settings(self) -> dict[str, Scalar]:
        """What tells it from other entries, by the names of the file."""
        return {"system": self.system, "search": self.search, **self.kept}


class CurvePoint(Lenient):
    """Figures after `steps` steps, means over sentences."""

    steps: int


Figures = TypeVar("Figures", bound=CurvePoint)


class Curve(Entry, Generic[Figures]):
    """A point for each number of steps that was looked at, the first of them 0."""

    points: tuple[Figures, ...]


class Curves(FirstSentences, Generic[Figures]):
    """A curve for each search that was followed."""

    curves: tuple[Curve[Figures], ...]


class GainPoint(CurvePoint):
    """What refinement gained on step 0, in nats a sentence, and the shares of sentences that rose and fell."""

    gain: float
    gain_error: float
    risen: float
    fallen: float


class MarginalPoint(GainPoint):
    """log p(y|x) in nats a sentence. `error` is from sampling, `spread` over sentences."""

    log_probability: float
    error: float
    spread: float
    effective_samples: float


class Marginal(Curves[MarginalPoint]):
    """Marginal log-probability of what procedures put out; `samples` are the draws of z for each output."""

    samples: int


class TokensPoint(CurvePoint):
    """Edit distance from the output of step 0, in subwords a sentence, and the share of sentences that changed.

    `repetitions` are counted a sentence; relative ones are their ratio to those of step 0, None where these have none.
    """

    edit_distance: float
    edit_distance_error: float
    changed: float
    repetitions: float
    relative_repetitions: float | None
    relative_repetitions_error: float | None


class Tokens(Curves[TokensPoint]):
    """What refinement changes."""


class ConvergencePoint(GainPoint):
    """The evidence lower bound in nats a sentence, BLEU, and the share of sentences that stand still from here on."""

    bound: float
    bound_error: float
    bleu: float
    stopped: float


class Convergence(Curves[ConvergencePoint]):
    """Bound and BLEU after every step; `samples` are the draws of z for each bound."""

    samples: int
    remove_repetitions: Removal


class LatentPathsPoint(CurvePoint):
    """Distances and densities of latents, as in `latent_paths.Place`; None where no sentence has the figure.

    Distances are Euclidean norms of a position's latent, log-densities are in nats a position. `moving` counts the
    sentences that have a cosine; `changed` is the share of sentences whose output the step changed.
    """

    from_start: float | None
    from_start_error: float | None
    step: float | None
    step_error: float | None
    from_reference: float | None
    from_reference_error: float | None
    log_prior: float | None
    log_prior_error: float | None
    log_posterior: float | None
    log_posterior_error: float | None
    cosine: float | None
    cosine_error: float | None
    changed: float | None
    changed_error: float | None
    moving: int


class LatentPaths(Curves[LatentPathsPoint]):
    """Where latents go from step to step."""
