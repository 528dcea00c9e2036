"""Settings and roles that several searches share. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from workflow_src.errors import ConfigError
from workflow_src.spec import ROWS, SCORER, Option, Role, Search, SearchSettings, Sizes

# Roles of other systems in searches: a rescorer ranks candidates, a language model scores words of growing outputs, a
# drafter translates in one pass what the system then checks.
RESCORER, LM, DRAFTER = "rescorer", "language_model", "drafter"
# A rescorer that a search calls through a function that engines compile.
RANKING = Role(SCORER, agree=("subwords",), optional=True, program="workflow_src.decoding.ranking:scoring")

# Settings that count lengths, or lengths and passes of a decoder, which a model limits.
LENGTH_COUNTS = ("lengths", "length_beam")
COUNTS = (*LENGTH_COUNTS, "iterations")

# Each is declared here and nowhere else; `part` is part of names of files.
Steps = Annotated[
    int, Field(4, ge=0, description="refinement steps"), Option(required=True, part="-{}", always=True, passes=True)
]
StepSize = Annotated[
    float,
    Field(1.0, gt=0, allow_inf_nan=False, description="factor of the direction that is added to the latents"),
    Option(tune=(0.5, 0.75, 1.0, 1.25, 1.5), part="-size{:g}", follow=True),
]
LengthQuantile = Annotated[
    float | None,
    Field(None, gt=0, lt=1, description="quantile of the predicted target lengths; none: the most probable length"),
    Option(tune=(0.5, 0.6, 0.7, 0.8), part="-quantile{:g}", length=True),
]
Lengthening = Annotated[
    float,
    Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="this times |x| + 2, truncated, is added to predicted target lengths",
    ),
    Option(tune=(0.0, 0.1, 0.2, 0.3), part="-longer{:g}", length=True),
]
# Larger exponents of a length leave the range of numbers, and make all scores 0.
Penalty = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
LengthPenalty = Annotated[
    Penalty,
    Field(
        1.0,
        description="exponent of the length that log-probabilities of outputs are divided by where lengths are ranked",
    ),
    Option(tune=(1.0, 1.5, 2.0), part="-penalty{:g}", length=True, ranks=True),
]
MaxLengthRatio = Annotated[
    float,
    Field(2.0, gt=0, allow_inf_nan=False, description="outputs stop at this times |x| + 10"),
    Option(part="-ratio{:g}"),
]
StopThreshold = Annotated[
    float | None,
    Field(None, gt=0, allow_inf_nan=False, description="a sentence stops after a step shorter than this"),
    Option(tune=(0.02, 0.05, 0.1, 0.2, 0.4, 0.8), part="-stop{:g}", stop=True),
]

StopUnchanged = Annotated[
    bool,
    Field(False, description="a sentence stops after a step that does not change its translation"),
    Option(part="-still", stop=True),
]


def by(mark: str) -> Callable[[str | None], str]:
    """The part of a decode's name for a setting that names a system."""
    return lambda system: f"-{mark}-{system}" if system else ""


Rescorer = Annotated[str | None, Option(role=RESCORER, part=by("by"))]
# Setting of searches over prefixes in which a language model scores words.
PrefixLanguageModel = Annotated[
    str | None,
    Field(None, description="the system whose probabilities of words are added; none: no language model"),
    Option(role=LM, part=by("with"), carried=True),
]
LmWeight = Annotated[
    float,
    Field(0.2, ge=0, allow_inf_nan=False, description="weight of the language model's log-probability"),
    Option(tune=(0.1, 0.2, 0.3, 0.4, 0.5, 0.7), part="-weight{:g}", only_with="language_model"),
]
WORD_BONUSES = (0.0, 1.0, 1.5, 2.0, 2.5, 3.0)
WordBonus = Annotated[
    float,
    Field(0.0, allow_inf_nan=False, description="added for each subword; larger values make outputs longer"),
    Option(tune=WORD_BONUSES, part="-bonus{:g}"),
]
MinRatio = Annotated[
    float,
    Field(
        0.02,
        ge=0,
        le=1,
        description="symbols of a slot that are less probable than this times the best are left out",
    ),
    Option(tune=(0.02, 0.05, 0.1), part="-above{:g}"),
]
Ranker = Annotated[
    Rescorer,
    Field(None, description="the system that ranks the prefixes at the end; none: their own scores"),
]
# Setting of searches for paths through graphs.
MergeEqual = Annotated[
    bool,
    Field(False, description="equal neighbours in an output are merged into one subword"),
    Option(part="-merged"),
]


def graph_bytes(sizes: Sizes, copies: int = 2) -> float:
    """Bytes of `copies` of the scores of all symbols at every vertex, and of transitions, of the sentences that are
    computed together."""
    rows = min(sizes.sentences, ROWS)
    return 4.0 * rows * sizes.positions * (copies * sizes.vocabulary + sizes.positions)


def ranked_by(rescorer: str | None) -> list[str]:
    """The words of a label for a system that ranks outputs; none without one."""
    return [f"ranked by {rescorer}"] if rescorer else []


def prefix_label(title: str, beam: int, language_model: str | None, rescorer: str | None, *more: str) -> str:
    """Such as `one pass, beam 20, with lm, ranked by teacher`."""
    words = [f"with {language_model}"] if language_model else []
    return ", ".join([title, f"beam {beam}", *more, *words, *ranked_by(rescorer)])


def check_lengths(name: str, lengths: int, quantile: float | None, penalty: float, rescorer: str | None) -> None:
    """Raises ConfigError where settings for lengths contradict the number of them that are tried (setting `name`).

    A `length_quantile` gives one length. A `length_penalty` ranks outputs of several lengths, where no rescorer does.
    """
    if lengths > 1 and quantile is not None:
        problem = f"it gives one length, and {name} is {lengths}"
        raise ConfigError("length_quantile", quantile, problem=problem, hint=f"remove it, or set {name}: 1")
    if penalty == 1.0:
        return
    if lengths == 1:
        problem = f"it ranks outputs of several lengths, and {name} is 1"
        raise ConfigError("length_penalty", penalty, problem=problem, hint=f"raise {name}, or set length_penalty: 1")
    if rescorer is not None:
        problem = f"the rescorer {rescorer} ranks outputs by scores of its own"
        raise ConfigError("length_penalty", penalty, problem=problem, hint="set it to 1, or remove the rescorer")


class RefinementSettings(SearchSettings):
    """Settings of searches that move the prior mean step by step."""

    steps: Steps
    step_size: StepSize
    length_quantile: LengthQuantile
    lengthening: Lengthening
    stop_threshold: StopThreshold


def refinement_label(title: str) -> Callable[[RefinementSettings], str]:
    """A label such as `delta, L = 4`."""
    return lambda settings: f"{title}, L = {settings.steps}"


def varies(settings: RefinementSettings) -> str | None:
    """Why a search by steps is no fixed function of its source; None where it is."""
    stops = [name for name in settings.named("stop") if getattr(settings, name)]
    return f"with {stops[0]}" if stops else None


def without_roles(settings: SearchSettings) -> dict[str, Any]:
    """Settings that a graph of candidates depends on: without those for ranking, which is no part of it."""
    return settings.model_dump(mode="json", exclude={*settings.named("role"), *settings.named("ranks")})


def ranked_graph(settings: SearchSettings) -> dict[str, Any]:
    """`without_roles` for graphs that output scores of candidates unless a rescorer ranks them."""
    return without_roles(settings) | {"rescored": getattr(settings, RESCORER) is not None}


def at_least(search: Search) -> SearchSettings:
    """Settings of a search with one iteration and one length, else its defaults."""
    return search.settings(**{name: 1 for name in COUNTS if name in search.settings.model_fields})


def lengths_refusal(difference: int, settings: SearchSettings) -> str | None:
    """Why a model that predicts length differences up to `difference` cannot be decoded with the settings, or None."""
    most = 2 * difference + 1
    for name in LENGTH_COUNTS:
        if (value := getattr(settings, name, 1)) > most:
            return (
                f"takes at most {most} lengths, one for each class of its length head (model.max_length_difference is "
                f"{difference}), and {name} is {value}; say {most} or fewer"
            )
    return None
