"""Dependencies between systems, decodes and files of an experiment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from workflow_src.config.datasets import RawText
from workflow_src.config.experiment import DistillationConfig, LikelihoodConfig
from workflow_src.config.plan.analyses import analyses
from workflow_src.config.plan.comparisons import Comparisons
from workflow_src.config.plan.grids import grids
from workflow_src.config.plan.paths import BUNDLES, Paths
from workflow_src.config.relations import with_needed
from workflow_src.config.resolved import Decode, Loaded, System
from workflow_src.config.sizes import AUTO
from workflow_src.config.texts import DISTILLED, LIKELY, MONOLINGUAL, RAW, base_of, kind_and_system
from workflow_src.config.training import AugmentConfig
from workflow_src.errors import ConfigError
from workflow_src.registry import engines, metrics
from workflow_src.spec import Frozen

# The split that a teacher translates for a kind of text.
SPLITS_OF = {DISTILLED: "train", MONOLINGUAL: MONOLINGUAL}

# Files of a system, and of one of its decodes.
OF_A_SYSTEM = re.compile(
    rf"/(?:systems|{BUNDLES}|(?:translations|quality|chosen)(?=/[^/]+/seed-\d+/(?P<decode>[^/]+)))"
    r"/(?P<system>[^/]+)/seed-\d+/"
)


class Graph(Paths):
    """Systems, training texts, rows and their relations."""

    def __init__(self, loaded: Loaded):
        super().__init__(loaded)
        self.analyses = analyses(loaded)
        self.grids = grids(loaded)
        self.comparisons = Comparisons(loaded)
        # Rules read them several times a job, and an experiment may have thousands.
        self._decodes = {(decode.system, self.folder(decode)): decode for decode in loaded.decodes}

    def system(self, name: str) -> System:
        return self.loaded.systems[name]

    @property
    def longest(self) -> int:
        """Subwords of a sentence that every system can read, without its end symbol."""
        return self._longest_of(self.loaded.systems)

    def longest_encoded(self, text: str, split: str) -> int | None:
        """Subwords of a sentence of an encoded text at most, without its end symbol; None: any number.

        Where `max_length` is auto, trainings leave out what their models cannot read. Systems that score the raw pairs
        read all of them.
        """
        if split != "train" or self.recipe.max_length != AUTO:
            return self.longest
        return self._longest_of(self.scoring) if text == RAW and self.scoring else None

    def _longest_of(self, systems: Iterable[str]) -> int:
        # Models made elsewhere have subwords of their own.
        models = [self.system(name).model for name in systems if not self.system(name).family.imported]
        # Families that are counted, not trained by updates, read sentences of any length.
        return min((m.max_positions for m in models if hasattr(m, "max_positions")), default=2**31) - 1

    def _seed_of(self, section: DistillationConfig | LikelihoodConfig) -> int:
        return min(self.config.seeds) if section.seed is None else section.seed

    def distillation(self, teacher: str) -> DistillationConfig:
        return self.config.distillation.get(teacher) or DistillationConfig()

    def distillation_seed(self, teacher: str) -> int:
        return self._seed_of(self.distillation(teacher))

    def distilled_shards(self, teacher: str, split: str) -> list[str]:
        pattern, count = self.files.distilled_shard, self.distillation(teacher).shards
        return [pattern.format(teacher=teacher, split=split, shard=shard, shards=count) for shard in range(count)]

    @property
    def texts(self) -> list[str]:
        """Training texts that systems use, without repeats."""
        return list(dict.fromkeys(text for system in self.loaded.systems.values() for text in system.texts))

    @property
    def distilled(self) -> list[tuple[str, str]]:
        """(teacher, split) of all that teachers translate for training; the split is train or monolingual."""
        origins = dict.fromkeys(filter(None, map(kind_and_system, self.texts)))
        return [(system, SPLITS_OF[kind]) for kind, system in origins if kind in SPLITS_OF]

    @property
    def scorers(self) -> list[str]:
        """Systems whose scores decide which training pairs are likely."""
        origins = filter(None, map(kind_and_system, self.texts))
        return [system for kind, system in origins if kind == LIKELY]

    @property
    def encoded_texts(self) -> list[str]:
        """Training texts that are encoded: all but likely pairs, which are kept of the encoded raw ones."""
        texts = [text for text in self.texts if not ((origin := kind_and_system(text)) and origin.kind == LIKELY)]
        needs_raw = self.scorers or any(self.awaits_raw(text, "train") for text in texts)
        return [RAW, *texts] if needs_raw and RAW not in texts else texts

    def awaits_raw(self, text: str, split: str) -> bool:
        """Whether encoding a text needs the encoded raw pairs, which fix `max_length` where it is auto."""
        return split == "train" and text != RAW and self.recipe.max_length == AUTO

    @property
    def scoring(self) -> list[str]:
        """Systems that score the training pairs: `scorers` and their `backward` systems."""
        backward = [self.likelihood(system).backward for system in self.scorers]
        return list(dict.fromkeys([*self.scorers, *filter(None, backward)]))

    def likelihood(self, system: str) -> LikelihoodConfig:
        return self.config.likelihood.get(system) or LikelihoodConfig()

    def likelihood_seed(self, system: str) -> int:
        """The seed of the system that scores the training pairs."""
        return self._seed_of(self.likelihood(system))

    def likelihood_weights(self, system: str) -> str:
        return self.weights(system, self.likelihood_seed(system))

    def likelihood_shards(self, system: str) -> list[str]:
        pattern, count = self.files.likelihood_shard, self.likelihood(system).shards
        return [pattern.format(system=system, shard=shard, shards=count) for shard in range(count)]

    @property
    def augmentations(self) -> dict[str, AugmentConfig]:
        """How training pairs are changed, by the names of augmented texts."""
        systems = self.loaded.systems.values()
        return {text: system.training.augment for system in systems if system.training.augment for text in system.texts}

    @property
    def reads_monolingual(self) -> bool:
        """True where a system learns from text of the source language."""
        return any(split == MONOLINGUAL for _, split in self.distilled)

    @property
    def monolingual_texts(self) -> list[str]:
        """Names of the texts of the source language, in the order of the recipe."""
        return [text for part in self.recipe.monolingual for text in part.names((self.recipe.source,))]

    @property
    def monolingual_files(self) -> RawText:
        """The texts of the source language, with those files of the dataset that they lie in."""
        dataset, parts = self.loaded.dataset, self.recipe.monolingual
        names = {name for part in parts for name in part.files((self.recipe.source,))}
        return RawText(
            name=dataset.name,
            languages=dataset.languages,
            files={name: file for name, file in dataset.files.items() if name in names},
            monolingual=tuple(part.only(self.recipe.source) for part in parts),
        )

    def source_text(self, text: str) -> str:
        """Path of the source side of a training text, before it is augmented."""
        origin = kind_and_system(text)
        return self.corpus(SPLITS_OF[origin.kind] if origin else "train", "source")

    def target_text(self, text: str) -> str:
        """Path of the target side of a training text, before it is augmented."""
        if origin := kind_and_system(text):
            return self.distilled_text(origin.system, SPLITS_OF[origin.kind])
        base = base_of(text)
        return self.corpus("train", "target") if base == RAW else self.recipe.distilled[base]

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
        return [name for name, system in self.loaded.systems.items() if system.family.training_rule == rule]

    @property
    def trained(self) -> list[tuple[str, int]]:
        """Every trained (system, seed).

        A system without decodes, such as a model for pictures, has one seed: that which scores pairs, or the first.
        """
        systems = self.loaded.systems
        needed = with_needed(self.exported, lambda name: systems[name].needs)
        trained = [name for name in systems if not systems[name].family.imported]
        seeds = {name: self.config.seeds if name in needed else [self.likelihood_seed(name)] for name in trained}
        return [(name, seed) for name in trained for seed in seeds[name]]

    @property
    def imported(self) -> list[str]:
        """Systems that were made elsewhere."""
        return [name for name, system in self.loaded.systems.items() if system.family.imported]

    @property
    def imports(self) -> list[tuple[str, int]]:
        """(system, seed) of every bundle of a system that was made elsewhere: it is the same for every seed."""
        decoded = [(name, seed) for name in self.imported if name in self.exported for seed in self.config.seeds]
        distilling = [(name, self.distillation_seed(name)) for name in self.imported if name in self.teachers]
        return list(dict.fromkeys([*decoded, *distilling]))

    def imported_files(self, system: str) -> dict[str, str]:
        """The user's files of a system that was made elsewhere, by their names in its bundle."""
        resolved = self.system(system)
        assert resolved.family.files, "the system was made elsewhere"
        return {name: str(path) for name, path in resolved.family.files(resolved.model).items()}

    def teacher_file(self, teacher: str) -> str:
        """The weights of a teacher; of one that was made elsewhere, the last file of its bundle."""
        seed = self.distillation_seed(teacher)
        return self.exported_file(teacher, seed) if teacher in self.imported else self.weights(teacher, seed)

    @property
    def teachers(self) -> list[str]:
        """Systems whose translations are training texts of others."""
        return list(dict.fromkeys(system for system, _ in self.distilled))

    @property
    def export_names(self) -> list[str]:
        """Names of what engines export (`Engine.exports`), whether decodes run with them or not."""
        return [engine.exports for engine in engines().values() if engine.exports]

    def exported_to(self, export: str) -> list[str]:
        """Systems that some decode runs with the engine that reads such folders (`Engine.exports`)."""
        return list(dict.fromkeys(d.system for d in self.loaded.decodes if self.export_of(d) == export))

    def initial_weights(self, system: str, seed: int | str) -> str | None:
        """Weights that a system starts from: the user's file, those of `init_from` with the same seed, or none."""
        resolved = self.system(system)
        if resolved.initial_weights:
            return resolved.initial_weights
        return self.weights(resolved.init_from, seed) if resolved.init_from else None

    def own_files(self) -> list[str]:
        """Files of the user's that the dataset reads: changed ones make the corpus anew."""
        languages = (self.recipe.source, self.recipe.target)
        return self.loaded.dataset.own_files(languages, self.recipe.folder)

    @property
    def own_monolingual(self) -> dict[str, str]:
        """Files of the user's with text of the source language, by setting. They count by their contents too."""
        source = self.recipe.source
        names = {
            f"recipe.monolingual[{number}].{part.setting(source)}": name
            for number, part in enumerate(self.recipe.monolingual)
            for name in part.files((source,))
        }
        return {setting: name for setting, name in names.items() if name not in self.loaded.dataset.files}

    @property
    def own_distilled(self) -> dict[str, str]:
        """Files of the user's own distilled texts that systems learn from, by their name."""
        names = dict.fromkeys(map(base_of, self.texts))
        return {text: self.recipe.distilled[text] for text in names if text in self.recipe.distilled}

    @property
    def program_settings(self) -> dict[str, Frozen]:
        """Settings of the metrics of the experiment that have a program, by name."""
        return {entry.metric.name: entry.settings for entry in self.loaded.metrics if entry.metric.program}

    def program_files(self, metric: str) -> dict[str, str]:
        """Files of the user's that a metric's program reads, by their settings; none where it is not measured."""
        program, settings = metrics()[metric].program, self.program_settings.get(metric)
        return dict(program.files(settings)) if program and settings else {}

    def computed_figures(self, decode: Decode, seed: int | str, split: str) -> list[str]:
        """Figures of a row's sentences by each metric with a program; none of dev where tables are of test."""
        tested = any(set(entry.splits) - {"dev"} for entry in self.loaded.decodes)
        programs = [] if split == "dev" and tested else self.program_settings
        return [self.computed(name, decode, seed, split) for name in programs]

    @property
    def own_subwords(self) -> list[str]:
        """The description of the subwords that the recipe takes from elsewhere, if it does."""
        return [f"{self.recipe.subwords_from}/subwords.json"] if self.recipe.subwords_from else []

    @property
    def own_inputs(self) -> list[tuple[str, str]]:
        """Files of the user's that are inputs of jobs, each behind the setting that names it.

        Texts of the dataset, and of the source language alone, are none: they count by their contents.
        """
        systems = self.loaded.systems.values()
        files = [(f"systems.{s.name}.initial_weights", s.initial_weights) for s in systems if s.initial_weights]
        files += [("recipe.subwords_from", path) for path in self.own_subwords]
        files += [(f"recipe.distilled.{name}", path) for name, path in self.own_distilled.items()]
        for metric in self.program_settings:
            files += [(f"{kind} of metrics.{metric}", path) for kind, path in self.program_files(metric).items()]
        for name in self.imported:
            files += [(f"systems.{name}.model", path) for path in self.imported_files(name).values()]
        return files

    @property
    def exported(self) -> list[str]:
        """Systems that decodes use, to translate or to rank, without repeats."""
        decodes = self.loaded.decodes
        ranking = [system for decode in decodes for system in decode.others.values()]
        return list(dict.fromkeys([*(decode.system for decode in decodes), *ranking]))

    @property
    def finished(self) -> list[tuple[str, int, str | None]]:
        """(system, seed, export) of every finished bundle; the export is None for bundles of our own."""
        systems = {None: self.exported} | {name: self.exported_to(name) for name in self.export_names}
        return [
            (system, seed, export) for export in systems for system in systems[export] for seed in self.config.seeds
        ]

    def measured_on_dev(self, system: str, export: str | None) -> list[Decode]:
        """Decodes that a finished bundle can repeat and whose BLEU on dev is known, in the order of the experiment.

        Their engine reads such folders, and they work with no other system than those that the bundle carries.
        """
        carries = self.system(system).carries
        return [
            decode
            for decode in self.loaded.decodes
            if decode.system == system
            and self.export_of(decode) == export
            and (decode.tune or "dev" in decode.splits)
            and all(carries.get(role) == other for role, other in decode.others.items())
        ]

    def dev_figures(self, decode: Decode, seed: int | str) -> dict[str, str]:
        """Files of a decode's results on dev: scores (`quality`), and the settings chosen (`chosen`)."""
        return {
            **({"quality": self.quality(decode, seed, "dev")} if "dev" in decode.splits else {}),
            **({"chosen": self.chosen(decode, seed)} if decode.tune else {}),
        }

    @property
    def tuned(self) -> list[tuple[Decode, int]]:
        """Decodes that choose settings on dev, with each seed."""
        return [(decode, seed) for decode in self.loaded.decodes if decode.tune for seed in self.config.seeds]

    def decode(self, system: str, name: str) -> Decode:
        """The decode of a system by the name of its files (`folder`). Raises ConfigError where there is none."""
        if (system, name) not in self._decodes:
            names = [folder for other, folder in self._decodes if other == system]
            raise ConfigError(f"decode of system {system}", name, allowed=names)
        return self._decodes[system, name]

    def check_target(self, target: str) -> None:
        """Check that a file that Snakemake is asked for is of a system and a decode of this experiment.

        Raises ConfigError. Names of rules, and files elsewhere, are Snakemake's to judge.
        """
        # Snakemake takes `./FILE` for FILE.
        target = os.path.normpath(target)
        if not target.startswith((f"{self.root}/", f"results/{self.experiment}/")):
            return
        match = OF_A_SYSTEM.search(target)
        if match is None:
            return
        if match["system"] not in self.loaded.systems:
            raise ConfigError(f"the system of {target}", match["system"], allowed=self.loaded.systems)
        if match["decode"]:
            self.decode(match["system"], match["decode"].removesuffix(".json"))
