"""The user's texts before anything runs: `check` reads them whole, `clean` and `estimate` read their first pairs."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workflow_src.config.languages import scripts_of_sides
from workflow_src.config.plan import Plan
from workflow_src.config.preparation import NormalisationConfig, SubwordsConfig
from workflow_src.config.resolved import Loaded
from workflow_src.config.sizes import AUTO
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.data.characters import letters, letters_outside
from workflow_src.data.corpus import RawCorpus, RawPair
from workflow_src.data.download import DOWNLOADS, mirror_folders, present
from workflow_src.data.learn_subwords import character_count
from workflow_src.data.lines import read_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.errors import ArtifactError, ConfigError, InputError

if TYPE_CHECKING:
    from workflow_src.data.subwords import Subwords


# Pairs of each split that are looked at for signs of tokenisation and letters of other scripts.
FIRST_PAIRS = 2000
# The share of these letters beyond which a text is of another language.
MOST_OUTSIDE = 0.5


def corpus_of(loaded: Loaded) -> RawCorpus:
    """The raw pairs of a dataset's files on this machine: the user's, those of mirrors, and downloads."""
    recipe, dataset = loaded.config.recipe, loaded.dataset
    mirrors = mirror_folders(list(loaded.config.mirrors))

    def locate(name: str) -> Path:
        path = present(dataset.files[name], DOWNLOADS, mirrors)
        if path is None:
            raise ArtifactError(
                f"file {name} of dataset {dataset.name}",
                f"is neither in {DOWNLOADS} nor in a mirror",
                "fetch it by the target download of snakemake",
            )
        return path

    return RawCorpus(dataset, (recipe.source, recipe.target), locate, recipe.folder)


def first_pairs(loaded: Loaded, count: int) -> tuple[list[RawPair], bool]:
    """The first training pairs, as many of each part of train, `count` in all; and whether the parts have more.

    What a short part lacks is taken from the parts after it. Raises ArtifactError where a file is not on this machine.
    """
    pairs: list[RawPair] = []
    has_more = False
    with corpus_of(loaded) as corpus:
        if loaded.dataset.kind == "generated":
            parts = [iter(pairs_of) for split, pairs_of in corpus.parts() if split == "train"]
        else:
            parts = [corpus.part("train", number) for number in range(len(loaded.dataset.train))]
        for number, part in enumerate(parts):
            share = -(-(count - len(pairs)) // (len(parts) - number))
            pairs += itertools.islice(part, share)
            has_more |= next(part, None) is not None
    return pairs, has_more


def own_parts(plan: Plan, split: str) -> list[int]:
    """Numbers of the parts of a split, or of the monolingual text, that lie in the user's own files."""
    dataset, languages = plan.loaded.dataset, (plan.recipe.source, plan.recipe.target)
    parts = plan.recipe.monolingual if split == MONOLINGUAL else dataset.parts[split]
    return [number for number, part in enumerate(parts) if not dataset.files.keys() & set(part.files(languages))]


def own_text_counts(plan: Plan) -> dict[str, int]:
    """Read the user's own texts as the jobs will, to the end; returns pairs by split, and lines by other texts' names.

    Raises ArtifactError for one that is not UTF-8, of another format, or of another number of lines than its other
    side.
    """
    dataset = plan.loaded.dataset
    counts: dict[str, int] = {}
    with corpus_of(plan.loaded) as corpus:
        for split in dataset.parts:
            if own := own_parts(plan, split):
                counts[split] = sum(1 for number in own for _ in corpus.part(split, number))
    if plan.reads_monolingual:
        with RawCorpus(plan.monolingual_files, (plan.recipe.source,), Path) as corpus:
            for number in own_parts(plan, MONOLINGUAL):
                text = plan.monolingual_texts[number]
                counts[text] = sum(1 for _ in corpus.part(MONOLINGUAL, number))
    for path in plan.own_distilled.values():
        counts[path] = sum(1 for _ in read_lines(path, own=True))
    return counts


def first_texts(plan: Plan) -> list[tuple[str, str, list[str]]]:
    """(split, language, lines) of both sides of the first pairs of the user's own texts, as ordinary text."""
    recipe = plan.recipe
    languages = recipe.source, recipe.target
    normalisers = [Normaliser(NormalisationConfig(), code, tokenised=recipe.tokenised.get(code)) for code in languages]
    texts = []
    with corpus_of(plan.loaded) as corpus:
        for split in plan.loaded.dataset.parts:
            own = (corpus.part(split, number) for number in own_parts(plan, split))
            pairs = list(itertools.islice(itertools.chain.from_iterable(own), FIRST_PAIRS))
            for side, column in zip(normalisers, ("first", "second"), strict=True):
                texts.append((split, side.language, [side.ordinary(getattr(pair, column)) for pair in pairs]))
    return texts


def in_other_scripts(plan: Plan, texts: Iterable[tuple[str, str, list[str]]]) -> list[str]:
    """Those of the texts (split, language, lines) most of whose letters are of other scripts than their language.

    Each is named with the share of these letters. A language whose script is not known is in any.
    """
    languages = plan.recipe.source, plan.recipe.target
    stated: dict[str, Sequence[str]] = {}
    for settings in plan.loaded.cleaning.values():
        stated |= getattr(settings, "scripts", {})
    known = dict(zip(languages, scripts_of_sides(languages, stated), strict=True))
    named = []
    for split, language, lines in texts:
        if (names := known[language]) is None:
            continue
        outside = sum(map(letters_outside(names), lines))
        everything = sum(map(letters, lines))
        if outside > MOST_OUTSIDE * everything:
            named.append(f"{language} in {split} ({outside / everything:.0%})")
    return named


def characters(plan: Plan, pairs: Iterable[tuple[str, str]]) -> int:
    """Distinct characters of sampled pairs that a vocabulary has: of both sides, or of the side with more of them.

    They matter where the size of the vocabulary is auto; 0 elsewhere.
    """
    settings = plan.recipe.subwords
    if settings.vocabulary_size != AUTO:
        return 0
    sides = list(zip(*pairs, strict=True))
    texts: Sequence[Iterable[str]] = [itertools.chain(*sides)] if settings.joint else sides
    return max((character_count(lines, settings.character_coverage) for lines in texts), default=0)


def subword_lengths(
    plan: Plan, pairs: Sequence[tuple[str, str]], pair_count: int, distinct_characters: int
) -> list[tuple[int, int]]:
    """Subwords of both sides of sampled pairs of a training text of `pair_count` pairs; the sample has so many
    `distinct_characters`.

    The vocabulary is that of the recipe where it has one, else one of its size that is learnt from the sample. Raises
    InputError where there is none of these, and where no pair has text on both sides.
    """
    # The library is slow to import.
    from workflow_src.data.subwords import Subwords, learn

    if not pairs:
        raise InputError("the training text", "has no pair with text on both sides", "give one that has some")
    folder = plan.recipe.subwords_from
    if folder is not None:
        return _lengths(Subwords.load(folder), pairs)
    settings = plan.recipe.subwords
    with tempfile.TemporaryDirectory() as name:
        source, target = (Path(name) / side for side in ("source", "target"))
        for file, lines in zip((source, target), zip(*pairs, strict=True), strict=True):
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

        def learnt(settings: SubwordsConfig) -> Subwords:
            kinds = plan.recipe.placeholders
            return learn(settings, source, target, Path(name) / "subwords", placeholders=kinds)

        try:
            return _lengths(learnt(settings.sized(pair_count, distinct_characters)), pairs)
        except ConfigError:
            # A sample may have fewer subwords than its text.
            return _lengths(learnt(settings.model_copy(update={"vocabulary_size": AUTO})), pairs)


def _lengths(subwords: Subwords, pairs: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    sources, targets = zip(*pairs, strict=True)
    return [(len(source), len(target)) for source, target in subwords.encode_pairs(sources, targets)]
