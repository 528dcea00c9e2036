"""Inputs of rules by their names, as functions of a job's wildcards, and the files of targets."""

from __future__ import annotations

from functools import cached_property
from os.path import splitext
from typing import Any

from workflow_src.config.plan.analyses import PlannedAnalysis
from workflow_src.config.plan.graph import Graph
from workflow_src.config.plan.paths import BUNDLES
from workflow_src.config.plan.selection import main_split
from workflow_src.config.texts import RAW, system_behind
from workflow_src.spec import BASE

# Inputs of roles are named role_NAME, because a role may have the name of another input.
ROLE = "role_"
Files = dict[str, str | list[str]]


def records_of(texts: list[str]) -> list[str]:
    """The record beside each text, or shard of one."""
    return [f"{splitext(text)[0]}.json" for text in texts]


class Inputs(Graph):
    """Functions of wildcards that give inputs by name, for `unpack`, or files of one input."""

    def files_of_roles(self, systems: dict[str, str], seed: int | str) -> Files:
        """Weights of systems by role: `base`, and `role_NAME` for other roles of a family."""
        return {
            role if role == BASE else f"{ROLE}{role}": self.weights(system, seed) for role, system in systems.items()
        }

    def encode_inputs(self, wildcards: Any) -> Files:
        """Both sides of a split or of a training text.

        Where `max_length` is auto, the encoded raw pairs fix it for the other training texts (`measured`).
        """
        text, split = wildcards.text, wildcards.split
        if split != "train":
            return {"source": self.corpus(split, "source"), "target": self.corpus(split, "target")}
        inputs: Files = {"source": self.source_text(text), "target": self.target_text(text)}
        return inputs | ({"measured": f"{self.encoded(RAW, 'train')}.json"} if self.awaits_raw(text, split) else {})

    def training_inputs(self, wildcards: Any) -> Files:
        """Inputs of every training: texts, references, and weights of the systems that it builds on."""
        system = self.system(wildcards.system)
        inputs: Files = {
            "train": [f"{self.encoded(text, 'train')}.json" for text in system.texts],
            "dev": f"{self.encoded(RAW, 'dev')}.json",
            "subwords": self.files.subwords,
            # A reversed system translates into sources.
            "reference": self.corpus("dev", "source") if system.reversed else self.reference("dev"),
            "corpus_summary": self.files.corpus_summary,
        }
        # Beside the summary: the text of placeholders, which outputs get back before they are scored.
        if self.recipe.placeholders:
            inputs["source"] = self.corpus("dev", "source")
        initial = self.initial_weights(system.name, wildcards.seed)
        return inputs | self.files_of_roles(system.filled, wildcards.seed) | ({"initial": initial} if initial else {})

    def decode_of(self, wildcards: Any) -> Any:
        return self.decode(wildcards.system, wildcards.search)

    def search_inputs(self, wildcards: Any) -> Files:
        """Bundles of the systems that a decode works with beside its own, by role, such as the one that ranks."""
        by_role = self.decode_of(wildcards).others
        return {role: self.exported_file(system, wildcards.seed) for role, system in by_role.items()}

    def decode_inputs(self, wildcards: Any) -> Files:
        """The folder that a decode translates with, those of other systems, and its settings chosen on dev, if any."""
        decode = self.decode_of(wildcards)
        chosen = {"chosen": self.chosen(decode, wildcards.seed)} if decode.tune else {}
        return {
            "bundle": self.exported_file(decode.system, wildcards.seed, self.export_of(decode)),
            **self.search_inputs(wildcards),
            **chosen,
        }

    def joined_shards(self, wildcards: Any) -> list[str]:
        """The shards that a decode of a split joins; none where one job translates the whole."""
        return self.translation_shards(self.decode_of(wildcards), wildcards.seed, wildcards.split)

    def joined_records(self, wildcards: Any) -> list[str]:
        return records_of(self.joined_shards(wildcards))

    def figures_of_programs(self, wildcards: Any) -> list[str]:
        """Figures of a row's sentences that programs of metrics computed."""
        return self.computed_figures(self.decode_of(wildcards), wildcards.seed, wildcards.split)

    def distilled_inputs(self, wildcards: Any) -> Files:
        """The shards that a teacher's translations are joined from, and their records."""
        shards = self.distilled_shards(wildcards.teacher, wildcards.split)
        return {"shards": shards, "records": records_of(shards)}

    def scored_pairs(self, wildcards: Any) -> Files:
        """Scores of the training pairs; also by a reversed system, where pairs are scored in both directions."""
        shards = self.likelihood_shards(wildcards.system)
        inputs: Files = {"shards": shards, "records": records_of(shards)}
        if (backward := self.likelihood(wildcards.system).backward) is None:
            return inputs
        shards = self.likelihood_shards(backward)
        inputs |= {"backward_shards": shards, "backward_records": records_of(shards)}
        return inputs | {"backward_model": self.likelihood_weights(backward)}

    def bundle_inputs(self, wildcards: Any) -> Files:
        """The weights of a system, those of the systems that it is built on or carries."""
        system = self.system(wildcards.system)
        carried: Files = {f"{ROLE}{role}": self.weights(name, wildcards.seed) for role, name in system.carries.items()}
        return self.files_of_roles(system.served_with, wildcards.seed) | carried

    def finished_from(self, wildcards: Any) -> str | None:
        """The export that a finished bundle is made from, by the kind of its folder; None: the bundle."""
        return None if wildcards.kind == BUNDLES else wildcards.kind

    def finish_inputs(self, wildcards: Any) -> Files:
        """The exported folder, and the files with figures of its rows on dev."""
        export = self.finished_from(wildcards)
        rows = self.measured_on_dev(wildcards.system, export)
        return {
            "bundle": self.exported_file(wildcards.system, wildcards.seed, export),
            "dev": [file for row in rows for file in self.dev_figures(row, wildcards.seed).values()],
        }

    def analysis_inputs(self, analysis: PlannedAnalysis) -> Files:
        """The bundles that an analysis reads, the text of its split, and translations where it reads some."""
        inputs: Files = {
            "bundles": [self.exported_file(system, self.first_seed) for system in analysis.systems],
            "source": self.corpus(analysis.split, "source"),
            "target": self.corpus(analysis.split, "target"),
            "reference": self.reference(analysis.split),
        }
        return inputs | ({"details": list(analysis.reads)} if analysis.reads else {})

    def compared_rows(self, test_set: str) -> Files:
        """The translations of a test set, with their details and the figures that programs of metrics computed."""
        rows = [row for row in self.rows if row[2] == test_set]
        return {
            "translations": [self.translation(*row) for row in rows],
            "details": [self.translation_details(*row) for row in rows],
            "computed": [file for row in rows for file in self.computed_figures(*row)],
            "source": self.corpus(test_set, "source"),
            "reference": self.references(test_set),
        }

    @property
    def first_seed(self) -> int:
        """The seed that speed and examples are taken from."""
        return self.config.seeds[0]

    @cached_property
    def exported_bundles(self) -> list[str]:
        """The bundle of every decoded system, in the order of `exported`."""
        return [self.exported_file(system, self.first_seed) for system in self.exported]

    @cached_property
    def chosen_for_speed(self) -> dict[str, str]:
        """Files of the settings that speed is measured with where dev chose some, by SYSTEM/NAME of the row."""
        tuned = [decode for decode in self.loaded.decodes if decode.tune]
        return {f"{decode.system}/{decode.name}": self.chosen(decode, self.first_seed) for decode in tuned}

    @cached_property
    def exports(self) -> dict[str, list[str]]:
        """Folders that decodes of other engines read, by the engine's export, in the order of `exported_to`."""
        return {
            name: [self.exported_file(system, self.first_seed, name) for system in self.exported_to(name)]
            for name in self.export_names
        }

    @cached_property
    def finished_bundles(self) -> list[str]:
        """Bundles for users; jobs read the exported ones."""
        return [self.finished_file(*bundle) for bundle in self.finished]

    @cached_property
    def checked_test_sets(self) -> list[str]:
        """Encoded test sets: encoding refuses sentences that are too long to be translated.

        Targets ask for them, so that it does so before trainings, none of which has a test set as its input.
        """
        return [f"{self.encoded(RAW, name)}.json" for name in self.loaded.dataset.test_sets]

    @property
    def shown_split(self) -> str:
        """The split that tables are made of."""
        return main_split(self.loaded)

    @property
    def compared_sets(self) -> tuple[str, ...]:
        """Test sets whose rows are compared: all; the main one alone where no decode translates a test set."""
        return self.loaded.test_sets if self.shown_split != "dev" else self.loaded.test_sets[:1]

    @property
    def shown_translations(self) -> list[str]:
        """Translations of that split, and their details, of the first seed."""
        seed, split = self.first_seed, self.shown_split
        rows = [decode for decode in self.loaded.decodes if split in decode.splits]
        return [file(decode, seed, split) for decode in rows for file in (self.translation, self.translation_details)]

    @property
    def report_inputs(self) -> Files:
        """Everything measured, and the texts of the report's examples."""
        return {
            "quality": [self.quality(*row) for row in self.rows],
            "training": [self.training_files(*trained)["log"] for trained in self.trained],
            "configs": [self.training_files(*trained)["config"] for trained in self.trained],
            "chosen": [self.chosen(*row) for row in self.tuned],
            "significance": [self.significance(name) for name in self.compared_sets],
            "speed": self.files.speed,
            "traces": self.files.traces,
            "analyses": [analysis.path for analysis in self.analyses.values() if analysis.enabled],
            "corpus": self.files.corpus_summary,
            "monolingual": [self.files.monolingual_summary] if self.reads_monolingual else [],
            "encoded": [f"{self.encoded(text, 'train')}.json" for text in self.texts],
            "checked": self.checked_test_sets,
            "bundles": self.finished_bundles,
            "source": self.corpus(self.shown_split, "source"),
            "reference": self.reference(self.shown_split),
            "translations": self.shown_translations,
        }

    @cached_property
    def targets(self) -> dict[str, tuple[list[str], str]]:
        """Targets beside the rules `download` and `report`: their files, and a description."""
        imports = [self.exported_file(*bundle) for bundle in self.imports]
        # Systems that learn from a teacher's outputs are not teachers.
        teachers = [
            (system, seed)
            for system, seed in self.trained
            if self.system(system).family.autoregressive and not self.system(system).teachers
        ]
        # Texts that no system writes can be looked at before the first training.
        encoded = [(RAW, split) for split in self.loaded.held_out]
        encoded += [(text, "train") for text in self.encoded_texts if not system_behind(text)]
        files = {
            "normalised": ([self.files.corpus_summary], "normalised text of every split"),
            "subwords": ([self.files.subwords], "subword models"),
            "encoded": (
                [f"{self.encoded(*split)}.json" for split in encoded],
                "arrays of ids of every split, before any training",
            ),
        }
        checked = {
            "teachers": (
                [self.weights(*teacher) for teacher in teachers] + imports,
                "autoregressive systems that learn from no other's outputs",
            ),
            "distilled": (
                [self.distilled_text(*distilled) for distilled in self.distilled],
                "translations of the training source by teachers",
            ),
            "systems": ([self.weights(*trained) for trained in self.trained] + imports, "all trained systems"),
            "bundles": (self.finished_bundles, "a folder to translate with for every decoded system"),
            "chosen": ([self.chosen(*row) for row in self.tuned], "settings of searches that dev chooses"),
            "translations": ([self.translation(*row) for row in self.rows], "translations of every decode"),
            "quality": ([self.quality(*row) for row in self.rows], "scores of every decode"),
        }
        return files | {name: (files + self.checked_test_sets, words) for name, (files, words) in checked.items()}
