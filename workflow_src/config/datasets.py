"""A dataset as its YAML file under `config/datasets/` describes it, and how its text is prepared."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    FieldSerializationInfo,
    Tag,
    field_serializer,
    model_validator,
)

from workflow_src import registry
from workflow_src.config.base import distinct, matching, named
from workflow_src.config.languages import nearest_language, scripts_of
from workflow_src.config.sizes import AUTO, vocabulary_size
from workflow_src.config.texts import MONOLINGUAL, TRAINING_SPLITS
from workflow_src.errors import ConfigError, nearest
from workflow_src.spec import UNKNOWN, Frozen, Generator, parse

NAME = r"[a-z0-9][a-z0-9._-]*"
Address = Annotated[
    str,
    matching(
        r"https?://[^\s{}]+",
        "http:// or https:// without spaces, { or }, which are %20, %7B and %7D",
    ),
]
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 digits of 0-9 and a-f")]
Md5 = Annotated[str, matching(r"[0-9a-f]{32}", "32 digits of 0-9 and a-f")]
DatasetName = Annotated[str, named(r"[a-z0-9][a-z0-9-]*", "small letters, digits and -")]


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
    # Snakemake reads braces as wildcards.
    braces = "{" in value or "}" in value
    if not value or braces or any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in value):
        raise ConfigError("", allowed="a path without { or }, line breaks and other control characters")
    return os.path.expanduser(value)


# A path of the user's, or a key of a dataset's files.
FilePath = Annotated[str, AfterValidator(_path)]
FileName = Annotated[str, matching(r"(?!\.{1,2}$)[^/{}\0-\x1f]+", "a name without /, { or }, and not . or ..")]


def file_and_members(text: str) -> list[str]:
    """The file of a text `FILE!MEMBER!…`, and the members that lead to it; `!!` is a `!` of a name."""
    return [part.replace("\0", "!") for part in text.replace("!!", "\0").split("!")]


def _as_list(value: Any) -> Any:
    """One text as a list of texts."""
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
GENERATED = "the corpus is generated"


Check = Literal["sha256", "md5", "none"]


class RemoteFile(Frozen):
    """One file to download; mirrors hold it under HOST/PATH of its URL."""

    url: Address
    sha256: Sha256 | None = Field(None, description="null: the first download prints it and stops")
    md5: Md5 | None = Field(None, description="compared in its place, where the publisher gives nothing else")
    size: int | None = Field(None, gt=0, description="bytes")
    filename: FileName | None = Field(None, description="name on disk where the URL's own does not serve")

    @model_validator(mode="after")
    def _one_sum(self):
        if self.sha256 is not None and self.md5 is not None:
            raise ConfigError("md5", self.md5, problem="sha256 is compared", hint="remove it")
        return self

    @property
    def check(self) -> Check:
        """The sum that is compared."""
        return "sha256" if self.sha256 is not None else "md5" if self.md5 is not None else "none"

    @property
    def digest(self) -> str | None:
        """The value of that sum."""
        return self.sha256 or self.md5


class PartFields(Frozen):
    """What parts of every kind have.

    Texts are `FILE` or `FILE!MEMBER` (or `FILE!MEMBER!MEMBER` for archives inside archives), where FILE is a key of
    the dataset's `files` or a path of the user's, and a `!` of a name is written `!!`. gzip, bzip2, xz and Zstandard
    are decompressed.
    """

    # The setting with an entry for each language, if there is one.
    by_language: ClassVar[str] = ""

    @property
    def languages(self) -> tuple[str, ...]:
        """Languages that it has text in; empty where they are those of its dataset."""
        return ()

    def names(self, languages: tuple[str, ...]) -> list[str]:
        """Texts that a direction reads."""
        raise NotImplementedError

    def files(self, languages: tuple[str, ...]) -> list[str]:
        """Names of the files that a direction reads, without those of members of archives."""
        return [file_and_members(text)[0] for text in self.names(languages)]

    def references(self, _language: str) -> int:
        """Texts in a language: more than one are references of the same sources."""
        return 1

    def setting(self, language: str) -> str:
        """The setting that names the text in a language."""
        raise NotImplementedError

    def only(self, language: str) -> Self:
        """The part without other languages."""
        raise NotImplementedError

    @property
    def has_scores(self) -> bool:
        """True where its rows have a score."""
        return False


class TextPart(PartFields):
    """Lines of one split, from texts of each language."""

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
    def _scores(self):
        if self.minimum_score is not None and not self.has_scores:
            raise ConfigError("minimum_score", self.minimum_score, problem="score_column is None", hint="set both")
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

    def names(self, _languages: tuple[str, ...]) -> list[str]:
        return [self.table]

    def setting(self, _language: str) -> str:
        return "table"

    @property
    def _may_be_quoted(self) -> bool:
        return len(self.separator) == 1 and self.separator not in NO_DELIMITER

    @property
    def is_quoted(self) -> bool:
        """True for a table that is read as CSV, with quoted cells."""
        return (self._may_be_quoted and self.separator != "\t") if self.quoted is None else self.quoted


class RecordsPart(RowsPart):
    """Lines of one split, from JSON lines: an object on each line."""

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

    def names(self, _languages: tuple[str, ...]) -> list[str]:
        return [self.records]

    def setting(self, _language: str) -> str:
        return "records"


class MemoryPart(PartFields):
    """Lines of one split, from the units of a translation memory (TMX)."""

    tmx: FilePath = Field(description="a translation memory; its segments have their language in xml:lang")
    variants: dict[str, Annotated[str, Field(min_length=1)]] = Field(
        {}, description="language -> the only xml:lang that is read, such as {pt: pt-BR}; default: every variant"
    )

    def names(self, _languages: tuple[str, ...]) -> list[str]:
        return [self.tmx]

    def setting(self, _language: str) -> str:
        return "tmx"

    def only(self, language: str) -> Self:
        variants = {code: variant for code, variant in self.variants.items() if code == language}
        return self.model_copy(update={"variants": variants})


# Kinds of parts by the setting that names their text.
PARTS: dict[str, type[PartFields]] = {
    "texts": TextPart,
    "table": TablePart,
    "records": RecordsPart,
    "tmx": MemoryPart,
}


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


# The name of the test set where a dataset has one without a name, or none of its own.
TEST = "test"
SetName = Annotated[
    str,
    named(
        rf"(?!(?:train|dev|{MONOLINGUAL})$)[a-z0-9][a-z0-9_]*",
        f"small letters, digits and _, but not train, dev or {MONOLINGUAL}",
    ),
]


def _one_set(value: Any) -> Any:
    """A list of parts is one test set."""
    return ({TEST: value} if value else {}) if isinstance(value, list | tuple) else value


SetParts = Annotated[tuple[Part, ...], Field(min_length=1)]
TestSets = Annotated[
    dict[SetName, SetParts],
    BeforeValidator(_one_set, json_schema_input_type=tuple[Part, ...] | dict[SetName, SetParts]),
]


def reference_stem(split: str, number: int) -> str:
    """The name, without its language, of reference `number` of a split, from 2; the first one is the target."""
    return f"{split}.reference-{number}"


def raw_names(split: str, languages: tuple[str, ...], references: int = 1) -> list[str]:
    """Names of the raw texts of a split: source, target, if there is one, and further references."""
    reference_names = [f"{reference_stem(split, number)}.{languages[-1]}" for number in range(2, 1 + references)]
    return [*(f"{split}.{language}" for language in languages), *reference_names]


class AnySplit(Frozen):
    """How the lines of `train` give dev and test where the dataset has none of its own."""

    key_language: str | None = Field(None, description="one translation is kept for each sentence of this language")
    longest: int = Field(500, gt=0, description="characters; pairs with a longer side never become dev or test")


class GroupSplit(AnySplit):
    """Dev and test have one pair each of groups of pairs with common sentences, of which no other pair is used.

    Further test sets of the dataset stay as they are.
    """

    method: Literal["connected-groups"]
    dev: int = Field(gt=0, description="pairs")
    test: int = Field(gt=0, description="pairs")
    largest_group: int = Field(20, gt=0, description="larger groups stay in train")
    seed: int = 1


class NthSplit(AnySplit):
    """Pairs of train become dev by their numbers; the dataset has a test set."""

    method: Literal["every-nth"]
    every: int = Field(gt=1, description="every this-many-th pair becomes dev")


METHODS = ("connected-groups", "every-nth")
ALL_OF_SPLITS = GroupSplit.model_fields | NthSplit.model_fields


def _with_known_method(split: Any) -> Any:
    """Checks the method first, which says what other settings a split has. Raises ConfigError."""
    if isinstance(split, dict) and split.get("method") not in METHODS:
        misspelt = nearest("method", [str(name) for name in split if name not in ALL_OF_SPLITS])
        if misspelt is not None:
            raise ConfigError(misspelt, problem=UNKNOWN, allowed=ALL_OF_SPLITS)
        if "method" not in split:
            raise ConfigError("method", problem="missing", allowed=METHODS)
        raise ConfigError("method", split["method"], allowed=METHODS)
    return split


def _kind_of_split(split: Any) -> str:
    method = split.get("method") if isinstance(split, dict) else getattr(split, "method", None)
    return "split by numbers" if method == "every-nth" else "split by groups"


Split = Annotated[
    Annotated[GroupSplit, Tag("split by groups")] | Annotated[NthSplit, Tag("split by numbers")],
    Discriminator(_kind_of_split),
    BeforeValidator(_with_known_method),
]


class DatasetFiles(Frozen):
    """Files of raw text: where its lines are, and which parts of them belong to train, dev and test."""

    name: DatasetName
    languages: Annotated[tuple[Language, ...], AfterValidator(distinct)] = Field(min_length=2)
    kind: Literal["files", "generated", "folder"] = Field("files", description="folder: the user gives the files")
    files: dict[str, RemoteFile] = {}
    folder_hint: str | None = Field(None, description="what the user must put into the folder, and from where")
    train: tuple[Part, ...] = ()
    dev: tuple[Part, ...] = ()
    test: TestSets = Field({}, description="one list, or a list for each test set by its name, the main one first")
    generator: dict[str, Any] | None = Field(
        None, description="of a generated corpus: its name, and settings; default: the embedded toy grammar"
    )

    @field_serializer("generator")
    def _written_generator(self, value: dict[str, Any] | None, info: FieldSerializationInfo) -> dict[str, Any] | None:
        """Without settings that are defaults where sections are written so."""
        if value is None or self.generated is None or not info.exclude_defaults:
            return value
        named = {name: text for name, text in value.items() if name == "name"}
        return named | self.generated.model_dump(mode="json", exclude_defaults=True)

    @model_validator(mode="after")
    def _has_text(self):
        if self.generated is not None:
            languages = self.declared_generator.languages
            if set(self.languages) != set(languages):
                raise ConfigError("languages", list(self.languages), problem=GENERATED, allowed=" and ".join(languages))
            for setting in ("files", "train", "dev", "test"):
                if getattr(self, setting):
                    raise ConfigError(setting, problem=GENERATED, hint="remove it")
            return self
        if self.generator is not None:
            raise ConfigError("generator", problem=f"kind is {self.kind}", hint="remove it")
        if self.kind == "folder" and not self.folder_hint:
            raise ConfigError("folder_hint", problem="missing", hint="say what to put into the folder, and from where")
        return self

    @model_validator(mode="after")
    def _references(self):
        for split, parts in self.parts.items():
            for number, part in enumerate(parts):
                for language in self.languages_of(part):
                    where, count = f"{self.place(split, number)}.{part.setting(language)}", part.references(language)
                    if split in TRAINING_SPLITS and count > 1:
                        hint = "name one; several references of a source are for dev and test"
                        raise ConfigError(where, problem=f"{count} texts, and {split} has one", hint=hint)
                    if count != parts[0].references(language):
                        problem = f"{count} of them, and {self.place(split, 0)} has {parts[0].references(language)}"
                        raise ConfigError(where, problem=problem, allowed="as many in every part")
        return self

    @model_validator(mode="after")
    def _variants(self):
        for split, parts in self.parts.items():
            for number, part in enumerate(parts):
                for language in part.variants if isinstance(part, MemoryPart) else ():
                    if language not in self.languages:
                        where = f"{self.place(split, number)}.variants"
                        raise ConfigError(where, language, allowed=self.languages)
        return self

    @property
    def declared_generator(self) -> Generator:
        """The generator of a generated corpus. Raises ConfigError for one that is not declared."""
        declared = registry.generators()
        name = (self.generator or {}).get("name", next(iter(declared)))
        if name not in declared:
            raise ConfigError("generator.name", name, allowed=declared)
        return declared[name]

    @property
    def generated(self) -> Frozen | None:
        """Settings of the generator; None where text is read from files."""
        if self.kind != "generated":
            return None
        stated = {name: value for name, value in (self.generator or {}).items() if name != "name"}
        return parse(self.declared_generator.settings, stated, "generator")

    @property
    def test_sets(self) -> tuple[str, ...]:
        """Names of the test sets, the main one first; one called test where train is split or text is generated."""
        return tuple(self.test) or (TEST,)

    @property
    def parts(self) -> dict[str, tuple[Part, ...]]:
        """Parts by split: of train, dev and every test set that has some."""
        return {name: parts for name, parts in {"train": self.train, "dev": self.dev, **self.test}.items() if parts}

    @property
    def raw_splits(self) -> tuple[str, ...]:
        """Names of train, dev and test sets that have parts."""
        return ("train", "dev", TEST) if self.kind == "generated" else tuple(self.parts)

    def languages_of(self, part: Part) -> tuple[str, ...]:
        """Languages that a part has text in: all of the dataset's where the part names none."""
        return part.languages or self.languages

    def place(self, split: str, number: int) -> str:
        """A part as its place in the YAML file."""
        return f"{'test.' if split in self.test and split != TEST else ''}{split}[{number}]"

    def references(self, split: str, language: str) -> int:
        """References of each source of dev or of a test set, in a language."""
        return self.parts[split][0].references(language) if split in self.parts else 1

    def own_files(self, languages: tuple[str, ...], folder: str | None = None) -> list[str]:
        """Paths of the user's own files, which are not downloaded, that a direction reads."""
        parts = [part for parts in self.parts.values() for part in parts]
        names = dict.fromkeys(name for part in parts for name in part.files(languages))
        own_names = [name for name in names if name not in self.files]
        return [f"{folder}/{name}" for name in own_names] if self.kind == "folder" and folder else own_names


class RawText(DatasetFiles):
    """What one download writes: train, dev and test sets of a dataset, or text of one language alone."""

    monolingual: tuple[Part, ...] = ()

    @model_validator(mode="after")
    def _has_parts(self):
        if not self.raw_splits:
            raise ConfigError("train", problem="missing", hint="add parts under train, or under monolingual")
        return self

    @property
    def parts(self) -> dict[str, tuple[Part, ...]]:
        return {MONOLINGUAL: self.monolingual} if self.monolingual else super().parts


class DatasetConfig(DatasetFiles):
    custom_languages: Annotated[tuple[Language, ...], AfterValidator(distinct)] = Field(
        (), description="codes of `languages` that Continuum has no rules for; spaces separate their words"
    )
    split: Split | None = None
    # Defaults for recipes of this dataset; `normalisation` of the recipe wins key by key.
    normalisation: dict[str, Any] = {}
    pairs: int | None = Field(None, gt=0, description="training pairs, about; for estimates only")
    licence: str = "unknown"
    citation: str = ""
    homepage: str = ""
    notes: str = ""

    @model_validator(mode="after")
    def _known_languages(self):
        for code in self.languages:
            if scripts_of(code) is None and code not in self.custom_languages:
                raise ConfigError(
                    "languages",
                    code,
                    problem="no language (ISO 639) that Continuum has rules for",
                    hint=f"correct it, or add custom_languages: [{code}] beside it if the code is right",
                    nearest_name=nearest_language(code),
                )
        for code in self.custom_languages:
            if code not in self.languages:
                raise ConfigError("custom_languages", code, allowed=self.languages)
        return self

    @model_validator(mode="after")
    def _is_split(self):
        if self.kind == "generated":
            if self.split:
                raise ConfigError("split", problem=GENERATED, hint="remove it")
            return self
        if not self.train:
            raise ConfigError("train", [], allowed="at least one part")
        if self.split is None and not (self.dev and self.test):
            raise ConfigError("split", problem="missing", hint="add it, or parts under dev and test")
        if isinstance(self.split, NthSplit) and (self.dev or not self.test):
            raise ConfigError(
                "split.method", self.split.method, problem="it needs parts under test, and none under dev"
            )
        if isinstance(self.split, GroupSplit) and (self.dev or TEST in self.test):
            problem = "it needs no parts under dev, and test sets with names of their own"
            raise ConfigError("split.method", self.split.method, problem=problem)
        if self.split is not None and self.split.key_language not in (None, *self.languages):
            raise ConfigError("split.key_language", self.split.key_language, allowed=self.languages)
        return self

    @property
    def test_sets(self) -> tuple[str, ...]:
        """Names of the test sets, the main one first: that of a split by groups, if there is one."""
        return (TEST, *self.test) if isinstance(self.split, GroupSplit) else super().test_sets


class NormalisationConfig(Frozen):
    """Settings of normalisation, from raw lines to the text that models see and that scores are computed on."""

    unicode: Literal["NFC", "NFKC"] = "NFC"
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
        assert self.vocabulary_size != AUTO
        return int(self.vocabulary_size)
