"""A dataset as its YAML file under `config/datasets/` describes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
from workflow_src.config.parts import Language, MemoryPart, Part
from workflow_src.config.texts import MONOLINGUAL, TRAINING_SPLITS
from workflow_src.errors import ConfigError, nearest
from workflow_src.spec import UNKNOWN, Frozen, Generator, parse

NAME = r"[a-z0-9][a-z0-9._-]*"
Address = Annotated[
    str, matching(r"https?://[^\s{}]+", "http:// or https:// without spaces, { or }, which are %20, %7B and %7D")
]
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 digits of 0-9 and a-f")]
Md5 = Annotated[str, matching(r"[0-9a-f]{32}", "32 digits of 0-9 and a-f")]
DatasetName = Annotated[str, named(r"[a-z0-9][a-z0-9-]*", "small letters, digits and -")]
FileName = Annotated[str, matching(r"(?!\.{1,2}$)[^/{}\0-\x1f]+", "a name without /, { or }, and not . or ..")]
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
        return "sha256" if self.sha256 is not None else "md5" if self.md5 is not None else "none"

    @property
    def digest(self) -> str | None:
        return self.sha256 or self.md5


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

    longest: int = Field(500, gt=0, description="characters; pairs with a longer side never become dev or test")


class GroupSplit(AnySplit):
    """Dev and test have one pair each of groups of pairs with common sentences, of which no other pair is used.

    Further test sets of the dataset stay as they are.
    """

    method: Literal["connected-groups"]
    dev: int = Field(gt=0, description="pairs")
    test: int = Field(gt=0, description="pairs")
    key_language: str | None = Field(
        None,
        description="one translation is kept for each sentence of this language; default: the first of the dataset's "
        "languages that is in the direction",
    )
    largest_group: int = Field(20, gt=0, description="larger groups stay in train")
    seed: int = 1

    def sizes(self, pairs: int) -> dict[str, int]:
        """Pairs of each split, at most, that so many pairs are divided into."""
        return {"train": pairs - self.dev - self.test, "dev": self.dev, TEST: self.test}


class NthSplit(AnySplit):
    """Pairs of train become dev by their numbers; the dataset has a test set."""

    method: Literal["every-nth"]
    every: int = Field(gt=1, description="every this-many-th pair becomes dev")

    def sizes(self, pairs: int) -> dict[str, int]:
        """Pairs of each split that so many pairs are divided into."""
        dev = pairs // self.every
        return {"train": pairs - dev, "dev": dev}


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
    def _fitting_parts(self):
        for split, parts in self.parts.items():
            for number, part in enumerate(parts):
                for language in part.variants if isinstance(part, MemoryPart) else ():
                    if language not in self.languages:
                        raise ConfigError(f"{self.place(split, number)}.variants", language, allowed=self.languages)
                for language in self.languages_of(part):
                    where, count = f"{self.place(split, number)}.{part.setting(language)}", part.references(language)
                    if split in TRAINING_SPLITS and count > 1:
                        hint = "name one; several references of a source are for dev and test"
                        raise ConfigError(where, problem=f"{count} texts, and {split} has one", hint=hint)
                    if count != parts[0].references(language):
                        problem = f"{count} of them, and {self.place(split, 0)} has {parts[0].references(language)}"
                        raise ConfigError(where, problem=problem, allowed="as many in every part")
        return self

    @property
    def declared_generator(self) -> Generator:
        """The generator of a generated corpus. Raises ConfigError for one that is not declared."""
        declared = registry.generators()
        name = (self.generator or {}).get("name", next(iter(declared)))
        if not isinstance(name, str) or name not in declared:
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
    sentence_length: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="subwords of a sentence, about; for estimates only"
    )
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
        if isinstance(self.split, GroupSplit) and self.split.key_language not in (None, *self.languages):
            raise ConfigError("split.key_language", self.split.key_language, allowed=self.languages)
        return self

    @property
    def test_sets(self) -> tuple[str, ...]:
        """Names of the test sets, the main one first: that of a split by groups, if there is one."""
        return (TEST, *self.test) if isinstance(self.split, GroupSplit) else super().test_sets
