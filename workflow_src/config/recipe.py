"""A recipe: the preparation of a dataset for training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidatorFunctionWrapHandler, field_validator, model_validator

from workflow_src.config.base import by_name, named
from workflow_src.config.datasets import NAME, DatasetConfig
from workflow_src.config.languages import same_language, spaced
from workflow_src.config.parts import FilePath, Language, Part, RowsPart, TextPart
from workflow_src.config.preparation import SubwordsConfig
from workflow_src.config.sizes import AUTO, MaxLength
from workflow_src.config.texts import RAW, TEXT_KINDS
from workflow_src.config.tokenisers import BleuTokeniser
from workflow_src.errors import ConfigError
from workflow_src.spec import NONE, Frozen

RecipeName = Annotated[str, named(NAME, "small letters, digits, -, _ and .")]
# The name becomes a folder beside those of raw and of teachers' texts.
DistilledName = Annotated[
    str,
    named(
        rf"(?!{RAW}$|({'|'.join(TEXT_KINDS)})-by-){NAME}",
        f"small letters, digits, -, _ and ., but not {RAW} or {' or '.join(f'{k}-by-SYSTEM' for k in TEXT_KINDS)}",
    ),
]


PlaceholderKind = Literal["tags", "urls", "emails", "entities", "variables", "unknown"]
# How a text is tokenised: as by Moses, or in words where the language writes no spaces.
TokenisedKind = Literal["moses", "words"]
# Why a model that was made elsewhere ranks no outputs of a recipe with placeholders.
READS_TEXT = "it reads text, and ids lack that of the recipe's placeholders"


class TextRules(Frozen):
    """What normalisation has to know of a recipe's text beside the rules of `NormalisationConfig`."""

    placeholders: tuple[PlaceholderKind, ...] = Field(
        (), description="true, or a list of kinds: spans such as URLs, tags and %1 pass unchanged"
    )
    tokenised: dict[Language, TokenisedKind] = Field(
        {}, description="languages with tokenised text, such as {ja: words, en: moses}, which becomes ordinary text"
    )

    @field_validator("placeholders", mode="wrap", json_schema_input_type=tuple[PlaceholderKind, ...] | bool | None)
    @classmethod
    def _kinds(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> tuple[PlaceholderKind, ...]:
        """True is all kinds, false and null are none. A list may have any order: the same kinds are equal."""
        kinds = get_args(PlaceholderKind)
        # Text on the command line.
        value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        if value is True:
            return kinds
        none = value is False or value is None or value in NONE
        if not none and not isinstance(value, list | tuple):
            raise ConfigError("", value, allowed=f"true, false, or a list of {', '.join(kinds)}")
        named = () if none else validate(value)
        return tuple(kind for kind in kinds if kind in named)


class SplitRules(TextRules):
    """Which pairs of each split a recipe keeps."""

    limits: dict[Literal["train", "dev", "test", "monolingual"], Annotated[int, Field(gt=0)]] = Field(
        {},
        description="only the first so many pairs (test: of each test set; connected-groups: in their drawn order), or "
        "lines of monolingual text",
    )
    held_out: Literal["keep", "remove"] = Field(
        "keep", description="training pairs that dev or a test set has too; remove: they are left out"
    )


class RecipeConfig(SplitRules):
    """A data recipe: a dataset, its direction, its preparation and its subwords; `name` is its folder in results."""

    name: RecipeName
    dataset: str | DatasetConfig
    folder: FilePath | None = Field(None, description="the user's folder, for datasets that cannot be downloaded")
    source: Language
    target: Language
    clean: dict[str, dict[str, Any]] = Field(
        {}, description="filters of the training text in their order, with their settings; default: none"
    )
    normalisation: dict[str, Any] = {}
    subwords: SubwordsConfig = SubwordsConfig()
    subwords_from: FilePath | None = Field(
        None, description="a folder with subwords.json, as bundles have, to take subwords from; default: learned"
    )
    max_length: MaxLength = AUTO
    # A path of the user's starts from the working directory in every dataset.
    monolingual: tuple[Part, ...] = Field(
        (), description="text of the source language, which systems learn from as monolingual-by-SYSTEM"
    )
    distilled: dict[DistilledName, FilePath] = Field({}, description="name -> the user's own distilled text of train")
    bleu_tokeniser: BleuTokeniser = Field("auto", description="sacreBLEU's, for BLEU; auto: by the target language")

    @field_validator("clean", mode="before", json_schema_input_type=dict[str, dict[str, Any]] | tuple[str, ...])
    @classmethod
    def _list_of_filters(cls, value: Any) -> Any:
        """A list of names is filters with their defaults."""
        sections = by_name(value, "[length, ratio]")
        for name in sections if isinstance(sections, dict) else ():
            if sections[name] is None:
                raise ConfigError(str(name), problem="null", hint="write {} for its defaults, or remove it")
        return sections

    def _check_monolingual(self, part: Part, where: str) -> None:
        if part.languages and self.source not in part.languages:
            hint, where = f"add {self.source}, the source language", f"{where}.{part.by_language}"
            raise ConfigError(where, sorted(part.languages), problem=f"no {self.source}", hint=hint)
        if (count := part.references(self.source)) > 1:
            raise ConfigError(f"{where}.{part.setting(self.source)}", problem=f"{count} texts", allowed="one")
        if isinstance(part, TextPart) and part.markup != "none":
            raise ConfigError(f"{where}.markup", part.markup, problem="text of one language has none", hint="remove it")
        if isinstance(part, RowsPart) and part.has_scores and part.minimum_score is None:
            hint = "add minimum_score, or remove it"
            raise ConfigError(f"{where}.score_column", part.score_column, problem="it has no effect", hint=hint)

    def copied_subwords(self) -> SubwordsConfig | None:
        """The kind and size of the subwords of `subwords_from`; None where there are none to read yet."""
        if self.subwords_from is None:
            return None
        try:
            description = json.loads(Path(self.subwords_from, "subwords.json").read_text(encoding="utf-8"))
            kind = {name: description[name] for name in ("method", "model", "joint")}
            return SubwordsConfig.model_validate(kind | {"vocabulary_size": max(description["sizes"].values())})
        except (OSError, ValueError, LookupError, TypeError):
            # Missing until another run learns them; the stage that copies them refuses a damaged file.
            return None

    @model_validator(mode="after")
    def _direction(self):
        if same_language(self.source, self.target):
            raise ConfigError("target", self.target, problem="source is the same", hint="name two languages")
        for number, part in enumerate(self.monolingual):
            self._check_monolingual(part, f"monolingual[{number}]")
        for language, kind in self.tokenised.items():
            if language not in (self.source, self.target):
                raise ConfigError("tokenised", language, allowed=(self.source, self.target))
            if (kind == "moses") != spaced(language):
                allowed = ["moses" if spaced(language) else "words"]
                raise ConfigError(f"tokenised.{language}", kind, problem="not for this language", allowed=allowed)
        return self
