"""Names of an experiment's files: the one place that names paths. All are relative to the working directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

from workflow_src.config.datasets import raw_names, reference_stem
from workflow_src.config.resolved import Decode, Loaded
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.registry import engines

# The folder of an experiment that has its finished bundles; those for engines that read files of their own are beside
# it, each in a folder named as the export.
BUNDLES = "bundles"


class Paths:
    """Files of a checked configuration, in the order of the flow."""

    def __init__(self, loaded: Loaded):
        self.loaded = loaded
        self.config = loaded.config
        self.experiment = loaded.config.experiment
        self.recipe = loaded.config.recipe
        self.root = f"results/{self.recipe.name}"
        # The main one. Decodes of test have all of them.
        self.test = loaded.test_sets[0]

    def raw(self, split: str, language: str) -> str:
        """Text of the dataset's parts under train, dev or a test set, as downloaded."""
        return f"{self.root}/raw/{split}.{language}"

    @property
    def scores(self) -> str:
        """Scores of the training pairs, line by line, where a filter reads them."""
        return f"{self.root}/raw/train.scores"

    def cleaned(self, split: str, language: str) -> str:
        """The raw text once more, with a train that has passed the filters."""
        return f"{self.root}/clean/{split}.{language}"

    def to_normalise(self, split: str, language: str) -> str:
        """The text that is normalised: as downloaded, or cleaned where the recipe has filters."""
        return (self.cleaned if self.loaded.cleaning else self.raw)(split, language)

    def raw_texts(self, place: Callable[[str, str], str]) -> list[str]:
        """Source, target and further references of every split of the dataset, as `raw` or `cleaned` name them."""
        languages, dataset = (self.recipe.source, self.recipe.target), self.loaded.dataset
        return [
            place(*name.rsplit(".", 1))
            for split in dataset.raw_splits
            for name in raw_names(split, languages, dataset.references(split, languages[1]))
        ]

    def corpus(self, split: str, side: str) -> str:
        return f"{self.root}/corpus/{split}.{self.language(side)}"

    def language(self, side: str) -> str:
        """`source` or `target` as a language code; a code stays as it is."""
        return {"source": self.recipe.source, "target": self.recipe.target}.get(side, side)

    def reference(self, split: str) -> str:
        """Target side of dev or of a test set for scoring: clean Unicode, but neither tokenised nor lowercased.

        Where a source has several references, the first one.
        """
        return f"{self.root}/corpus/{split}.reference.{self.recipe.target}"

    def references(self, split: str) -> list[str]:
        """The files of all references of dev or of a test set."""
        count = self.loaded.dataset.references(split, self.recipe.target)
        further = (self.corpus(reference_stem(split, number), "target") for number in range(2, 1 + count))
        return [self.reference(split), *further]

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
        return f"{self.root}/encoded/{'raw' if split in self.loaded.held_out else text}/{split}"

    def system_folder(self, system: str, seed: int | str) -> str:
        return f"{self.root}/systems/{system}/seed-{seed}"

    def training_files(self, system: str, seed: int | str) -> dict[str, str]:
        """What a training writes beside its weights: `config`, their description, and `log`, of its course."""
        folder = self.system_folder(system, seed)
        return {"config": f"{folder}/config.json", "log": f"{folder}/training.jsonl"}

    def weights(self, system: str, seed: int | str) -> str:
        return f"{self.system_folder(system, seed)}/model.safetensors"

    def bundle(self, system: str, seed: int | str) -> str:
        """The exported folder that jobs of all experiments of the recipe read; users get those of `finished_bundle`."""
        return f"{self.system_folder(system, seed)}/bundle"

    def bundle_file(self, system: str, seed: int | str) -> str:
        """The file of a bundle that is written last."""
        return f"{self.bundle(system, seed)}/bundle.json"

    def export_file(self, export: str, system: str, seed: int | str) -> str:
        """The file that is written last of a folder for an engine that reads one of its own."""
        return f"{self.system_folder(system, seed)}/{export}/bundle.json"

    def finished_bundle(self, system: str, seed: int | str, export: str | None = None) -> str:
        """The user's folder of a system: a bundle, or the `export` of an engine; with the search that dev chose.

        It belongs to the experiment: other experiments of the recipe may decode other rows on dev.
        """
        return f"results/{self.experiment}/{export or BUNDLES}/{system}/seed-{seed}"

    def finished_file(self, system: str, seed: int | str, export: str | None = None) -> str:
        """The file of a finished bundle that is written last."""
        return f"{self.finished_bundle(system, seed, export)}/bundle.json"

    def exported_file(self, system: str, seed: int | str, export: str | None = None) -> str:
        """The last file of the folder that a finished bundle is made from."""
        return self.export_file(export, system, seed) if export else self.bundle_file(system, seed)

    def export_of(self, decode: Decode) -> str | None:
        """The export that the engine of a decode reads; None where it reads the bundle, as of models made elsewhere."""
        imported = self.loaded.systems[decode.system].family.imported
        return None if imported else engines()[decode.engine].exports

    def decoded_with(self, decode: Decode, seed: int | str) -> str:
        """The last file of the folder that a decode translates with."""
        return self.exported_file(decode.system, seed, self.export_of(decode))

    def state_folder(self, system: str, seed: int | str) -> str:
        """Training state; no rule declares it, so that Snakemake never deletes it."""
        return f"work/{self.recipe.name}/{system}/seed-{seed}"

    @property
    def monolingual_summary(self) -> str:
        """Counts of the normalised text of the source language."""
        return f"{self.root}/corpus/{MONOLINGUAL}.json"

    def distilled_text(self, teacher: str, split: str = "train") -> str:
        """A teacher's translations of the training source, or of text of the source language (`monolingual`)."""
        return f"{self.root}/distilled/{teacher}/{split}.{self.recipe.target}"

    def distilled_scores(self, teacher: str, split: str = "train") -> str:
        """The teacher's score of each line of the distilled text."""
        return f"{self.root}/distilled/{teacher}/{split}.scores.txt"

    def distilled_shard(self, teacher: str, split: str, shard: int | str, shards: int | str) -> str:
        return f"{self.root}/distilled/{teacher}/{split}.shards/{shard}-of-{shards}.jsonl"

    def likelihood_shard(self, system: str, shard: int | str, shards: int | str) -> str:
        """A part of a system's scores of the training pairs."""
        return f"{self.root}/likelihood/{system}/train.shards/{shard}-of-{shards}.jsonl"

    def folder(self, decode: Decode) -> str:
        """The name of a decode's files. What dev chose depends on what it is chosen by, which experiments may set.

        Two experiments that choose differently have files of their own.
        """
        chosen_by = self.loaded.chosen_by(decode)
        if not chosen_by:
            return decode.name
        digest = hashlib.sha256(json.dumps(chosen_by, sort_keys=True).encode()).hexdigest()
        return f"{decode.name}-{digest[:8]}"

    def translation(self, decode: Decode, seed: int | str, split: str) -> str:
        return f"{self.root}/translations/{decode.system}/seed-{seed}/{self.folder(decode)}/{split}.txt"

    def translation_details(self, decode: Decode, seed: int | str, split: str) -> str:
        """A JSON line for each translation: score, length, steps, subwords, text without repeated subwords."""
        return self.translation(decode, seed, split).removesuffix(".txt") + ".jsonl"

    def translation_shard(
        self, decode: Decode, seed: int | str, split: str, shard: int | str, shards: int | str
    ) -> str:
        """A part of a split's translations, where they are spread over jobs."""
        stem = self.translation(decode, seed, split).removesuffix(".txt")
        return f"{stem}.shards/{shard}-of-{shards}.jsonl"

    def translation_shards(self, decode: Decode, seed: int | str, split: str) -> list[str]:
        """The shards that a split's translations are joined from; none where one job translates the whole."""
        count = decode.shards if decode.shards > 1 else 0
        return [self.translation_shard(decode, seed, split, shard, count) for shard in range(count)]

    def chosen(self, decode: Decode, seed: int | str) -> str:
        """The settings that a decode chose on dev, and how each choice did."""
        return f"{self.root}/chosen/{decode.system}/seed-{seed}/{self.folder(decode)}.json"

    def quality(self, decode: Decode, seed: int | str, split: str) -> str:
        """A row's scores, by the metrics of the experiment."""
        return f"results/{self.experiment}/quality/{decode.system}/seed-{seed}/{self.folder(decode)}/{split}.json"

    def computed(self, metric: str, decode: Decode, seed: int | str, split: str) -> str:
        """Figures of the sentences of a row, as the program of a metric computed them."""
        folder = f"results/{self.experiment}/computed/{metric}/{decode.system}/seed-{seed}"
        return f"{folder}/{self.folder(decode)}/{split}.json"

    def figure_cache(self, metric: str) -> str:
        """Figures that the program of a metric computed, of all experiments here; no rule declares it."""
        return f"work/computed/{metric}"

    @property
    def speed(self) -> str:
        return f"results/{self.experiment}/speed.json"

    def of_test_set(self, file: str, split: str) -> str:
        """A file of the experiment that is measured on each test set: as it is of the main one, else with its name."""
        stem, _, ending = file.rpartition(".")
        return file if split == self.test else f"{stem}-{split}.{ending}"

    def rule_on(self, rule: str, split: str) -> str:
        """The name of the rule that measures a test set: as it is for the main one, else with the set's name."""
        return rule if split == self.test else f"{rule}_on_{split}"

    def significance(self, split: str) -> str:
        """p-values of every row against its baseline, on a test set."""
        return self.of_test_set(f"results/{self.experiment}/significance.json", split)

    @property
    def traces(self) -> str:
        """Example sentences with their translation at every refinement step."""
        return f"results/{self.experiment}/analysis/traces.json"

    @property
    def report(self) -> str:
        return f"results/{self.experiment}/report"
