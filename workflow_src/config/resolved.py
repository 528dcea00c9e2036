"""A configuration as it is after loading: presets applied, relations followed, lists of settings written out."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import Any

from workflow_src.config.datasets import DatasetConfig, NormalisationConfig
from workflow_src.config.experiment import Removal, TrainingConfig, WorkflowConfig, removal
from workflow_src.config.metrics import Measured
from workflow_src.config.texts import MONOLINGUAL, Data, canonical, kind_and_system, system_behind, weights_of
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.registry import decoded, default_engine, families, filters
from workflow_src.spec import ALIGNED, BASE, SCORES, AnalysisSettings, Corpus, Family, Frozen, SearchSettings


@dataclasses.dataclass(frozen=True)
class System:
    """A system with its preset applied and its relations followed."""

    name: str
    family_name: str
    preset: str
    data: Data
    base: str | None
    init_from: str | None
    initial_weights: str | None
    # Of the classes that the family declares.
    model: Any
    objective: Frozen
    training: TrainingConfig
    # Systems in the roles that the family needs beside a base.
    roles: dict[str, str] = dataclasses.field(default_factory=dict)
    # Systems that its bundle carries for its searches, by role.
    carries: dict[str, str] = dataclasses.field(default_factory=dict)
    # It reads targets and writes sources.
    reversed: bool = False
    # Settings by search that its finished bundle has in place of those that dev chose.
    search_defaults: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def filled(self) -> dict[str, str]:
        """Systems that this one is built on and that it works with, by role, the base first."""
        return ({BASE: self.base} if self.base else {}) | self.roles

    @property
    def served_with(self) -> dict[str, str]:
        """Entries of `filled` that its bundle has: all but those that only training works with."""
        return {role: name for role, name in self.filled.items() if not self.family.needs[role].training}

    @property
    def family(self) -> Family:
        return families()[self.family_name]

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

    @property
    def teachers(self) -> list[str]:
        """Systems that make its training texts."""
        return list(dict.fromkeys(filter(None, map(system_behind, weights_of(self.data)))))

    def epoch_tokens(self, tokens: int, monolingual: int | None = None) -> int:
        """Target tokens of an epoch: texts have `tokens` each, and monolingual ones `monolingual`, if that is known."""

        def length(text: str) -> int:
            origin = kind_and_system(text)
            return monolingual or tokens if origin and origin.kind == MONOLINGUAL else tokens

        return round(sum(weight * length(text) for text, weight in self.texts.items()))

    @property
    def built_on(self) -> list[str]:
        return [name for name in (*self.filled.values(), self.init_from, *self.teachers) if name]


@dataclasses.dataclass(frozen=True)
class Decode:
    """One decode: a system, a search, its settings, and the name that its files carry.

    `settings` are all settings that change translations, as rules have them; `values` are those of the search. The
    number of sentences decoded together (`batch`) and that of jobs (`shards`) change no translation.
    """

    system: str
    search: str
    name: str
    settings: dict[str, Any]
    values: SearchSettings
    splits: tuple[str, ...]
    batch: int = 64
    # Values of settings to choose from on dev.
    tune: dict[str, list[Any]] | None = None
    # The metric that chooses, None for the main one.
    tune_by: str | None = None
    shards: int = 1

    @property
    def engine(self) -> str:
        """The engine that computes it: our own code or another library."""
        return self.settings.get("engine") or default_engine().name

    @property
    def own_engine(self) -> bool:
        return "engine" not in self.settings

    def combinations(self) -> list[SearchSettings]:
        """The settings with every combination of the values that dev chooses from, the last varying fastest."""
        tune = self.tune or {}
        return [
            self.values.model_validate(self.values.model_dump() | dict(zip(tune, chosen, strict=True)))
            for chosen in itertools.product(*tune.values())
        ]


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
    cleaning: dict[str, Frozen] = dataclasses.field(default_factory=dict)

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

    @functools.cached_property
    def bleu_tokeniser(self) -> str:
        """sacreBLEU's tokeniser of the target language: everywhere that BLEU is counted."""
        return bleu_tokeniser(self.config.recipe.target, self.config.recipe.bleu_tokeniser)

    @functools.cached_property
    def corpus(self) -> Corpus:
        """Properties of the corpus that metrics may depend on."""
        recipe, generated = self.config.recipe, bool(self.dataset.generator)
        return Corpus(recipe.source, recipe.target, self.bleu_tokeniser, generated, self.normalisation.altering)

    def sized(self, pairs: int, tokens: int, monolingual: int | None = None) -> Loaded:
        """The configuration with numbers in place of auto, for training texts of so many pairs and target tokens.

        `monolingual`: target tokens of translated text of the source language; None: as many as `tokens`. Tokens count
        end symbols. For estimates and requests: jobs take the numbers from the texts themselves.
        """
        recipe = self.config.recipe
        recipe = recipe.model_copy(update={"subwords": recipe.copied_subwords() or recipe.subwords.sized(pairs)})
        systems = {
            name: dataclasses.replace(system, training=system.training.sized(system.epoch_tokens(tokens, monolingual)))
            for name, system in self.systems.items()
        }
        return dataclasses.replace(self, config=self.config.model_copy(update={"recipe": recipe}), systems=systems)

    def aligned(self, decode: Decode) -> bool:
        """True for a decode whose outputs are read off alignments: of its system, or of the base that it works in."""
        system = self.systems[decode.system]
        networks = [system, *([self.systems[system.base]] if system.base else [])]
        model = decoded(decode.values, [(network, network.family) for network in networks])
        return model is not None and ALIGNED in model.traits

    def removal(self, decode: Decode) -> Removal:
        """The repetitions that are removed from a decode's outputs before they are scored."""
        autoregressive = self.systems[decode.system].family.autoregressive
        return removal(autoregressive, self.aligned(decode), self.config.report.remove_repetitions)

    def chosen_by(self, decode: Decode) -> dict[str, Any]:
        """Settings of the experiment that decide what a decode chooses on dev, without those at their defaults."""
        if not decode.tune:
            return {}
        autoregressive = self.systems[decode.system].family.autoregressive
        default_removal, chosen_removal = removal(autoregressive, self.aligned(decode)), self.removal(decode)
        deciding = {
            entry.metric.name: entry.settings.model_dump(mode="json", exclude_defaults=True)
            for entry in self.metrics
            if decode.tune_by and entry.metric.name in (self.metrics[0].metric.name, decode.tune_by)
        }
        changed = {name: settings for name, settings in deciding.items() if settings}
        return ({"metrics": changed} if changed else {}) | (
            {"remove_repetitions": chosen_removal} if chosen_removal != default_removal else {}
        )
