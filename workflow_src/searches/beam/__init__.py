"""Beam search: the best hypotheses at every position go on."""

from typing import Annotated

from pydantic import Field

from workflow_src.decoding.settings import LM, RESCORER, MaxLengthRatio, Penalty, Rescorer, by, ranked_by
from workflow_src.spec import (
    AUTOREGRESSIVE,
    LANGUAGE_MODEL,
    MODEL,
    SCORER,
    Look,
    Option,
    Role,
    Search,
    SearchSettings,
    Sizes,
)


class BeamSettings(SearchSettings):
    beam: Annotated[
        int, Option(required=True, part="-{}", always=True, holds=True, passes=True, within_vocabulary=True)
    ] = Field(4, ge=1, description="hypotheses a sentence")
    length_penalty: Annotated[Penalty, Option(tune=(0.6, 0.8, 1.0, 1.2, 1.4), part="-penalty{:g}")] = Field(
        1.0, description="exponent of the length that scores are divided by"
    )
    language_model: Annotated[str | None, Option(role=LM, part=by("with"))] = Field(
        None, description="the system whose probabilities of words are added; none: no language model"
    )
    lm_weight: Annotated[float, Option(tune=(0.05, 0.1, 0.2, 0.3), part="-weight{:g}", only_with="language_model")] = (
        Field(0.2, ge=0, allow_inf_nan=False, description="weight of the language model's log-probability")
    )
    rescorer: Rescorer = Field(
        None, description="the system that ranks the best `beam` hypotheses; none: their own scores"
    )
    rescorer_weight: Annotated[float | None, Option(tune=(0.25, 0.5, 1.0), part="-mix{:g}", only_with="rescorer")] = (
        Field(
            None,
            ge=0,
            allow_inf_nan=False,
            description="weight of the rescorer's score, added to a hypothesis's own; none: the rescorer's alone",
        )
    )
    max_length_ratio: MaxLengthRatio


def bytes_held(settings: BeamSettings, sizes: Sizes) -> float:
    """Bytes of a beam: vocabulary scores and best continuations of each hypothesis, and one layer's keys and values,
    twice while they are reordered."""
    continuations = min(2 * settings.beam, sizes.vocabulary)
    per_hypothesis = 8 * sizes.vocabulary + 16 * continuations + 16 * sizes.length * sizes.dim
    return sizes.sentences * settings.beam * per_hypothesis


def label(settings: BeamSettings) -> str:
    """Such as `beam 4, with lm, ranked by ctc`; with a `rescorer_weight`, `ranked by itself and 0.5 × ctc`."""
    words = [f"with {settings.language_model}"] if settings.language_model else []
    also = "" if settings.rescorer_weight is None else f"itself and {settings.rescorer_weight:g} × "
    words += ranked_by(settings.rescorer and f"{also}{settings.rescorer}")
    return ", ".join([f"beam {settings.beam}", *words])


SEARCH = Search(
    name="beam",
    title="beam",
    settings=BeamSettings,
    module="workflow_src.searches.beam.search:Beam",
    positions=True,
    # Other settings rank hypotheses, outside of the graph.
    graph=lambda settings: [settings.beam, settings.max_length_ratio],
    varies=lambda settings: "with a language_model" if settings.language_model else None,
    needs={
        MODEL: Role(AUTOREGRESSIVE),
        LM: Role(LANGUAGE_MODEL, agree=("subwords",), optional=True),
        RESCORER: Role(SCORER, agree=("subwords",), optional=True),
    },
    series="beam",
    width=lambda settings: settings.beam,
    held=bytes_held,
    # The row that others are compared with: a system by itself, with beam 4, or else the largest.
    reference=lambda settings: (
        settings.language_model is None and settings.rescorer is None,
        settings.beam == 4,
        settings.beam,
    ),
    label=label,
    look=Look(marker="s"),
)
