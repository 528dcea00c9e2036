"""Names of an experiment's files: the one place that names paths. All are relative to the working directory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from types import SimpleNamespace

from workflow_src.config.datasets import raw_names, reference_stem
from workflow_src.config.resolved import Decode, Loaded
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.registry import engines

# The folder of an experiment that has its finished bundles; those for engines that read files of their own are beside
# it, each in a folder named as the export.
BUNDLES = "bundles"

# Every file of an experiment, in the order of the flow. Rules have these patterns, with the names of recipe, experiment
# and languages filled in; `Paths` fills in the wildcards.
PATTERNS = {
    # The text of each split as downloaded, and once more with a train that has passed the filters.
    "raw_text": "results/{recipe}/raw/{split}.{language}",
    "raw_summary": "results/{recipe}/raw/raw.json",
    "raw_monolingual_summary": "results/{recipe}/raw/monolingual.json",
    "raw_scores": "results/{recipe}/raw/train.scores",
    "clean_text": "results/{recipe}/clean/{split}.{language}",
    "clean_summary": "results/{recipe}/clean/raw.json",
    "clean_monolingual_summary": "results/{recipe}/clean/monolingual.json",
    # Normalised; references of dev and test sets for scoring are neither tokenised nor lowercased.
    "text": "results/{recipe}/corpus/{split}.{language}",
    "source": "results/{recipe}/corpus/{split}.{source}",
    "target": "results/{recipe}/corpus/{split}.{target}",
    "reference": "results/{recipe}/corpus/{split}.reference.{target}",
    "corpus_summary": "results/{recipe}/corpus/corpus.json",
    "monolingual_summary": "results/{recipe}/corpus/monolingual.json",
    "subwords": "results/{recipe}/subwords/subwords.json",
    # Arrays of ids lie beside it.
    "encoded": "results/{recipe}/encoded/{text}/{split}.json",
    # A system; its training state is not declared by any rule, so that Snakemake never deletes it.
    "state": "work/{recipe}/{system}/seed-{seed}",
    "weights": "results/{recipe}/systems/{system}/seed-{seed}/model.safetensors",
    "config": "results/{recipe}/systems/{system}/seed-{seed}/config.json",
    "training": "results/{recipe}/systems/{system}/seed-{seed}/training.jsonl",
    # What is written last of the folder that decodes read, and of one for another engine.
    "bundle": "results/{recipe}/systems/{system}/seed-{seed}/bundle/bundle.json",
    "export": "results/{recipe}/systems/{system}/seed-{seed}/{export}/bundle.json",
    # A teacher's translations of the training source, or of text of the source language.
    "distilled_text": "results/{recipe}/distilled/{teacher}/{split}.{target}",
    "distilled_scores": "results/{recipe}/distilled/{teacher}/{split}.scores.txt",
    "distilled_shard": "results/{recipe}/distilled/{teacher}/{split}.shards/{shard}-of-{shards}.jsonl",
    # A system's scores of the training pairs, and the pairs that it finds likely.
    "likelihood_shard": "results/{recipe}/likelihood/{system}/train.shards/{shard}-of-{shards}.jsonl",
    "likely": "results/{recipe}/encoded/likely-by-{system}/train.json",
    # Decodes; {search} is the name of a decode's files.
    "chosen": "results/{recipe}/chosen/{system}/seed-{seed}/{search}.json",
    "translation": "results/{recipe}/translations/{system}/seed-{seed}/{search}/{split}.txt",
    "translation_details": "results/{recipe}/translations/{system}/seed-{seed}/{search}/{split}.jsonl",
    "translation_shard": (
        "results/{recipe}/translations/{system}/seed-{seed}/{search}/{split}.shards/{shard}-of-{shards}.jsonl"
    ),
    # What is the experiment's own.
    "computed": "results/{experiment}/computed/{metric}/{system}/seed-{seed}/{search}/{split}.json",
    "quality": "results/{experiment}/quality/{system}/seed-{seed}/{search}/{split}.json",
    "finished": "results/{experiment}/{kind}/{system}/seed-{seed}/bundle.json",
    "significance": "results/{experiment}/significance.json",
    "speed": "results/{experiment}/speed.json",
    "traces": "results/{experiment}/analysis/traces.json",
    "report": "results/{experiment}/report/index.html",
    # Figures that the program of a metric computed, of all experiments here; no rule declares it.
    "figure_cache": "work/computed/{metric}",
}


class _Known(dict[str, str]):
    """Names to fill in; others stay as wildcards."""

    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


class Files(SimpleNamespace):
    """`PATTERNS` by their names, as far as a configuration fills them in."""

    def __getattr__(self, name: str) -> str:
        raise AttributeError(name)


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
        recipe = self.recipe
        known = _Known(recipe=recipe.name, experiment=self.experiment, source=recipe.source, target=recipe.target)
        self.files = Files(**{name: pattern.format_map(known) for name, pattern in PATTERNS.items()})

    def raw(self, split: str, language: str) -> str:
        """Text of the dataset's parts under train, dev or a test set, as downloaded."""
        return self.files.raw_text.format(split=split, language=language)

    def cleaned(self, split: str, language: str) -> str:
        """The raw text once more, with a train that has passed the filters."""
        return self.files.clean_text.format(split=split, language=language)

    def to_normalise(self, split: str, language: str) -> str:
        """The text that is normalised: as downloaded, or cleaned where the recipe has filters."""
        filters = self.loaded.monolingual_cleaning if split == MONOLINGUAL else self.loaded.cleaning
        return (self.cleaned if filters else self.raw)(split, language)

    def raw_texts(self, place: Callable[[str, str], str]) -> list[str]:
        """Source, target and further references of every split of the dataset, as `raw` or `cleaned` name them."""
        languages, dataset = (self.recipe.source, self.recipe.target), self.loaded.dataset
        return [
            place(*name.rsplit(".", 1))
            for split in dataset.raw_splits
            for name in raw_names(split, languages, dataset.references(split, languages[1]))
        ]

    def corpus(self, split: str, side: str) -> str:
        return self.files.text.format(split=split, language=self.language(side))

    def language(self, side: str) -> str:
        """`source` or `target` as a language code; a code stays as it is."""
        return {"source": self.recipe.source, "target": self.recipe.target}.get(side, side)

    def reference(self, split: str) -> str:
        """Target side of dev or of a test set for scoring: clean Unicode, but neither tokenised nor lowercased.

        Where a source has several references, the first one.
        """
        return self.files.reference.format(split=split)

    def references(self, split: str) -> list[str]:
        count = self.loaded.dataset.references(split, self.recipe.target)
        further = (self.corpus(reference_stem(split, number), "target") for number in range(2, 1 + count))
        return [self.reference(split), *further]

    @property
    def subwords(self) -> str:
        """Folder of the subword models; `subwords.json` inside it describes them."""
        return self.files.subwords.removesuffix("/subwords.json")

    def encoded(self, text: str, split: str) -> str:
        """Prefix of an encoded split: `.json` describes it, `.source.bin`, `.target.bin` and offsets hold it."""
        # Dev and test sets are the same for all training texts.
        text = "raw" if split in self.loaded.held_out else text
        return self.files.encoded.format(text=text, split=split).removesuffix(".json")

    def training_files(self, system: str, seed: int | str) -> dict[str, str]:
        """What a training writes beside its weights: `config`, their description, and `log`, of its course."""
        patterns = {"config": self.files.config, "log": self.files.training}
        return {name: pattern.format(system=system, seed=seed) for name, pattern in patterns.items()}

    def weights(self, system: str, seed: int | str) -> str:
        return self.files.weights.format(system=system, seed=seed)

    def finished_bundle(self, system: str, seed: int | str, export: str | None = None) -> str:
        """The user's folder of a system: a bundle, or the `export` of an engine; with the search that dev chose.

        It belongs to the experiment: other experiments of the recipe may decode other rows on dev.
        """
        return self.finished_file(system, seed, export).removesuffix("/bundle.json")

    def finished_file(self, system: str, seed: int | str, export: str | None = None) -> str:
        """The file of a finished bundle that is written last."""
        return self.files.finished.format(kind=export or BUNDLES, system=system, seed=seed)

    def exported_file(self, system: str, seed: int | str, export: str | None = None) -> str:
        """The file that is written last of an exported folder: of the bundle, or of that for another engine.

        Jobs of all experiments of the recipe read these; users get finished ones.
        """
        return (self.files.export if export else self.files.bundle).format(export=export, system=system, seed=seed)

    def export_of(self, decode: Decode) -> str | None:
        """The export that the engine of a decode reads; None where it reads the bundle, as of models made elsewhere."""
        imported = self.loaded.systems[decode.system].family.imported
        return None if imported else engines()[decode.engine].exports

    def state_folder(self, system: str, seed: int | str) -> str:
        """Training state; no rule declares it, so that Snakemake never deletes it."""
        return self.files.state.format(system=system, seed=seed)

    def distilled_text(self, teacher: str, split: str = "train") -> str:
        """A teacher's translations of the training source, or of text of the source language (`monolingual`)."""
        return self.files.distilled_text.format(teacher=teacher, split=split)

    def folder(self, decode: Decode) -> str:
        """The name of a decode's files: of two experiments that choose differently, each has files of its own."""
        chosen_by = self.loaded.chosen_by(decode)
        if not chosen_by:
            return decode.name
        digest = hashlib.sha256(json.dumps(chosen_by, sort_keys=True).encode()).hexdigest()
        return f"{decode.name}-{digest[:8]}"

    def _of_row(self, pattern: str, decode: Decode, seed: int | str, **wildcards: int | str) -> str:
        return pattern.format(system=decode.system, seed=seed, search=self.folder(decode), **wildcards)

    def translation(self, decode: Decode, seed: int | str, split: str) -> str:
        return self._of_row(self.files.translation, decode, seed, split=split)

    def translation_details(self, decode: Decode, seed: int | str, split: str) -> str:
        """A JSON line for each translation: score, length, steps, subwords, text without repeated subwords."""
        return self._of_row(self.files.translation_details, decode, seed, split=split)

    def translation_shards(self, decode: Decode, seed: int | str, split: str) -> list[str]:
        """The shards that a split's translations are joined from; none where one job translates the whole."""
        count = decode.shards if decode.shards > 1 else 0
        pattern = self.files.translation_shard
        return [self._of_row(pattern, decode, seed, split=split, shard=shard, shards=count) for shard in range(count)]

    def chosen(self, decode: Decode, seed: int | str) -> str:
        """The settings that a decode chose on dev, and how each choice did."""
        return self._of_row(self.files.chosen, decode, seed)

    def quality(self, decode: Decode, seed: int | str, split: str) -> str:
        """A row's scores, by the metrics of the experiment."""
        return self._of_row(self.files.quality, decode, seed, split=split)

    def computed(self, metric: str, decode: Decode, seed: int | str, split: str) -> str:
        """Figures of the sentences of a row, as the program of a metric computed them."""
        return self._of_row(self.files.computed, decode, seed, split=split, metric=metric)

    def figure_cache(self, metric: str) -> str:
        """Figures that the program of a metric computed, of all experiments here; no rule declares it."""
        return self.files.figure_cache.format(metric=metric)

    def of_test_set(self, file: str, split: str) -> str:
        """A file of the experiment that is measured on each test set: as it is of the main one, else with its name."""
        stem, _, ending = file.rpartition(".")
        return file if split == self.test else f"{stem}-{split}.{ending}"

    def rule_on(self, rule: str, split: str) -> str:
        """The name of the rule that measures a test set: as it is for the main one, else with the set's name."""
        return rule if split == self.test else f"{rule}_on_{split}"

    def significance(self, split: str) -> str:
        """p-values of every row against its baseline, on a test set."""
        return self.of_test_set(self.files.significance, split)

    @property
    def report(self) -> str:
        return self.files.report.removesuffix("/index.html")
