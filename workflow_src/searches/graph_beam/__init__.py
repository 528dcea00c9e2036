"""Beam search over the prefixes of a graph, optionally with a language model and a rescorer."""

from typing import Annotated

from pydantic import Field

from workflow_src.decoding.settings import (
    LM,
    RANKING,
    RESCORER,
    LmWeight,
    MinRatio,
    Penalty,
    PrefixLanguageModel,
    Ranker,
    WordBonus,
    prefix_label,
)
from workflow_src.spec import GRAPH, LANGUAGE_MODEL, MODEL, Look, Option, Role, Search, SearchSettings, Sizes


class GraphBeamSettings(SearchSettings):
    """An output y has the score
    (log p(y|x) + lm_weight log p_LM(y) + word_bonus |y|) / (|y| + 1) ** length_penalty,
    p(y|x) summed over its paths, the end counted.
    """

    beam: Annotated[int, Option(required=True, part="-{}", always=True, holds=True, within_vocabulary=True)] = Field(
        5, ge=1, description="prefixes kept at every length"
    )
    language_model: PrefixLanguageModel
    lm_weight: LmWeight
    word_bonus: WordBonus
    length_penalty: Annotated[Penalty, Option(tune=(0.0, 0.5, 1.0), part="-penalty{:g}")] = Field(
        0.0, description="exponent of the length that scores of outputs are divided by"
    )
    min_ratio: MinRatio
    beam_threshold: Annotated[float | None, Option(tune=(3.0, 5.0, 10.0), part="-within{:g}")] = Field(
        10.0,
        gt=0,
        allow_inf_nan=False,
        description="prefixes are dropped whose score, divided by any possible length, is this far below that of the "
        "best output",
    )
    rescorer: Ranker


def bytes_held(settings: GraphBeamSettings, sizes: Sizes) -> float:
    """Bytes of the scores of all symbols at every vertex, of transitions, and of the prefixes of one sentence with all
    continuations within `min_ratio`."""
    symbols = min(sizes.vocabulary, 1 / settings.min_ratio) if settings.min_ratio else sizes.vocabulary
    vertices = sizes.positions
    scores = sizes.sentences * vertices * (8 * sizes.vocabulary + 8 * vertices + 40 * sizes.dim)
    # Every prefix has one score for a word, whichever vertices put it out.
    return scores + settings.beam * (56 * vertices + 40 * min(sizes.vocabulary, vertices * symbols))


SEARCH = Search(
    name="graph-beam",
    title="graph, beam",
    settings=GraphBeamSettings,
    module="workflow_src.searches.graph_beam.search:GraphBeam",
    program=True,
    origins=True,
    # Prefixes are looked for outside of it.
    graph=lambda _settings: None,
    logits=True,
    needs={
        MODEL: Role(GRAPH),
        LM: Role(LANGUAGE_MODEL, agree=("subwords",), optional=True),
        RESCORER: RANKING,
    },
    series="beam",
    width=lambda settings: settings.beam,
    held=bytes_held,
    label=lambda settings: prefix_label("graph", settings.beam, settings.language_model, settings.rescorer),
    look=Look(marker="P"),
)
