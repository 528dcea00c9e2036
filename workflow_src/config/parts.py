"""Parts of a split as a YAML file names them: texts, and tables, records and memories of several languages."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from workflow_src.config.base import distinct
from workflow_src.config.languages import nearest_language
from workflow_src.errors import ConfigError, nearest
from workflow_src.spec import Frozen


def _language(value: str) -> str:
    if not re.fullmatch("[a-z]{2,3}", value):
        raise ConfigError("", allowed="a code of two or three small letters", nearest_name=nearest_language(value))
    return value


Language = Annotated[str, AfterValidator(_language)]

Languages = Annotated[
    tuple[Language, ...],
    Field(min_length=1, max_length=2, description="source and target, or that of a text in one"),
    AfterValidator(distinct),
]


def _path(value: str) -> str:
    if re.match("[A-Za-z][A-Za-z0-9+.-]*://", value):
        hint = "name the file under files of a dataset, as those in config/datasets do, or download it"
        raise ConfigError("", problem="it is a URL", allowed="a path", hint=hint)
    # Snakemake reads braces as wildcards.
    braces = "{" in value or "}" in value
    if not value or braces or any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in value):
        raise ConfigError("", allowed="a path without { or }, line breaks and other control characters")
    return os.path.expanduser(value)


# A path of the user's, or a key of a dataset's files.
FilePath = Annotated[str, AfterValidator(_path)]


def file_and_members(text: str) -> list[str]:
    """The file of a text `FILE!MEMBER!…`, and the members that lead to it; `!!` is a `!` of a name."""
    return [part.replace("\0", "!") for part in text.replace("!!", "\0").split("!")]


def _as_list(value: Any) -> Any:
    """One text as a list of texts."""
    if not isinstance(value, str | list | tuple):
        raise ConfigError("", allowed="a path, or a list of paths")
    return [value] if isinstance(value, str) else value


# Several texts are several references of each source.
TextPaths = Annotated[
    tuple[FilePath, ...],
    Field(min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=FilePath | tuple[FilePath, ...]),
]

# The number of a column, from 0, or a name.
Column = Annotated[int, Field(ge=0)] | str
# Separators of columns that cannot stand beside quoted cells.
NO_DELIMITER = '"\r\n '


class PartFields(Frozen):
    """What parts of every kind have.

    Texts are `FILE` or `FILE!MEMBER` (or `FILE!MEMBER!MEMBER` for archives inside archives), where FILE is a key of
    the dataset's `files` or a path of the user's, and a `!` of a name is written `!!`. gzip, bzip2, xz and Zstandard
    are decompressed.
    """

    # The setting that names its text, and the one with an entry for each language, if there is one.
    text_setting: ClassVar[str]
    by_language: ClassVar[str] = ""

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that it has text in; empty where they are those of its dataset."""
        return ()

    def names(self, _languages: tuple[str, ...]) -> list[str]:
        """Texts that a direction reads."""
        return [getattr(self, self.text_setting)]

    def files(self, languages: tuple[str, ...]) -> list[str]:
        """Names of the files that a direction reads, without those of members of archives."""
        return [file_and_members(text)[0] for text in self.names(languages)]

    def references(self, _language: str) -> int:
        """Texts in a language: more than one are references of the same sources."""
        return 1

    def setting(self, _language: str) -> str:
        """The setting that names the text in a language."""
        return self.text_setting

    def only(self, language: str) -> Self:
        """The part without other languages."""
        raise NotImplementedError

    @property
    def has_scores(self) -> bool:
        """True where its rows have a score."""
        return False


class TextPart(PartFields):
    """Lines of one split, from texts of each language."""

    text_setting: ClassVar[str] = "texts"
    by_language: ClassVar[str] = "texts"
    texts: dict[str, TextPaths] = Field(
        min_length=1, description="language -> line-aligned text; in dev and test, of the target a list of references"
    )
    markup: Literal["none", "sgm", "ted"] = Field("none", description="sgm: WMT's <seg>; ted: IWSLT's tags")
    translator: str | None = Field(None, description="whose references, of XML that has several (sgm)")

    @model_validator(mode="after")
    def _one_text_of_each_language(self):
        if self.translator is not None and self.markup != "sgm":
            raise ConfigError("translator", self.translator, problem="the part has no markup: sgm", hint="remove it")
        names = [name for texts in self.texts.values() for name in texts]
        if self.markup != "sgm" and len(set(names)) < len(names):
            raise ConfigError("texts", self.texts, allowed="a text for each language, or XML with markup: sgm")
        if self.markup == "ted" and len(names) > len(self.texts):
            raise ConfigError("texts", self.texts, problem="markup is ted", allowed="a text for each language")
        return self

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(self.texts)

    def names(self, languages: tuple[str, ...]) -> list[str]:
        return [text for code in languages for text in self.texts.get(code, ())]

    def references(self, language: str) -> int:
        return len(self.texts.get(language, ("",)))

    def setting(self, language: str) -> str:
        return f"texts.{language}"

    def only(self, language: str) -> Self:
        return self.model_copy(update={"texts": {language: self.texts[language]}})


class RowsPart(PartFields):
    """Lines of one split, from a text whose rows have columns, and perhaps a score."""

    by_language: ClassVar[str] = "columns"
    columns: dict[str, Column] = Field(min_length=1, description="language -> column")
    score_column: Column | None = None
    minimum_score: float | None = Field(None, description="rows with a lower score are left out")

    @model_validator(mode="after")
    def _scores_and_columns(self):
        if self.minimum_score is not None and not self.has_scores:
            raise ConfigError("minimum_score", self.minimum_score, problem="score_column is None", hint="set both")
        if len(set(self.columns.values())) < len(self.columns):
            raise ConfigError("columns", self.columns, allowed="a column for each language")
        return self

    @property
    def languages(self) -> tuple[str, ...]:
        return tuple(self.columns)

    @property
    def has_scores(self) -> bool:
        return self.score_column is not None

    @property
    def column_settings(self) -> dict[str, int | str]:
        """Columns by the settings that name them."""
        columns = {f"columns.{language}": column for language, column in self.columns.items()}
        return columns if self.score_column is None else columns | {"score_column": self.score_column}

    def only(self, language: str) -> Self:
        return self.model_copy(update={"columns": {language: self.columns[language]}})


class TablePart(RowsPart):
    """Lines of one split, from a text with columns."""

    text_setting: ClassVar[str] = "table"
    table: FilePath = Field(description="a text with columns, tab-separated unless separator says so")
    columns: dict[str, Column] = Field(
        min_length=1, description="language -> column of the table, from 0, or its name in the header"
    )
    separator: str = Field("\t", min_length=1, description="what separates a table's columns")
    quoted: bool | None = Field(
        None,
        description="whether a table's cells may be in quotes, as in CSV; null: if one character other than a tab "
        "separates them",
    )
    header: bool = Field(False, description="the table's first row names its columns and is left out")

    @model_validator(mode="after")
    def _columns(self):
        for setting, column in self.column_settings.items():
            if isinstance(column, str) and not self.header:
                hint = "add header: true, or give its number from 0"
                raise ConfigError(setting, column, problem="the part has no header: true", hint=hint)
        if self.quoted and not self._may_be_quoted:
            raise ConfigError("separator", self.separator, allowed="one character, no quote, space or line end")
        return self

    @property
    def _may_be_quoted(self) -> bool:
        return len(self.separator) == 1 and self.separator not in NO_DELIMITER

    @property
    def is_quoted(self) -> bool:
        """True for a table that is read as CSV, with quoted cells."""
        return (self._may_be_quoted and self.separator != "\t") if self.quoted is None else self.quoted


class RecordsPart(RowsPart):
    """Lines of one split, from JSON lines: an object on each line."""

    text_setting: ClassVar[str] = "records"
    records: FilePath = Field(description="a text with a JSON object on each line")
    columns: dict[str, Column] = Field(
        min_length=1, description="language -> field; translation.de is the field de of the object translation"
    )

    @model_validator(mode="after")
    def _fields(self):
        for setting, field in self.column_settings.items():
            if isinstance(field, int):
                raise ConfigError(setting, field, allowed="the name of a field, such as translation.de")
        return self


class MemoryPart(PartFields):
    """Lines of one split, from the units of a translation memory (TMX)."""

    text_setting: ClassVar[str] = "tmx"
    tmx: FilePath = Field(description="a translation memory; its segments have their language in xml:lang")
    variants: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        {}, description="language -> the only xml:lang that is read, such as {pt: pt-BR}; default: every variant"
    )

    def only(self, language: str) -> Self:
        variants = {code: variant for code, variant in self.variants.items() if code == language}
        return self.model_copy(update={"variants": variants})


# Kinds of parts by the setting that names their text.
PARTS = {kind.text_setting: kind for kind in (TextPart, TablePart, RecordsPart, MemoryPart)}


def _of_one_kind(part: Any) -> Any:
    """A part without null in place of texts of other kinds. Raises ConfigError for settings of several kinds."""
    if not isinstance(part, dict):
        return part
    part = {name: value for name, value in part.items() if value is not None or name not in PARTS}
    first, *others = [name for name in PARTS if name in part] or [""]
    if others:
        raise ConfigError(others[0], part[others[0]], problem=f"{first} is set too", hint="remove one of the two")
    known = {setting for kind in PARTS.values() for setting in kind.model_fields}
    for setting in part:
        if first and setting in known - PARTS[first].model_fields.keys():
            having = " or ".join(kind for kind, model in PARTS.items() if setting in model.model_fields)
            hint = f"remove it, or read the part by {having}"
            raise ConfigError(setting, part[setting], problem=f"a part with {first} has no such setting", hint=hint)
    return part


def _kind_of_part(part: Any) -> str:
    """The kind of a part by its text, else by a misspelt name of that, else by any other setting."""
    if not isinstance(part, dict):
        return next((f"part with {name}" for name, kind in PARTS.items() if isinstance(part, kind)), "part with texts")
    names = [str(name) for name in part]
    similar = [name for name in PARTS if nearest(name, names)]
    fitting = [name for name, kind in PARTS.items() if kind.model_fields.keys() & set(names)]
    present = [name for name in PARTS if name in part]
    return f"part with {[*present, *similar, *fitting, 'texts'][0]}"


# The tags are no names of settings, so that errors tell them apart.
Part = Annotated[
    Annotated[TextPart, Tag("part with texts")]
    | Annotated[TablePart, Tag("part with table")]
    | Annotated[RecordsPart, Tag("part with records")]
    | Annotated[MemoryPart, Tag("part with tmx")],
    Discriminator(_kind_of_part),
    BeforeValidator(_of_one_kind),
]
