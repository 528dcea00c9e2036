"""Prefix beam search over latent alignments, optionally with a language model and a rescorer."""

from typing import Annotated

from pydantic import Field

from workflow_src.decoding.settings import (
    LM,
    RANKING,
    RESCORER,
    LmWeight,
    MinRatio,
    PrefixLanguageModel,
    Ranker,
    WordBonus,
    prefix_label,
)
from workflow_src.spec import ALIGNED, LANGUAGE_MODEL, MODEL, Look, Option, Role, Search, SearchSettings, Sizes


class CtcBeamSettings(SearchSettings):
    """A prefix y has the score log p(y|x) + lm_weight log p_LM(y) + word_bonus |y|.

    Gu & Kong 2021, equation 6, has log |y| in place of |y|.
    """

    beam: Annotated[int, Option(required=True, part="-{}", always=True, holds=True, within_vocabulary=True)] = Field(
        5, ge=1, description="prefixes kept at every slot"
    )
    language_model: PrefixLanguageModel
    lm_weight: LmWeight
    word_bonus: WordBonus
    min_ratio: MinRatio
    beam_threshold: Annotated[float | None, Option(tune=(2.0, 3.0, 5.0), part="-within{:g}")] = Field(
        None, gt=0, allow_inf_nan=False, description="continuations whose score is this far below the best are dropped"
    )
    rescorer: Ranker
    draws: Annotated[int, Option(part="-npd{}", holds=True, passes=True)] = Field(
        0,
        ge=0,
        description="draws of latents whose prefixes are ranked together; 0: the latents' mean, if any",
    )
    temperature: Annotated[float, Option(tune=(0.1, 0.5, 1.0), part="-temperature{:g}", only_with="draws")] = Field(
        0.1, ge=0, allow_inf_nan=False, description="factor of the prior's deviation in draws"
    )
    search_seed: Annotated[int, Option(only_with="draws", part="-seed{}")] = Field(
        1, ge=0, lt=2**31, description="seed of the draws"
    )


def bytes_held(settings: CtcBeamSettings, sizes: Sizes) -> float:
    """Bytes of the scores of all symbols at every slot of each draw; of the prefixes of one sentence with all
    continuations within `min_ratio`; and of the outputs of all sentences, where these are compared in the end."""
    draws = sizes.sentences * max(1, settings.draws)
    symbols = min(sizes.vocabulary, 1 / settings.min_ratio) if settings.min_ratio else sizes.vocabulary
    compared = draws if settings.draws > 1 or settings.rescorer else 0
    scores = draws * sizes.positions * (8 * sizes.vocabulary + 40 * sizes.dim)
    return scores + settings.beam * (32 * symbols + compared * (200 + 8 * sizes.length))


def label(settings: CtcBeamSettings) -> str:
    draws = [f"NPD {settings.draws}"] if settings.draws else []
    return prefix_label("one pass", settings.beam, settings.language_model, settings.rescorer, *draws)


SEARCH = Search(
    name="ctc-beam",
    title="one pass, beam",
    settings=CtcBeamSettings,
    module="workflow_src.searches.ctc_beam.search:CtcBeam",
    program=True,
    origins=True,
    # The graph depends on draws alone: its outputs are searched outside of it.
    graph=lambda s: [s.draws, s.temperature, s.search_seed] if s.draws else None,
    logits=True,
    needs={
        MODEL: Role(ALIGNED),
        LM: Role(LANGUAGE_MODEL, agree=("subwords",), optional=True),
        RESCORER: RANKING,
    },
    series="beam",
    width=lambda settings: settings.beam * max(1, settings.draws),
    held=bytes_held,
    label=label,
    look=Look(marker="X"),
)
