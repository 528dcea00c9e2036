"""Which files an experiment has and which settings make each of them: the one place that names paths.

Rules get their inputs, outputs and params from here. `settings_*` return canonical JSON that holds exactly what
changes the rule's result, so that Snakemake reruns what a change touches and nothing else.
"""

from __future__ import annotations

import json
import os
from functools import cached_property
from typing import Any

from workflow_src.config.analyses import analyses
from workflow_src.config.decodes import Decode
from workflow_src.config.experiment import DistillationConfig
from workflow_src.config.families import AUTOREGRESSIVE_SEARCHES, LATENT_SEARCH, REFINEMENTS
from workflow_src.config.load import Loaded, System

SPLITS = ("train", "dev", "test")


class Plan:
    """Paths and settings of a checked configuration. Paths are relative to the working directory."""

    def __init__(self, loaded: Loaded):
        self.loaded = loaded
        self.config = loaded.config
        self.experiment = loaded.config.experiment
        self.recipe = loaded.config.recipe
        self.root = f"results/{self.recipe.name}"
        self.analyses = analyses(loaded)
        # Rules ask for them several times a job, and an experiment may have thousands.
        self._decodes = {(decode.system, decode.name): decode for decode in loaded.decodes}

    # Files, in the order of the flow

    def raw(self, split: str, language: str) -> str:
        """Text of a split as downloaded and split, before normalisation."""
        return f"{self.root}/raw/{split}.{language}"

    def corpus(self, split: str, side: str) -> str:
        return f"{self.root}/corpus/{split}.{self.language(side)}"

    def language(self, side: str) -> str:
        """`source` or `target` as a language code; a code stays as it is."""
        return {"source": self.recipe.source, "target": self.recipe.target}.get(side, side)

    def reference(self, split: str) -> str:
        """Target side of dev or test for scoring: clean Unicode, but neither tokenised nor lowercased."""
        return f"{self.root}/corpus/{split}.reference.{self.recipe.target}"

    @property
    def corpus_summary(self) -> str:
        return f"{self.root}/corpus/corpus.json"

    @property
    def subwords(self) -> str:
        """Folder of the subword models; `subwords.json` inside it describes them."""
        return f"{self.root}/subwords"

    def encoded(self, text: str, split: str) -> str:
        """Prefix of an encoded split: `.json` describes it, `.source.bin`, `.target.bin` and offsets hold it."""
        # Written so that wildcards in place of both give the pattern of all of them.
        return f"{self.root}/encoded/{'raw' if split in ('dev', 'test') else text}/{split}"

    def system_folder(self, system: str, seed: int | str) -> str:
        return f"{self.root}/systems/{system}/seed-{seed}"

    def weights(self, system: str, seed: int | str) -> str:
        return f"{self.system_folder(system, seed)}/model.safetensors"

    def bundle(self, system: str, seed: int | str) -> str:
        return f"{self.system_folder(system, seed)}/bundle"

    def bundle_file(self, system: str, seed: int | str) -> str:
        """The file of a bundle that is written last."""
        return f"{self.bundle(system, seed)}/bundle.json"

    def ctranslate2_file(self, system: str, seed: int | str) -> str:
        """The file of a CTranslate2 export that is written last."""
        return f"{self.system_folder(system, seed)}/ctranslate2/bundle.json"

    def decoded_with(self, decode: Decode, seed: int | str) -> str:
        """The last file of the folder that a decode translates with."""
        make = self.ctranslate2_file if decode.engine == "ctranslate2" else self.bundle_file
        return make(decode.system, seed)

    def state_folder(self, system: str, seed: int | str) -> str:
        """Training state; no rule declares it, so that Snakemake never deletes it."""
        return f"work/{self.recipe.name}/{system}/seed-{seed}"

    def distilled_text(self, teacher: str) -> str:
        return f"{self.root}/distilled/{teacher}/train.{self.recipe.target}"

    def distilled_scores(self, teacher: str) -> str:
        """The teacher's score of each line of the distilled text."""
        return f"{self.root}/distilled/{teacher}/train.scores.txt"

    def distilled_shard(self, teacher: str, shard: int | str, shards: int | str) -> str:
        return f"{self.root}/distilled/{teacher}/shards/{shard}-of-{shards}.jsonl"

    def translation(self, decode: Decode, seed: int | str, split: str) -> str:
        return f"{self.root}/translations/{decode.system}/seed-{seed}/{decode.name}/{split}.txt"

    def translation_details(self, decode: Decode, seed: int | str, split: str) -> str:
        """A JSON line for each translation: score, length, steps, subwords, text without repeated subwords."""
        return self.translation(decode, seed, split).removesuffix(".txt") + ".jsonl"

    def translation_shard(
        self, decode: Decode, seed: int | str, split: str, shard: int | str, shards: int | str
    ) -> str:
        """A part of a split's translations, where they are spread over jobs."""
        stem = self.translation(decode, seed, split).removesuffix(".txt")
        return f"{stem}.shards/{shard}-of-{shards}.jsonl"

    def translation_record(self, decode: Decode, seed: int | str, split: str) -> str:
        """What the translations were made from, and of how many shards."""
        return self.translation(decode, seed, split).removesuffix(".txt") + ".json"

    def chosen(self, decode: Decode, seed: int | str) -> str:
        """The settings that a decode chose on dev, and how each choice did."""
        return f"{self.root}/chosen/{decode.system}/seed-{seed}/{decode.name}.json"

    def quality(self, decode: Decode, seed: int | str, split: str) -> str:
        return f"{self.root}/quality/{decode.system}/seed-{seed}/{decode.name}/{split}.json"

    @property
    def speed(self) -> str:
        return f"results/{self.experiment}/speed.json"

    @property
    def significance(self) -> str:
        """p-values of every row against its baseline."""
        return f"results/{self.experiment}/significance.json"

    @property
    def traces(self) -> str:
        """Example sentences with their translation at every refinement step."""
        return f"results/{self.experiment}/analysis/traces.json"

    @property
    def report(self) -> str:
        return f"results/{self.experiment}/report"

    # What depends on what

    def system(self, name: str) -> System:
        return self.loaded.systems[name]

    def distillation_seed(self, teacher: str) -> int:
        settings = self.config.distillation.get(teacher)
        return settings.seed if settings and settings.seed is not None else self.config.seeds[0]

    def shards(self, teacher: str) -> int:
        settings = self.config.distillation.get(teacher)
        return settings.shards if settings else 1

    @property
    def texts(self) -> list[str]:
        """Training texts that systems use, without repeats."""
        return list(dict.fromkeys(system.data for system in self.loaded.systems.values()))

    def target_text(self, text: str) -> str:
        """Path of the target side of a training text."""
        if text == "raw":
            return self.corpus("train", "target")
        if text.startswith("distilled-by-"):
            return self.distilled_text(text.removeprefix("distilled-by-"))
        return self.recipe.distilled[text]

    @property
    def rows(self) -> list[tuple[Decode, int, str]]:
        """Every (decode, seed, split) of the experiment."""
        return [
            (decode, seed, split)
            for decode in self.loaded.decodes
            for seed in self.config.seeds
            for split in decode.splits
        ]

    def systems_of(self, rule: str) -> list[str]:
        """Names of the systems that a training rule makes, in the order of the configuration."""
        return [name for name, system in self.loaded.systems.items() if system.family.rule == rule]

    @property
    def trained(self) -> list[tuple[str, int]]:
        """Every (system, seed) that is trained. What no decode uses, such as a model for pictures, has one seed."""
        systems = self.loaded.systems
        used: set[str] = set()
        waiting = list(self.exported)
        while waiting:
            name = waiting.pop()
            if name not in used:
                used.add(name)
                waiting += systems[name].built_on
        seeds = self.config.seeds
        return [(name, seed) for name in systems for seed in (seeds if name in used else seeds[:1])]

    @property
    def teachers(self) -> list[str]:
        """Systems whose translations are training data of others."""
        return list(dict.fromkeys(s.teacher for s in self.loaded.systems.values() if s.teacher))

    @property
    def exported_to_ctranslate2(self) -> list[str]:
        """Systems that some decode runs with CTranslate2."""
        return list(dict.fromkeys(d.system for d in self.loaded.decodes if d.engine == "ctranslate2"))

    def initial_weights(self, system: str, seed: int | str) -> str | None:
        """Weights that a system starts from: the user's file, those of `init_from` with the same seed, or none."""
        resolved = self.system(system)
        if resolved.initial_weights:
            return resolved.initial_weights
        return self.weights(resolved.init_from, seed) if resolved.init_from else None

    def own_files(self) -> list[str]:
        """Files of the user's that the dataset reads, as far as they exist: changed ones make the corpus anew.

        A missing one is left to the download stage, which says what to do.
        """
        languages = (self.recipe.source, self.recipe.target)
        files = self.loaded.dataset.own_files(languages, self.recipe.folder)
        return [file for file in files if os.path.exists(file)]

    @property
    def exported(self) -> list[str]:
        """Systems that decodes use, as what translates or as what ranks, without repeats."""
        decodes = self.loaded.decodes
        rescorers = [decode.settings.get("rescorer") for decode in decodes]
        return list(dict.fromkeys([*(decode.system for decode in decodes), *filter(None, rescorers)]))

    @property
    def tuned(self) -> list[tuple[Decode, int]]:
        """Decodes that choose settings on dev, with each seed."""
        return [(decode, seed) for decode in self.loaded.decodes if decode.tune for seed in self.config.seeds]

    def decode(self, system: str, name: str) -> Decode:
        return self._decodes[system, name]

    # Settings of rules: JSON, and only what changes the result

    def settings_download(self) -> str:
        return _json(
            self.loaded.dataset.model_dump(
                mode="json", exclude={"normalisation", "pairs", "licence", "citation", "homepage", "notes"}
            )
            | {"folder": self.recipe.folder}
        )

    def settings_normalise(self) -> str:
        return _json(
            {
                "source": self.recipe.source,
                "target": self.recipe.target,
                "limits": self.recipe.limits,
                "normalisation": self.loaded.normalisation.model_dump(mode="json"),
            }
        )

    def settings_subwords(self) -> str:
        return self.recipe.subwords.canonical()

    def settings_encode(self) -> str:
        return _json({"max_length": self.recipe.max_length})

    def settings_training(self, system: str) -> str:
        """Everything of one system that changes its weights, for the seed given beside it."""
        resolved = self.system(system)
        training = resolved.training.model_dump(mode="json", exclude={"save_every", "max_skipped"})
        if training["explode_factor"] is None:
            del training["explode_factor"]
        return _json(
            {
                "system": system,
                "family": resolved.family_name,
                "preset": resolved.preset,
                "data": resolved.data,
                "model": resolved.model.model_dump(mode="json"),
                "objective": resolved.objective.model_dump(mode="json"),
                "training": training,
            }
        )

    def distillation(self, teacher: str) -> DistillationConfig:
        return self.config.distillation.get(teacher) or DistillationConfig()

    def settings_distillation(self, teacher: str) -> str:
        """Search settings of a teacher; shards, batches and the engine are left out, because they change no output."""
        return _json(self.distillation(teacher).model_dump(mode="json", exclude={"shards", "seed", "batch", "engine"}))

    def settings_decode(self, decode: Decode) -> str:
        return _json(decode.settings)

    def settings_choose(self, decode: Decode) -> str:
        """What a decode chooses from, and which repetitions are removed before its translations are compared."""
        autoregressive = self.system(decode.system).family.autoregressive
        removal = "none" if autoregressive else self.config.report.remove_repetitions
        return _json({"settings": decode.settings, "tune": decode.tune, "remove_repetitions": removal})

    def settings_significance(self) -> str:
        """The translations of every test row by system, name and seed, and the rows that each is compared with."""
        rows = [(decode, seed) for decode, seed, split in self.rows if split == "test"]
        return _json(
            {
                "rows": [
                    {
                        "system": decode.system,
                        "name": decode.name,
                        "seed": seed,
                        "baseline": self._baseline(decode),
                        "delta": self._delta(decode),
                        "autoregressive": self.system(decode.system).family.autoregressive,
                        "translations": self.translation(decode, seed, "test"),
                        "details": self.translation_details(decode, seed, "test"),
                    }
                    for decode, seed in rows
                ]
            }
        )

    @cached_property
    def _priors(self) -> list[Decode]:
        """Prior means on test, computed by our own code."""
        decodes = self.loaded.decodes
        return [d for d in decodes if "test" in d.splits and (d.search, d.engine) == ("prior-mean", "continuum")]

    @cached_property
    def _beam(self) -> Decode | None:
        """The beam search on test that others are compared with: with beam 4, or else the largest; the teacher's."""
        beams = [d for d in self.loaded.decodes if "test" in d.splits and d.search == "beam"]
        return max(
            beams, key=lambda d: (d.settings["beam"] == 4, d.settings["beam"], d.system == "teacher"), default=None
        )

    def _baseline(self, decode: Decode) -> list[str] | None:
        """(system, name) of the row that a decode is compared with; None for a baseline itself.

        Refinement is compared with the prior mean of its model, latent search and the rest with the teacher's beam.
        """
        base = self.system(decode.system).base or decode.system
        wanted = None
        if decode.search in REFINEMENTS:
            priors = [d for d in self._priors if d.system == base]
            # Lengths chosen alike, where there is such a row: else refinement would get credit for them.
            alike = [d for d in priors if _lengths_by(d) == _lengths_by(decode)]
            wanted = next(iter(alike or priors), None)
        wanted = wanted or self._beam
        return None if wanted is None or wanted is decode else [wanted.system, wanted.name]

    def _delta(self, decode: Decode) -> list[str] | None:
        """(system, name) of the delta row on test that differs from a decode in nothing but what refines; or None.

        Steps, engine, step size, and how lengths and stopping are decided are the same in both.
        """
        base = self.system(decode.system).base
        if base is None:
            return None
        alike = decode.settings | ({"refinement": "delta"} if decode.search == LATENT_SEARCH else {"search": "delta"})
        rows = (d for d in self.loaded.decodes if d.system == base and "test" in d.splits)
        return next(([d.system, d.name] for d in rows if d.settings == alike and d.tune == decode.tune), None)

    def settings_bundle(self, system: str) -> str:
        """What an exported folder says about its system beside what the weights' own config.json says."""
        return _json({"system": system, "source": self.recipe.source, "target": self.recipe.target})

    def settings_analysis(self) -> str:
        """Every refining search once, with the most steps that any decode takes; the teacher with its largest beam."""
        searches: dict[tuple[str, str, float], int] = {}
        for decode in self.loaded.decodes:
            if decode.search in REFINEMENTS:
                key = (decode.system, decode.search, decode.settings["step_size"])
                searches[key] = max(searches.get(key, 0), decode.settings["steps"])
        teachers = [d for d in self.loaded.decodes if d.search in AUTOREGRESSIVE_SEARCHES and d.engine == "continuum"]
        teacher = max(teachers, key=lambda d: d.settings["beam"], default=None)
        return _json(
            {
                "examples": self.config.report.examples,
                "searches": [
                    {"system": system, "search": search, "step_size": size, "steps": steps}
                    for (system, search, size), steps in searches.items()
                ],
                "teacher": teacher and {"system": teacher.system} | teacher.settings,
            }
        )

    def settings_speed(self) -> str:
        return _json(
            {
                "speed": self.config.speed.model_dump(mode="json"),
                "rows": [
                    {"system": d.system, "name": d.name}
                    | d.settings
                    | ({"chosen": self.chosen(d, self.config.seeds[0])} if d.tune else {})
                    for d in self.loaded.decodes
                ],
            }
        )

    def settings_quality(self) -> str:
        """How a translation is scored; `generator` is set where the corpus can tell valid translations."""
        return _json(
            {
                "source": self.recipe.source,
                "target": self.recipe.target,
                "generator": self.loaded.dataset.generator or None,
            }
        )

    def settings_report(self) -> str:
        """The manifest of the report: every row with its files, every trained system with its training log."""
        systems = {
            name: {
                "family": s.family_name,
                "preset": s.preset,
                "data": s.data,
                "base": s.base,
                "init_from": s.init_from,
            }
            for name, s in self.loaded.systems.items()
        }
        rows = [
            {"system": d.system, "name": d.name, "seed": seed, "split": split, "quality": self.quality(d, seed, split)}
            | {"settings": d.settings}
            | ({"chosen": self.chosen(d, seed)} if d.tune else {})
            for d, seed, split in self.rows
        ]
        training = [
            {
                "system": name,
                "seed": seed,
                "log": f"{self.system_folder(name, seed)}/training.jsonl",
                "config": f"{self.system_folder(name, seed)}/config.json",
            }
            for name, seed in self.trained
        ]
        return _json(
            {
                "experiment": self.experiment,
                "description": self.config.description,
                "recipe": self.recipe.name,
                "dataset": self.loaded.dataset.name,
                "dataset_terms": self.loaded.dataset.model_dump(
                    mode="json", include={"licence", "citation", "homepage"}
                ),
                "source": self.recipe.source,
                "target": self.recipe.target,
                "report": self.config.report.model_dump(mode="json"),
                "systems": systems,
                "rows": rows,
                "training": training,
            }
        )


def _lengths_by(decode: Decode) -> list[Any]:
    """How a decode decides target lengths: its quantile and lengthening, and those it chooses from."""
    chosen_from = decode.tune or {}
    return [(decode.settings.get(name), chosen_from.get(name)) for name in ("length_quantile", "lengthening")]


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, ensure_ascii=False)
