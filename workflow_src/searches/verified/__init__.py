"""Drafts of a one-pass system, checked by an autoregressive one in a few parallel passes (Xia et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from workflow_src.decoding.settings import DRAFTER, LM, WORD_BONUSES, LmWeight, MaxLengthRatio, by
from workflow_src.errors import ConfigError
from workflow_src.registry import searches, searches_of
from workflow_src.spec import (
    AUTOREGRESSIVE,
    LANGUAGE_MODEL,
    MODEL,
    PARALLEL,
    Family,
    Look,
    Option,
    Role,
    Search,
    SearchSettings,
    Sizes,
)


class VerifiedSettings(SearchSettings):
    """With `tolerance` 0, outputs are those of greedy search, whatever the drafts are."""

    drafter: Annotated[str | None, Option(role=DRAFTER, part=by("from"), carried=True)] = Field(
        None, description="the system that translates in one pass, whose words are checked"
    )
    draft_search: Annotated[str | None, Option(part=by("by"))] = Field(
        None, description="the search of the drafter; none: its first that takes one pass"
    )
    language_model: Annotated[str | None, Option(role=LM, part=by("with"), carried=True)] = Field(
        None, description="the language model of the drafter's beam; none: drafts are made without"
    )
    lm_weight: LmWeight
    word_bonus: Annotated[float, Option(tune=WORD_BONUSES, part="-bonus{:g}", only_with="language_model")] = Field(
        0.0, allow_inf_nan=False, description="added for each subword of a draft; larger values make it longer"
    )
    draft_beam: Annotated[int, Option(part="-beam{}", only_with="language_model", within_vocabulary=True)] = Field(
        20, ge=1, description="prefixes that the drafter's beam keeps"
    )
    drafts: Annotated[int, Option(part="-drafts{}", holds=True, passes=True, within_vocabulary=True)] = Field(
        1, ge=1, description="best outputs of the drafter that are checked side by side; the longest accepted wins"
    )
    tolerance: Annotated[float, Option(tune=(0.0, 0.5, 1.0, 2.0, 3.0), part="-tolerance{:g}")] = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="words of a draft whose log-probability is at most this far below the best are accepted",
    )
    top: Annotated[int, Option(tune=(2, 3, 5), part="-top{}", only_with="tolerance")] = Field(
        5, ge=1, description="with a tolerance, accept only words among so many best"
    )
    block: Annotated[int, Option(part="-block{}", passes=True)] = Field(
        8, ge=1, description="words of a draft that a pass checks"
    )
    max_length_ratio: MaxLengthRatio


def draft_settings(settings: VerifiedSettings, family: Family, model: Any) -> SearchSettings:
    """The search by which a drafter of this family, with these model settings, makes its drafts.

    Raises ConfigError where it has none that is one function of the source and gives so many outputs.
    """
    possible: dict[str, SearchSettings] = {}
    for name in searches_of(family):
        search = searches()[name]
        drafting = _drafting(search, settings)
        if drafting is not None and _serves(search, drafting, family, model):
            possible[name] = drafting
    if settings.draft_search is not None:
        if settings.draft_search in possible:
            return possible[settings.draft_search]
        problem = f"the drafter of family {family.name} cannot draft by it"
        raise ConfigError("draft_search", settings.draft_search, problem=problem, allowed=possible)
    if not possible and settings.language_model is not None:
        problem = f"no search of the drafter's family {family.name} takes a language model"
        raise ConfigError(LM, settings.language_model, problem=problem, hint="set it to none, or name another drafter")
    in_one_pass = [drafting for drafting in possible.values() if _passes(drafting) == 1]
    if not in_one_pass and settings.drafts == 1:
        problem = f"family {family.name} has no search that is one function of the source in one pass"
        hint = f"name another system, or draft_search: {' or '.join(possible)}" if possible else "name another system"
        raise ConfigError("drafter", settings.drafter, problem=problem, hint=hint)
    if not in_one_pass:
        problem = f"no search of family {family.name} gives so many in one pass"
        raise ConfigError("drafts", settings.drafts, problem=problem, hint="lower it")
    return in_one_pass[0]


def _drafting(search: Search, settings: VerifiedSettings) -> SearchSettings | None:
    """Settings with which a search makes the drafts; None where it cannot."""
    widths = search.settings.named("holds")[:1]
    if settings.language_model is not None:
        shared = ("language_model", "lm_weight", "word_bonus")
        # A plug-in's search may weigh its language model by other settings.
        if not search.settings.model_fields.keys() >= {*shared}:
            return None
        beam = dict.fromkeys(widths, max(settings.draft_beam, settings.drafts))
        return search.settings(**beam, **{name: getattr(settings, name) for name in shared})
    if settings.drafts > 1 and not widths:
        return None
    return search.settings(**dict.fromkeys(widths, settings.drafts))


def _serves(search: Search, settings: SearchSettings, family: Family, model: Any) -> bool:
    """Whether the drafter alone computes a search, as one function of its source."""
    alone = all(role.optional for name, role in search.needs.items() if name != MODEL)
    return alone and search.program and not search.varies(settings) and not family.refuses(model, search, settings)


def _passes(settings: SearchSettings) -> int:
    """How often the drafter computes every position of a draft, about."""
    widths = settings.named("holds")[:1]
    return math.prod(max(1, getattr(settings, name)) for name in settings.named("passes") if name not in widths)


def check(settings: VerifiedSettings, systems: Mapping[str, tuple[Family, Any]]) -> None:
    """Raises ConfigError for a drafter that makes no such drafts; `systems` are family and model settings by role."""
    if DRAFTER in systems:
        draft_settings(settings, *systems[DRAFTER])


def bytes_held(settings: VerifiedSettings, sizes: Sizes) -> float:
    """Bytes of the scores of the vocabulary at every word of a block of all drafts of one sentence, and of some states.

    Larger batches are split so that they take about as much, or little. Drafts are taken to be as long as the source.
    """
    return settings.drafts * min(settings.block, sizes.length) * (4 * sizes.vocabulary + 40 * sizes.dim)


def label(settings: VerifiedSettings) -> str:
    """Such as `verified, 3 drafts of ctc, beam 20, with lm`."""
    drafts = "a draft" if settings.drafts == 1 else f"{settings.drafts} drafts"
    of_beam = f", beam {settings.draft_beam}, with {settings.language_model}" if settings.language_model else ""
    return f"verified, {drafts} of {settings.drafter}{of_beam}"


SEARCH = Search(
    name="verified",
    title="verified",
    settings=VerifiedSettings,
    module="workflow_src.searches.verified.search:Verified",
    needs={
        MODEL: Role(AUTOREGRESSIVE),
        DRAFTER: Role(PARALLEL, agree=("subwords",)),
        LM: Role(LANGUAGE_MODEL, agree=("subwords",), optional=True),
    },
    blocks=True,
    held=bytes_held,
    check=check,
    counts="passes",
    label=label,
    look=Look(marker="*"),
)
