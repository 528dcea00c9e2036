"""A configuration as it is after loading: presets applied, relations followed, lists of settings written out."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, ClassVar

import pydantic
from pydantic import (
    Field,
    InstanceOf,
    PlainSerializer,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from workflow_src.config.datasets import DatasetConfig
from workflow_src.config.experiment import DecodeName, DecodeOptions, Removal, SystemFields, WorkflowConfig, removal
from workflow_src.config.metrics import Measured
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.roles import decoded, named_systems
from workflow_src.config.texts import MONOLINGUAL, Data, canonical, kind_and_system, weights_of
from workflow_src.config.training import TrainingConfig
from workflow_src.errors import ConfigError
from workflow_src.registry import default_engine, engines, families, filters, searches
from workflow_src.spec import (
    REPETITIONS,
    SCORES,
    UNKNOWN,
    AnalysisSettings,
    Corpus,
    Family,
    Frozen,
    SearchSettings,
    compared,
    config_error,
    parse,
)


class System(SystemFields):
    """A system with its preset applied and its relations followed. Trainings read the fields of `LEARNT`."""

    # What decides its weights, beside its seed and the files that it is made from; for families that are counted, too.
    COUNTED: ClassVar = {"name", "family", "preset", "data", "model", "reversed"}
    LEARNT: ClassVar = COUNTED | {"objective", "training", "bleu_tokeniser"}
    # What changes no weights: the model has the preset's values.
    WITHOUT_EFFECT: ClassVar = {"preset": True, "training": {"save_every", "max_skipped"}}

    name: str
    family: Annotated[InstanceOf[Family], PlainSerializer(attrgetter("name"), str)]
    preset: str = ""
    data: Data = {}
    # Settings of the classes that the family declares.
    model: Any
    objective: Any = None
    training: TrainingConfig = TrainingConfig(max_steps=0)
    bleu_tokeniser: str = Field("13a", description="sacreBLEU's, of the language that it writes")

    @model_validator(mode="before")
    @classmethod
    def _of_the_family(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        family = content.get("family")
        if not isinstance(family, Family):
            if not isinstance(family, str) or family not in families():
                raise ConfigError("family", family, allowed=families())
            family = families()[family]
        sections = [section for section in ("model", "objective") if section in content]
        parsed = {section: parse(getattr(family, section), content[section], section) for section in sections}
        return content | {"family": family} | parsed

    @field_serializer("data")
    def _with_augmented_names(self, _data: Data) -> Data:
        """Trainings read augmented texts, which have another name."""
        return self.learnt_data

    @property
    def served_with(self) -> dict[str, str]:
        """Entries of `filled` that its bundle has: all but those that only training works with."""
        return {role: name for role, name in self.filled.items() if not self.family.needs[role].training}

    def networks(self, systems: Mapping[str, System]) -> list[System]:
        """The system, and the base in whose latent space it works."""
        return [self, *([systems[self.base]] if self.base else [])]

    @property
    def group(self) -> str:
        """The system that heads its group of table rows: the model that it refines, or itself."""
        return self.base or self.name

    @property
    def traits(self) -> frozenset[str]:
        """Traits of its family, without those that the settings of its model rule out (`lacks`)."""
        return self.family.traits - self.family.lacks(self.model)

    @property
    def texts(self) -> dict[str, float]:
        """Weights of its training texts by name; augmented ones have another name."""
        suffix = self.training.augment.suffix if self.training.augment else ""
        return weights_of({text + suffix: weight for text, weight in weights_of(self.data).items()})

    @property
    def learnt_data(self) -> Data:
        """`data` with the names of augmented texts, for descriptions."""
        return canonical(self.texts)

    def sized(self, tokens: int, monolingual: int | None = None) -> System:
        """The system with numbers in place of auto: texts have `tokens` target tokens each, and monolingual ones
        `monolingual`, if that is known."""

        def length(text: str) -> int:
            origin = kind_and_system(text)
            return monolingual or tokens if origin and origin.kind == MONOLINGUAL else tokens

        epoch_tokens = round(sum(weight * length(text) for text, weight in self.texts.items()))
        return self.model_copy(update={"training": self.training.sized(epoch_tokens)})


@functools.cache
def _type_of(kind: type[SearchSettings], name: str) -> pydantic.TypeAdapter[Any]:
    """The type of one setting. Cached: many decodes try values of the same settings."""
    field = kind.model_fields[name]
    of_field: Any = Annotated[field.annotation, field]
    return pydantic.TypeAdapter(of_field)


def combinations(kind: type[SearchSettings], tune: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the listed values, the last setting varying fastest.

    Of those that differ only in settings without effect (`only_with`), there is the first alone.
    """
    distinct: dict[tuple[tuple[str, Any], ...], dict[str, Any]] = {}
    for chosen in itertools.product(*tune.values()):
        values = dict(zip(tune, chosen, strict=True))
        distinct.setdefault(tuple(item for item in values.items() if kind.has_effect(item[0], values)), values)
    return list(distinct.values())


def typed_value(kind: type[SearchSettings], name: str, value: Any) -> Any:
    """A value of one setting as its type: 4.0 as 4 where it is a whole number. Raises ConfigError for others."""
    if name not in kind.model_fields:
        raise ConfigError(name, problem=UNKNOWN, allowed=kind.model_fields)
    try:
        return _type_of(kind, name).validate_python(value)
    except pydantic.ValidationError as failure:
        raise config_error(failure, value, name) from None


class Decode(DecodeOptions):
    """One decode: a system, a search with its settings (`values`), an engine, and the name that its files carry.

    As JSON, the settings of the search stand beside the other fields. Jobs read those fields that their results depend
    on: the number of sentences decoded together (`batch`) and that of jobs (`shards`) change no translation.
    """

    # A job that decodes a single bundle needs no names.
    system: str = ""
    search: str
    name: DecodeName = ""
    values: SerializeAsAny[SearchSettings]
    splits: tuple[str, ...] = ()
    # What computes it, our own code or another library, and in which of its precisions, where it has several.
    engine: str = Field(default_factory=lambda: default_engine().name)
    compute_type: str | None = None
    # Values of settings to choose from on dev.
    tune: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}

    @model_validator(mode="before")
    @classmethod
    def _of_the_search(cls, content: Any) -> Any:
        """Reads the settings that stand beside the other fields as those of the search."""
        if not isinstance(content, dict) or isinstance(content.get("values"), SearchSettings):
            return content
        if "search" not in content:
            raise ConfigError("search", problem="missing")
        name = content["search"]
        if not isinstance(name, str) or name not in searches():
            raise ConfigError("search", name, allowed=searches())
        search = searches()[name]
        own = {name: value for name, value in content.items() if name in cls.model_fields and name != "values"}
        return own | {"values": parse(search.settings, {n: v for n, v in content.items() if n not in own})}

    @field_validator("engine")
    @classmethod
    def _declared(cls, engine: str) -> str:
        if engine not in engines():
            raise ConfigError("", engine, allowed=engines())
        return engine

    @field_validator("tune")
    @classmethod
    def _typed(cls, tune: dict[str, list[Any]], fields: pydantic.ValidationInfo) -> dict[str, list[Any]]:
        if "values" not in fields.data:
            # The error of the settings is reported.
            return tune
        kind = type(fields.data["values"])
        return {name: [typed_value(kind, name, value) for value in values] for name, values in tune.items()}

    @model_serializer(mode="wrap")
    def _flat(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content = write(self)
        return content | content.pop("values", {})

    @property
    def key(self) -> tuple[str, str]:
        return self.system, self.name

    @property
    def own_engine(self) -> bool:
        return self.engine == default_engine().name

    @property
    def engine_word(self) -> str:
        """The word for its engine with its precision, such as `ctranslate2-int8`."""
        return engines()[self.engine].word(self.compute_type)

    def runs_on(self, device: str) -> bool:
        """Whether it can be computed on "cpu" or "cuda": engines have kinds of devices, and float16 is for GPUs."""
        return device in engines()[self.engine].devices and (device, self.compute_type) != ("cpu", "float16")

    @property
    def others(self) -> dict[str, str]:
        """Systems beside its own that it works with, by role."""
        return named_systems(self.values)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The search, its settings and an engine that is not the default: what changes translations."""
        engine = set() if self.own_engine else {"engine", "compute_type"}
        return self.model_dump(mode="json", include={"search", "values"} | engine)

    def with_values(self, changes: Mapping[str, Any]) -> Decode:
        """The decode with other values of some of the search's settings. Raises ConfigError."""
        values = parse(type(self.values), self.values.model_dump() | dict(changes))
        # Not a copy, which would keep cached properties.
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return self.model_validate(fields | {"values": values})

    @functools.cached_property
    def tried(self) -> list[dict[str, Any]]:
        """`combinations` of the values that dev chooses from."""
        return combinations(type(self.values), self.tune)

    @functools.cached_property
    def combinations(self) -> list[SearchSettings]:
        """The settings with each of `tried`."""
        return [self.values.model_validate(self.values.model_dump() | chosen) for chosen in self.tried]


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A checked configuration."""

    config: WorkflowConfig
    dataset: DatasetConfig
    normalisation: NormalisationConfig
    systems: dict[str, System]
    decodes: tuple[Decode, ...]
    metrics: tuple[Measured, ...]
    # Settings of every declared analysis by its name.
    analyses: Mapping[str, AnalysisSettings]
    # Settings of the filters that clean the training text, by name, in their order.
    cleaning: dict[str, Frozen]
    # Properties of the corpus that metrics may depend on.
    corpus: Corpus

    @property
    def test_sets(self) -> tuple[str, ...]:
        """Names of the test sets that are translated; the main one first."""
        return self.config.test or self.dataset.test_sets

    @property
    def held_out(self) -> tuple[str, ...]:
        """Dev and all test sets of the dataset, translated or not: experiments of a recipe share its corpus."""
        return ("dev", *self.dataset.test_sets)

    def with_main_test_set(self, name: str) -> Loaded:
        """The configuration with another one of its test sets in the main one's place."""
        test = tuple(dict.fromkeys((name, *self.test_sets)))
        return dataclasses.replace(self, config=self.config.model_copy(update={"test": test}))

    @property
    def monolingual_cleaning(self) -> dict[str, Frozen]:
        """Settings of those filters that can judge text of one language."""
        return {name: settings for name, settings in self.cleaning.items() if filters()[name].each_side}

    @property
    def needs_scores(self) -> bool:
        """True where a filter reads scores of the training pairs."""
        return any(SCORES in filters()[name].needs for name in self.cleaning)

    def sized(self, pairs: int, tokens: int, monolingual: int | None = None, characters: int = 0) -> Loaded:
        """The configuration with numbers in place of auto, for training texts of so many pairs and target tokens.

        `monolingual`: target tokens of translated text of the source language; None: as many as `tokens`. Tokens count
        end symbols. `characters`: distinct ones of a text of the vocabulary. For estimates and requests: jobs take the
        numbers from the texts themselves.
        """
        recipe = self.config.recipe
        subwords = recipe.copied_subwords() or recipe.subwords.sized(pairs, characters)
        recipe = recipe.model_copy(update={"subwords": subwords})
        systems = {name: system.sized(tokens, monolingual) for name, system in self.systems.items()}
        return dataclasses.replace(self, config=self.config.model_copy(update={"recipe": recipe}), systems=systems)

    def means_repetitions(self, decode: Decode) -> bool:
        """True for a decode in whose outputs repetitions are meant: by its system, or by the base that it works in."""
        networks = self.systems[decode.system].networks(self.systems)
        model = decoded(decode.values, [(network, network.family) for network in networks])
        return model is not None and REPETITIONS in model.traits

    def removal(self, decode: Decode) -> Removal:
        """The repetitions that are removed from a decode's outputs before they are scored."""
        autoregressive = self.systems[decode.system].family.autoregressive
        return removal(autoregressive, self.means_repetitions(decode), self.config.report.remove_repetitions)

    def chosen_by(self, decode: Decode) -> dict[str, Any]:
        """What a decode chooses on dev from and by: values, metrics and removed repetitions; empty where it does not.

        Settings at their defaults are left out, so that a new one changes nothing.
        """
        if not decode.tune:
            return {}
        deciding = (self.metrics[0].metric.name, decode.tune_by)
        metrics = {e.metric.name: compared(e.settings) for e in self.metrics if e.metric.name in deciding}
        return {"tune": decode.tune, "metrics": metrics, "remove_repetitions": self.removal(decode)}
