"""An experiment: a data recipe, systems, seeds and decodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from workflow_src.config.base import by_name, distinct, matching, named
from workflow_src.config.datasets import SetName
from workflow_src.config.parts import FilePath
from workflow_src.config.recipe import RecipeConfig
from workflow_src.config.relations import Relations
from workflow_src.config.runtime import RuntimeConfig
from workflow_src.config.training import TrainingConfig
from workflow_src.errors import ConfigError
from workflow_src.registry import distilling_search
from workflow_src.spec import UNKNOWN, Frozen, SearchSettings, parse
from workflow_src.spec.settings import PART, PART_CHARACTERS

Protocol = Literal["cpu-1-thread", "cpu-all-threads", "gpu"]
# Repetitions that are removed: none, those of words of the joined text, or of subwords before they are joined.
Removal = Literal["none", "words", "subwords"]
REMOVALS: tuple[Removal, ...] = get_args(Removal)


def removal(autoregressive: bool, means_repetitions: bool, configured: Removal | None = None) -> Removal:
    """The repetitions that are removed from outputs before they are scored and served; `configured` is the setting.

    The default is subwords. It is none for models whose repetitions are meant: `autoregressive` ones, which read the
    words before, and those that declare the trait REPETITIONS (`means_repetitions`), such as models with a blank
    between two equal symbols. Outputs of the first kind are never changed, those of the second only where `configured`
    says so.
    """
    if autoregressive:
        return "none"
    return configured or ("none" if means_repetitions else "subwords")


NAME = r"[a-z0-9][a-z0-9_-]*"
ExperimentName = Annotated[str, named(NAME, "small letters, digits, - and _")]
SystemName = Annotated[str, named(NAME, "small letters, digits, - and _")]
DecodeName = Annotated[str, named(rf"[A-Za-z0-9]{PART.pattern}", f"{PART_CHARACTERS}, the first a letter or digit")]
# The range that every random-number generator accepts.
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Package = Annotated[str, matching(r"[^\W\d]\w*(\.[^\W\d]\w*)*", "a package as Python imports it, such as my_package")]


class SystemFields(Relations):
    """Settings of a system, beside its family."""

    preset: str | None = Field(None, description="settings of the family by name; none for models made elsewhere")
    reversed: bool = Field(
        False, description="reads targets and writes sources: only for likelihood.SYSTEM.backward, on raw pairs"
    )
    # Not inherited through `extends`.
    search_defaults: dict[str, dict[str, Any]] = Field(
        {}, description="settings by search that its bundle searches with; default: those of the best row on dev"
    )
    initial_weights: FilePath | None = Field(
        None, description="weights to start from: a safetensors file; of an ngram system, an ARPA file"
    )
    model: dict[str, Any] = Field({}, description="settings that differ from the preset's")
    objective: dict[str, Any] = {}
    training: TrainingConfig | None = Field(
        None, description="how long it learns; none where it is counted at once, or made elsewhere"
    )

    @model_validator(mode="after")
    def _one_start(self):
        if self.init_from is not None and self.initial_weights is not None:
            raise ConfigError(
                "init_from", self.init_from, problem="initial_weights is set too", hint="remove one of the two"
            )
        return self


class SystemConfig(SystemFields):
    """One trained model.

    A text is raw, distilled-by-SYSTEM, monolingual-by-SYSTEM, likely-by-SYSTEM, or the name of the user's own distilled
    text.
    """

    family: str


class DistillationConfig(Frozen):
    """How a teacher translates the training source; the settings of its search stand beside these."""

    model_config = pydantic.ConfigDict(extra="allow")

    batch: int = Field(128, gt=0, description="sentences decoded together")
    shards: int = Field(1, gt=0, description="jobs")
    seed: Seed | None = Field(None, description="which of the teacher's seeds; default the smallest")
    engine: str = Field(
        "auto", description="what computes; auto: the fastest that is installed, on CPUs; outputs are the same"
    )

    @classmethod
    def of_search(cls) -> list[str]:
        """Settings of the search that may be set: all but those that name other systems or need one."""
        kind = distilling_search().settings
        options = {name: kind.option(name) for name in kind.model_fields}
        return [name for name, option in options.items() if option.role is None and option.only_with is None]

    def search_settings(self, section: str = "") -> SearchSettings:
        """Settings of the search that distils, the reference of comparisons. Raises ConfigError, in `section`."""
        allowed = self.of_search()
        for name in self.model_extra or {}:
            if name not in allowed:
                raise ConfigError(name, problem=UNKNOWN, allowed=[*type(self).model_fields, *allowed]).within(section)
        return parse(distilling_search().settings, self.model_extra or {}, section)


class LikelihoodConfig(Frozen):
    """Which training pairs a system finds likely: by -log p(target | source) in nats a target subword.

    With `backward`, -log p(source | target) counts too: the score is the dual conditional cross-entropy
    (Junczys-Dowmunt 2018).
    """

    backward: str | None = Field(None, description="a system with reversed: true that scores the pairs too")
    keep: float | None = Field(
        None, gt=0, le=1, description="share of the pairs, the likeliest; default: 0.9, or all where maximum is set"
    )
    maximum: float | None = Field(None, gt=0, description="score in nats a subword that pairs have at most")
    batch: int = Field(128, gt=0, description="pairs scored together")
    shards: int = Field(1, gt=0, description="jobs")
    seed: Seed | None = Field(None, description="which of the system's seeds; default the smallest")

    @property
    def share(self) -> float:
        """The share of the pairs that is kept."""
        return self.keep or (0.9 if self.maximum is None else 1.0)


class DecodeOptions(Frozen):
    """How a decode is computed and chosen: what a decode of a file and a resolved one have alike."""

    batch: int = Field(64, gt=0, description="sentences decoded together")
    shards: int = Field(1, gt=0, description="jobs that each split is spread over")
    tune_by: str | None = Field(None, description="the metric that decides on dev; default: the main one, BLEU")


Values = Annotated[tuple[bool | int | float | str, ...], Field(min_length=1), AfterValidator(distinct)]
Words = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(distinct)]


class DecodeDefaults(DecodeOptions):
    """Fields that all decodes of an experiment may have in common."""

    engine: str | Words | None = Field(
        None,
        description="what computes, with its precision, such as ctranslate2-int8; a list gives a decode for each; "
        "none: eager, our own code; cuda_graphs: on a GPU; others: extra fast",
    )
    splits: Annotated[tuple[Literal["dev", "test"], ...], AfterValidator(distinct)] = Field(
        ("test",), min_length=1, description="test: every test set"
    )


class DecodeConfig(DecodeDefaults):
    """A system and a search; the settings of the search stand beside these. A list gives a decode for each value."""

    model_config = pydantic.ConfigDict(extra="allow")

    system: str | Words
    search: str
    name: DecodeName | None = Field(None, description="default: made from the settings")
    tune: dict[str, Values] | Words = Field(
        {}, description="settings that dev chooses, all combinations of their usual values, or of values listed here"
    )


class SpeedConfig(Frozen):
    """Settings of measure_speed, which times all rows in one job."""

    sentences: int = Field(200, gt=0, description="of test, the same for every row")
    warmup: int = Field(10, ge=0, description="untimed sentences of each row and round")
    repeats: int = Field(5, gt=0, description="rounds, alternating between rows")
    batch: int = Field(64, gt=0, description="sentences decoded together for throughput on CPUs")
    protocols: Annotated[tuple[Protocol, ...], AfterValidator(distinct)] = Field(
        ("cpu-1-thread",), min_length=1, description="the first gives the table's figures; gpu comes first where one is"
    )


def setting_words(value: Any) -> str:
    """The value of a setting as tables and YAML write it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    # All digits that a float keeps, and 2 for 2.0.
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def with_text_keys(content: Any) -> Any:
    """`content` of YAML with keys as text, as JSON has them: numbers and null by their `setting_words`."""
    if isinstance(content, Mapping):
        return {setting_words(name): with_text_keys(value) for name, value in content.items()}
    return [with_text_keys(value) for value in content] if isinstance(content, list) else content


Value = Annotated[str, BeforeValidator(setting_words)]


class GridConfig(Frozen):
    """A table over two settings of the systems of a family."""

    title: str
    family: str
    rows: str = Field(description="a setting of the systems, such as objective.input_operator")
    columns: str = Field(description="another setting of the systems")
    published: dict[Value, dict[Value, str]] = Field({}, description="published figures by values of rows and columns")
    systems: tuple[str, ...] | None = Field(None, description="systems to show; default: all of the family")


class ReportConfig(Frozen):
    title: str | None = None
    examples: int = Field(10, ge=0, description="sentences shown with every refinement step")
    remove_repetitions: Removal | None = Field(
        None,
        description="of non-autoregressive outputs, in the main table and wherever settings are chosen; default: "
        "subwords, and none from outputs of models with alignments or graphs",
    )
    margin: float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="points of BLEU (of validity: percent) that a row may lose and still be as good as another one",
    )
    expected: dict[str, float] = Field({}, description='published BLEU by row, such as "score-4": 29.1')
    expected_reference_lengths: dict[str, float] = Field(
        {}, description='published BLEU at the references\' lengths, by "system/decode"'
    )
    expected_convention: str = Field(
        "sacrebleu",
        description="how the published BLEU was counted: a metric's convention, such as sacrebleu or tokenised",
    )
    expected_source: str = ""
    grids: tuple[GridConfig, ...] = Field((), description="tables over two settings of a family's systems")
    notes: str = ""


class AnySettings(Frozen):
    """A section whose settings are checked later."""

    model_config = pydantic.ConfigDict(extra="allow")


class SystemLayer(Relations):
    """A system of one file, which lays settings over one of another file; the family's settings are not checked."""

    model_config = pydantic.ConfigDict(extra="allow")

    family: str | None = None
    model: AnySettings | None = None
    objective: AnySettings | None = None
    training: AnySettings | None = None


class Sections(Frozen):
    """Sections whose form counts when a file is laid over another one."""

    # Applied when a configuration is read.
    only: tuple[SystemName, ...] | None = Field(None, description="systems that stay of the extended experiment")
    distillation: dict[str, DistillationConfig] = {}
    likelihood: dict[str, LikelihoodConfig] = {}
    # Sections of declared analyses, which plug-ins may add: checked when these are known.
    analyses: dict[str, dict[str, Any]] = {}
    report: ReportConfig = ReportConfig()
    plugins: tuple[Package, ...] = Field(
        (), description="packages that declare families, searches, engines, analyses, metrics, filters or generators"
    )


class Layer(Sections):
    """The sections of files that are laid over each other; `systems` may have lists, and null for those that go."""

    recipe: AnySettings = AnySettings()
    systems: dict[str, SystemLayer | None] = {}
    decodes: tuple[DecodeConfig, ...] = ()


class WorkflowConfig(Sections):
    """The whole configuration of one run."""

    experiment: ExperimentName
    extends: str | None = None
    # Not inherited through `extends`; nor are the report's title, notes and expected figures, and `search_defaults`.
    description: str = ""
    recipe: RecipeConfig
    test: Annotated[tuple[SetName, ...], AfterValidator(distinct)] | None = Field(
        None, min_length=1, description="test sets of the dataset that are translated, the main one first; default: all"
    )
    systems: dict[SystemName, SystemConfig] = Field(min_length=1)
    seeds: Annotated[tuple[Seed, ...], AfterValidator(distinct)] = Field((1,), min_length=1)
    decode_defaults: DecodeDefaults = Field(DecodeDefaults(), description="fields of all decodes; their own ones win")
    decodes: tuple[DecodeConfig, ...] = Field(min_length=1)
    metrics: dict[str, dict[str, Any]] | None = Field(
        None, description="metrics that translations are scored with, a list of names or settings by name; BLEU always"
    )
    speed: SpeedConfig = SpeedConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    mirrors: tuple[str, ...] = Field((), description="folders that hold files under HOST/PATH of their URL")
    allow_unpinned: bool = False

    @field_validator(
        "metrics", mode="before", json_schema_input_type=dict[str, dict[str, Any] | None] | tuple[str, ...] | None
    )
    @classmethod
    def _list_of_metrics(cls, value: Any) -> Any:
        """A list of names is a section without settings; so is a name with nothing behind it."""
        sections = by_name(value, "[bleu, ter]")
        if isinstance(sections, dict):
            return {name: {} if settings is None else settings for name, settings in sections.items()}
        return sections
