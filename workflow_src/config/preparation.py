"""How a text is prepared: normalisation and subwords."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from workflow_src.config.sizes import AUTO, sized_number, vocabulary_size
from workflow_src.errors import ConfigError
from workflow_src.spec import Frozen

UnicodeForm = Literal["NFC", "NFKC"]


class NormalisationConfig(Frozen):
    """Settings of normalisation, from raw lines to the text that models see and that scores are computed on."""

    unicode: UnicodeForm = Field("NFC", description="of the text of models; references as given are in NFC")
    romanian: bool = Field(False, description="on Romanian text: cedilla to comma letters, then diacritics removed")
    moses_punctuation: bool = Field(False, description="sacremoses punctuation normalisation")
    moses_tokenise: bool = Field(
        False, description="sacremoses tokenisation, with marks by which outputs are put together"
    )
    lowercase: bool = False
    references: Literal["given", "normalised"] = Field(
        "given",
        description="what outputs are scored against: the references as they are given, or normalised like training "
        "text and detokenised like outputs",
    )
    max_length_ratio: float | None = Field(None, gt=1, description="in words; training pairs beyond it are dropped")
    max_words: int | None = Field(None, gt=0, description="longer training sentences are dropped")
    max_characters: int | None = Field(
        None, gt=0, description="pairs with a longer side are dropped, in train, dev and test alike"
    )

    @property
    def altering(self) -> tuple[str, ...]:
        """Settings that are on and by which a text is tokenised or loses its capitals."""
        return tuple(name for name in ("moses_tokenise", "lowercase") if getattr(self, name))


class SubwordsConfig(Frozen):
    method: Literal["sentencepiece", "subword-nmt"] = "sentencepiece"
    model: Literal["unigram", "bpe"] = "unigram"
    vocabulary_size: Annotated[int, Field(gt=8)] | Literal["auto"] = Field(
        32000, description="of each side where they are not joint; auto: by training pairs and their characters"
    )
    joint: bool = Field(True, description="one vocabulary for both languages")
    character_coverage: float = Field(1.0, ge=0.98, le=1)

    @model_validator(mode="after")
    def _bpe(self):
        if self.method == "subword-nmt" and self.model != "bpe":
            raise ConfigError("model", self.model, problem="method is subword-nmt", allowed=["bpe"])
        return self

    def sized(self, pairs: int, characters: int = 0) -> SubwordsConfig:
        """These settings with a number in place of auto, for a training text of so many pairs and characters."""
        if self.vocabulary_size != AUTO:
            return self
        # subword-nmt has each character twice: within a word and at its end.
        single = 2 * characters if self.method == "subword-nmt" else characters
        return self.model_copy(update={"vocabulary_size": vocabulary_size(pairs, single)})

    @property
    def size(self) -> int:
        """The number of `vocabulary_size`, which must not be auto: `sized` replaces that."""
        return sized_number(self.vocabulary_size)
