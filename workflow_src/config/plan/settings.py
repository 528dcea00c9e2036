"""Settings of rules: JSON of exactly the settings that change a rule's result, so that no others make it run again.

A plan has them in full for the jobs, and as Snakemake compares them (`Plan.compared`): without values that are the
defaults of the code, so that a setting that a new version adds makes nothing run again, and without what only describes
a result or checks it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, Self

from workflow_src.config.datasets import TEST, DatasetFiles, GroupSplit, RawText
from workflow_src.config.plan.inputs import Inputs
from workflow_src.config.resolved import Decode, System
from workflow_src.config.roles import followed
from workflow_src.config.texts import MONOLINGUAL, RAW, base_of
from workflow_src.registry import searches
from workflow_src.spec import AUTOREGRESSIVE, MODEL, Frozen, compared, defaults, settings_json

# Settings of a file to download that its content is checked by.
CHECKS = {"sha256", "md5", "size"}


class Plan(Inputs):
    """Paths, relations and settings of a checked configuration. Paths are relative to the working directory, and
    `settings_*` return canonical JSON."""

    # Settings in full, for jobs; without defaults, for comparison; or the defaults alone, to say what a change is from.
    form: Literal["full", "compared", "defaults"] = "full"

    def compared(self) -> Self:
        """The same plan with settings as Snakemake compares them."""
        return self._with_form("compared")

    def defaults(self) -> Self:
        """The same plan with the defaults of the settings in their place."""
        return self._with_form("defaults")

    def _with_form(self, form: Literal["full", "compared", "defaults"]) -> Self:
        plan = copy.copy(self)
        plan.form = form
        return plan

    @property
    def full(self) -> bool:
        return self.form == "full"

    def _dump(self, section: Frozen, **options: Any) -> dict[str, Any]:
        """A section as JSON content."""
        if self.form == "defaults":
            parts = {name: value for name, value in section if isinstance(value, Frozen)}
            return defaults(type(section)) | {name: defaults(type(part)) for name, part in parts.items()}
        return section.model_dump(mode="json", **options) if self.full else compared(section, **options)

    def _decode(self, decode: Decode, *names: str) -> dict[str, Any]:
        """A decode's search with its settings, its engine, and its fields of these names."""
        if self.form == "defaults":
            fields = decode.model_dump(mode="json", include={"search", *names})
            return defaults(Decode) | defaults(type(decode.values)) | fields
        return self._dump(decode, include={"search", "values", "engine", "compute_type", *names})

    def run_settings(self) -> dict[str, Any]:
        """Settings of the machine, which change no result, by the names of the stages' inputs."""
        runtime = self.config.runtime
        names = "device precision compile log_every save_minutes pythons scoring_batch"
        return {
            **runtime.model_dump(mode="json", include=set(names.split())),
            "patience": {
                "attempts": runtime.download_attempts,
                "first_wait": runtime.download_wait,
                "timeout": runtime.download_timeout,
            },
            "mirrors": list(self.config.mirrors),
            "allow_unpinned": self.config.allow_unpinned,
        }

    def settings_download(self) -> str:
        return settings_json(self._raw_text(self.loaded.dataset))

    def settings_download_monolingual(self) -> str:
        return settings_json(self._raw_text(self.monolingual_files))

    def _raw_text(self, dataset: DatasetFiles) -> dict[str, Any]:
        """Files and parts of a download. A hint changes no text, and sums check what was downloaded."""
        fields, unchecked = set(RawText.model_fields), set()
        if not self.full:
            fields, unchecked = fields - {"folder_hint"}, CHECKS
        files = {name: self._dump(file, exclude=unchecked) for name, file in dataset.files.items()}
        # Also where a dataset states none, so that changed defaults show.
        content = self._dump(dataset, include=fields) | {"files": files}
        if dataset.generated is None:
            return content
        named = {name: value for name, value in (dataset.generator or {}).items() if name == "name"}
        return content | {"generator": named | self._dump(dataset.generated)}

    def settings_clean(self) -> str:
        """Filters as [name, settings], in their order, and the languages that they look at."""
        return self._cleaning([self.recipe.source, self.recipe.target], self.loaded.cleaning)

    def settings_clean_monolingual(self) -> str:
        return self._cleaning([self.recipe.source], self.loaded.monolingual_cleaning)

    def _cleaning(self, languages: list[str], filters: Mapping[str, Frozen]) -> str:
        steps = [[name, self._dump(settings)] for name, settings in filters.items()]
        return settings_json({"languages": languages, "clean": steps})

    def settings_normalise(self) -> str:
        """`split` is null where the dataset has its own dev and test; that of connected groups has its key language
        written out."""
        dataset = self.loaded.dataset
        languages = [self.recipe.source, self.recipe.target]
        split = None
        if dataset.split:
            first = next(code for code in dataset.languages if code in languages)
            default = {"key_language": first} if isinstance(dataset.split, GroupSplit) else {}
            split = default | self._dump(dataset.split, exclude_none=True)
        kept = defaults(type(self.recipe))["held_out"]
        held_out = {"held_out": self.recipe.held_out} if self.recipe.held_out != kept else {}
        held_out = {"held_out": kept} if self.form == "defaults" else held_out
        return settings_json(self._normalising(languages, ["train", "dev", TEST]) | {"split": split} | held_out)

    def settings_normalise_monolingual(self) -> str:
        return settings_json(self._normalising([self.recipe.source], [MONOLINGUAL]))

    def _normalising(self, languages: list[str], splits: list[str]) -> dict[str, Any]:
        return {
            "languages": languages,
            "limits": {name: number for name, number in self.recipe.limits.items() if name in splits},
            "normalisation": self._dump(self.loaded.normalisation),
            **self._text_rules(languages),
        }

    def _text_rules(self, languages: list[str]) -> dict[str, Any]:
        """What normalisation of these languages has to know of the text, as far as it is set."""
        tokenised = {code: kind for code, kind in self.recipe.tokenised.items() if code in languages}
        kinds = self.recipe.placeholders
        return {**({"placeholders": list(kinds)} if kinds else {}), **({"tokenised": tokenised} if tokenised else {})}

    def settings_subwords(self) -> str:
        # Settings that are not stated follow the copied subwords.
        copied = self.recipe.subwords_from is not None
        content = self._dump(self.recipe.subwords, exclude_unset=copied)
        # The stage reads them too: each kind adds a symbol.
        kinds = self.recipe.placeholders if self.form == "compared" else ()
        return settings_json(content | ({"placeholders": list(kinds)} if kinds else {}))

    def settings_encode(self, text: str = RAW) -> str:
        augment = self.augmentations.get(text)
        changes: dict[str, Any] = {"augment": self._dump(augment)} if augment else {}
        if base_of(text) in self.own_distilled:
            changes |= {"own_target": self._dump(self.loaded.normalisation), **self._text_rules([self.recipe.target])}
        return settings_json({"max_length": self.recipe.max_length} | changes)

    def settings_training(self, system: str) -> str:
        """Everything of one system that changes its weights, except the seed."""
        resolved = self.loaded.systems[system]
        fields = System.COUNTED if resolved.family.fit else System.LEARNT
        content = self._dump(resolved, include=fields, exclude=None if self.full else System.WITHOUT_EFFECT)
        related = {"base": resolved.base, "roles": resolved.roles, "init_from": resolved.init_from}
        if self.form == "compared" and len(resolved.filled) + bool(resolved.init_from) > 1:
            # Which system is which: Snakemake compares the list of files alone, whose names tell the job.
            content |= {name: value for name, value in related.items() if value}
        return settings_json(content)

    def settings_import(self, system: str) -> str:
        """A system made elsewhere, beside its files."""
        return settings_json(self._dump(self.system(system), include={"name", "family", "model"}))

    def settings_distillation(self, teacher: str) -> str:
        """Search settings of a teacher; for jobs also how many sentences are translated at once, and what computes."""
        section = self.distillation(teacher)
        beside = section.model_dump(include={"batch", "engine"}) if self.full else {}
        return settings_json(self._dump(section.search_settings(), include=set(section.of_search())) | beside)

    def settings_scoring(self, system: str) -> str:
        """How many pairs a job scores at once; it changes no score."""
        return settings_json({"batch": self.likelihood(system).batch} if self.full else {})

    def settings_likelihood(self, system: str) -> str:
        """Settings that decide which of the pairs that a system has scored are kept."""
        section = self.likelihood(system)
        return settings_json({"backward": section.backward, "keep": section.share, "maximum": section.maximum})

    def settings_decode(self, decode: Decode) -> str:
        return settings_json(self._decode(decode))

    def settings_choose(self, decode: Decode) -> str:
        """Candidates that a decode chooses from, and the repetitions that are removed before they are compared."""
        removal = self.loaded.removal(decode)
        return settings_json(
            {
                "decode": self._decode(decode, "tune", "tune_by"),
                "remove_repetitions": removal,
                **(self._scoring(decode.tune_by) if decode.tune_by else self._corpus()),
            }
        )

    def settings_significance(self, test_set: str) -> str:
        """Translations of a test set by system, name and seed, and the rows each is compared with.

        `repetitions_removed` is what the main table removes. Validity is compared for generated corpora.
        """
        rows = [(decode, seed) for decode, seed, split in self.rows if split == test_set]
        return settings_json(
            {
                **self._scoring(),
                "rows": [
                    {
                        "system": decode.system,
                        "name": decode.name,
                        "seed": seed,
                        "baseline": self.comparisons.baseline(decode),
                        "controls": self.comparisons.controls(decode),
                        "autoregressive": self.system(decode.system).family.autoregressive,
                        "repetitions_removed": self.loaded.removal(decode),
                        "translations": self.translation(decode, seed, test_set),
                        "details": self.translation_details(decode, seed, test_set),
                    }
                    for decode, seed in rows
                ],
            }
        )

    def settings_finish(self, system: str, seed: int | str, export: str | None) -> str:
        """Candidates for a finished bundle's default search, and the experiment's own settings of it."""
        rows = [
            {
                "decode": self._decode(decode, "name"),
                "removal": self.loaded.removal(decode),
                **self.dev_figures(decode, seed),
            }
            for decode in self.measured_on_dev(system, export)
        ]
        return settings_json(
            {
                "experiment": self.experiment,
                "rows": rows,
                "search_defaults": {name: v for name, v in self.system(system).search_defaults.items() if v},
                "remove_repetitions": self.config.report.remove_repetitions,
            }
        )

    def settings_analysis(self) -> str:
        """Searches of analyses: every one that can be followed, once, with the largest number of any decode; a
        teacher's widest search; and of each other system the first decode that needs nothing else."""
        entries: dict[tuple, Decode] = {}
        for decode in self.loaded.decodes:
            search, values = searches()[decode.search], decode.values
            if search.traceable and (series := search.series):
                kept = followed(values)
                key = (decode.system, decode.search, *kept.values())
                steps = [getattr(entry.values, series) for entry in (decode, entries.get(key)) if entry]
                values = search.settings.model_validate(kept | {series: max(steps)})
                entries[key] = Decode(system=decode.system, search=decode.search, values=values)
        teachers = [
            decode
            for decode in self.loaded.decodes
            if searches()[decode.search].needs[MODEL].trait == AUTOREGRESSIVE
            and decode.own_engine
            and not decode.others
        ]
        teacher = max(teachers, key=lambda d: searches()[d.search].width(d.values), default=None)
        content = {
            "examples": self.config.report.examples,
            "searches": [self._decode(entry, "system") for entry in entries.values()],
            "teacher": teacher and self._decode(teacher, "system"),
        }
        unfollowed = [self._decode(decode, "system") for decode in self._unfollowed_decodes()]
        return settings_json(content | ({"beside": unfollowed} if unfollowed else {}))

    def settings_of_analysis(self, name: str) -> str:
        analysis = self.analyses[name]
        return analysis.settings if self.full else analysis.compared

    def _unfollowed_decodes(self) -> list[Decode]:
        """The first plain decode of every system but followed ones, their bases and autoregressive ones."""
        followed = {decode.system for decode in self.loaded.decodes if searches()[decode.search].traceable}
        covered = followed | {self.loaded.systems[name].base for name in followed}
        decodes = []
        for decode in self.loaded.decodes:
            if decode.system in covered or self.loaded.systems[decode.system].family.autoregressive:
                continue
            if decode.own_engine and not decode.tune and not decode.others:
                covered.add(decode.system)
                decodes.append(decode)
        return decodes

    def settings_speed(self) -> str:
        reference = self.comparisons.reference
        return settings_json(
            {
                "speed": self._dump(self.config.speed),
                "reference": reference.key if reference else None,
                "rows": [self._decode(decode, "system", "name", "tune") for decode in self.loaded.decodes],
            }
        )

    def settings_quality(self) -> str:
        return settings_json(self._scoring())

    def settings_program(self, name: str) -> str:
        settings = self.program_settings.get(name)
        return settings_json(self._dump(settings) if settings else {})

    def _scoring(self, name: str | None = None) -> dict[str, Any]:
        """Settings of all metrics, or of the main one and `name` alone."""
        metrics = {entry.metric.name: self._dump(entry.settings) for entry in self.loaded.metrics}
        if name is not None:
            metrics = {one: metrics[one] for one in (self.loaded.metrics[0].metric.name, name)}
        return self._corpus() | {"metrics": metrics}

    def _corpus(self) -> dict[str, Any]:
        """What scores depend on; metrics that the altered source rules out were refused when it was read."""
        return {"corpus": dataclasses.asdict(dataclasses.replace(self.loaded.corpus, altered=()))}

    def settings_report(self) -> str:
        """The configuration as far as the report shows it, from which `shown_plan` makes the systems, the decodes and
        the rows of this plan; and the order of the systems.

        A decode stands by itself, however its list was written. What changes no result is left out; so is what the
        report only sees in its inputs, such as how speed is measured.
        """
        sections = {"experiment", "description", "systems", "seeds", "report", "plugins"}
        unseen: Any = {"systems": {"__all__": {"training": {"save_every", "max_skipped"}}}}
        config = self.config.model_dump(mode="json", include=sections, exclude=unseen, exclude_defaults=True)
        for name, system in self.config.systems.items():
            # No dump has it, because trainings read texts by their names.
            if system.training and system.training.augment:
                config["systems"][name]["training"]["augment"] = self._dump(system.training.augment)
        seeds = {name: {"seed": s.seed} for name, s in self.config.likelihood.items() if s.seed is not None}
        metrics = {entry.metric.name: self._dump(entry.settings) for entry in self.loaded.metrics}
        config |= {"recipe": self._shown_recipe(), "decodes": [_section_of(decode) for decode in self.loaded.decodes]}
        config |= {"test": self.loaded.test_sets} | ({"likelihood": seeds} if seeds else {})
        config |= {"metrics": metrics} if self.config.metrics is not None else {}
        if self.form == "compared" and (numbers := compared(self.config.report).get("defaults")):
            config["defaults"] = numbers
        if self.form == "defaults":
            config |= {name: value for name, value in self._dump(self.config).items() if name in ("report", "seeds")}
        # Objects of JSON have no order, and tables have that of the systems (and that of `test`).
        return settings_json(config | {"order": list(self.loaded.systems)})

    def _shown_recipe(self) -> dict[str, Any]:
        """The recipe, with its dataset in place of the dataset's name, as far as a report shows them."""
        hidden: Any = {"files": {"__all__": CHECKS}, "folder_hint": True, "pairs": True, "notes": True}
        dataset = self.loaded.dataset.model_dump(mode="json", exclude_defaults=True, exclude=hidden)
        # A dataset of this kind has a hint, which no report shows.
        hint = {"folder_hint": "see the dataset"} if self.loaded.dataset.kind == "folder" else {}
        fields = {"name", "source", "target", "placeholders", "tokenised", "bleu_tokeniser", "normalisation"}
        # Without a filter that reads it, a column of scores is refused.
        fields |= {"clean"} if self.loaded.needs_scores else set()
        recipe = self.recipe.model_dump(mode="json", include=fields, exclude_defaults=True)
        texts = {"distilled": self.own_distilled} if self.own_distilled else {}
        texts |= {"monolingual": self._dump(self.recipe)["monolingual"]} if self.reads_monolingual else {}
        return recipe | texts | {"dataset": dataset | hint}


def _section_of(decode: Decode) -> dict[str, Any]:
    """A section of a configuration that is this decode alone."""
    fields = {"system", "search", "name", "values", "tune", "tune_by"}
    content = decode.model_dump(mode="json", exclude_defaults=True, include=fields)
    required = {name: getattr(decode.values, name) for name in decode.values.named("required")}
    splits = list(dict.fromkeys(split if split == "dev" else TEST for split in decode.splits))
    engine = {} if decode.own_engine else {"engine": decode.engine_word}
    return required | content | {"splits": splits} | engine
