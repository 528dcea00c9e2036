"""The corpus of a report: pairs of every split, and pairs left out between the dataset's files and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workflow_src.config.datasets import NthSplit
from workflow_src.data import augment, drops, placeholders, tokenised
from workflow_src.data.download import SUMS
from workflow_src.evaluation.document import Block, Cell, Fold, Heading, Paragraph, Table
from workflow_src.evaluation.manifest import Row
from workflow_src.evaluation.report.files import CorpusSummary, EncodedText
from workflow_src.evaluation.report.page import language


def table(corpus: CorpusSummary, monolingual: CorpusSummary | None, texts: Mapping[str, EncodedText]) -> Table | None:
    """Pairs, words and pairs left out of every split; None without splits.

    Pairs that splitting train leaves out count for train. Text of the source language, if any, and encoded training
    `texts` by name come last.
    """
    rows = []
    for split in sorted(corpus.pairs, key=lambda name: (name != "train", name != "dev")):
        rows.append(_row(split, f"{corpus.pairs[split]:,}", corpus, split))
    if monolingual:
        (split,) = monolingual.pairs
        lines = f"{monolingual.pairs[split]:,} of {monolingual.read[split]:,} lines"
        rows.append(_row(f"{split}, {language(monolingual.source)}", lines, monolingual, split))
    rows += [[f"trained on: {name}", "–", drops.words(text.dropped), f"{text.pairs:,}"] for name, text in texts.items()]
    return Table(["split", "words", "pairs left out", "pairs"], rows, left=3) if rows else None


def _row(title: str, count: str, counts: CorpusSummary, split: str) -> list[str]:
    words = counts.words.get(split, {})
    by_language = ", ".join(f"{words[code]:,} {code}" for code in sorted(words)) or "–"
    left_out = drops.words(counts.dropped.get(split, {}), counts.inline_elements.get(split, 0))
    return [title, by_language, left_out, count]


def warnings(
    corpus: CorpusSummary, texts: Mapping[str, EncodedText], unread: Mapping[str, int], test_sets: Sequence[str]
) -> list[str]:
    """Points for the summary: a notable share of training pairs that is left out, text that looks tokenised, and test
    pairs that are in train.

    `unread` has the training pairs, by system, that it has no positions for.
    """
    points = [
        f"Training text {name} lacks {100 * sum(unusable.values()) / text.read:.1f} % of its pairs, which are left out "
        f"in subwords: {drops.words(unusable)} (max_length is {text.max_length})."
        for name, text in texts.items()
        if drops.notable(unusable := text.unusable, text.read)
    ]
    most = max((text.pairs for text in texts.values()), default=0)
    points += [
        f"System {system} was trained without {count:,} pairs that are longer than its positions."
        for system, count in unread.items()
        if drops.notable({"unread": count}, most)
    ]
    fix = "Scores on them are too high for new text; recipe.held_out: remove leaves them out of train."
    points += filter(None, [tokenised.warning(corpus.looks_tokenised)])
    return points + [f"{words} {fix}" for split in test_sets if (words := repeated_words(corpus, split))]


def repeated_words(corpus: CorpusSummary, split: str) -> str:
    """A sentence about the pairs of a split that are in train too; "" without any."""
    count = corpus.found_in_train.get(split, {}).get("pair", 0)
    if not count:
        return ""
    return (
        f"{count:,} of the {corpus.pairs[split]:,} pairs of {split} ({100 * count / corpus.pairs[split]:.1f} %) are in "
        "train too, compared without case, punctuation and spaces."
    )


def cleaning(
    corpus: CorpusSummary,
    monolingual: CorpusSummary | None,
    texts: Mapping[str, EncodedText],
    languages: tuple[str, str],
) -> list[Block]:
    """Pairs that every filter left out and repaired, with shares, and examples; nothing without filters.

    Filters of the training text come first, then systems that selected likely pairs of encoded `texts`, then filters of
    text of the source language. `languages` are the codes of source and target.
    """
    steps = [(step.title, step) for step in corpus.cleaning]
    steps += [(text.likelihood.title, text.likelihood) for text in texts.values() if text.likelihood]
    steps += [(f"{step.title} (monolingual)", step) for step in (monolingual.cleaning if monolingual else ())]
    if not steps:
        return []
    rows = [
        [
            title,
            ", ".join(f"{reason} {count:,}" for reason, count in step.dropped.items()),
            f"{step.read:,}",
            _counted(sum(step.dropped.values()), step.read),
            _counted(step.repaired, step.read),
        ]
        for title, step in steps
    ]
    return [
        Heading("Cleaning"),
        Paragraph.of(
            "What each filter did with the pairs that those before it left. Examples are drawn from all that it left "
            "out or repaired."
        ),
        Table(["filter", "by setting", "pairs", "left out", "repaired"], rows, left=2),
        *(Fold(f"{title}: examples", [_examples(step.examples, languages)]) for title, step in steps if step.examples),
    ]


def _examples(examples: Sequence[Mapping[str, Any]], languages: tuple[str, str]) -> Table:
    """Pairs that a filter left out or repaired; a repaired side stands behind an arrow."""
    rows: list[list[str | Cell]] = []
    for example in examples:
        repaired = example.get("repaired")
        sides = [
            Cell(example[side] + (f" → {repaired[number]}" if repaired else ""), language=code)
            for number, (side, code) in enumerate(zip(("source", "target"), languages, strict=True))
        ]
        reason = ": ".join(filter(None, [example["reason"], example.get("cause")]))
        rows.append([str(example["line"]), reason, *sides])
    return Table(["line", "setting", "source", "target"], rows, left=4)


def downloads(corpus: CorpusSummary, monolingual: CorpusSummary | None) -> str:
    """The kind of checksum that was compared for each downloaded file; empty without downloads."""
    by_check: dict[str, list[str]] = {}
    for name, file in (corpus.downloads | (monolingual.downloads if monolingual else {})).items():
        by_check.setdefault(file.check, []).append(name)
    return "; ".join(
        f"{f'compared by {SUMS[check]}' if check in SUMS else 'not compared'}: {', '.join(names)}"
        for check, names in by_check.items()
    )


def _counted(count: int, read_pairs: int) -> str:
    """A number of pairs and its share of the pairs that a filter read."""
    return f"{count:,} ({100 * count / read_pairs:.2f} %)" if count else "–"


def sentences(
    corpus: CorpusSummary,
    texts: Mapping[str, EncodedText],
    mixtures: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> list[str]:
    """Sentences about the splits, their common sentences, pairs left out in encoding, and mixtures.

    `texts` are descriptions of encoded training texts by name, `mixtures` counts of each text by system.
    """
    return [
        *_split(corpus),
        *_shared(corpus),
        *_encoded(texts),
        *_replaced(texts),
        *_augmented(texts),
        *_mixed(mixtures),
    ]


def _split(corpus: CorpusSummary) -> list[str]:
    split = corpus.split
    if split is None:
        return []
    dropped = sum(corpus.dropped["train"].values())
    counts = f"Of {corpus.read['train']:,} pairs read, {dropped:,} are left out."
    if isinstance(split, NthSplit):
        return [f"Dev is every {ordinal(split.every)} pair of the text that train comes from. {counts}"]
    key_language = language(split.key_language or "")
    return [
        f"Train, dev and test are split from one text. {counts} One translation is kept of each sentence in "
        f"{key_language}. Pairs with a sentence in common form a group; dev and test have one pair "
        "each of as many groups, of which no other pair is used."
    ]


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 23rd."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number // 10 % 10 == 1 else endings.get(number % 10, 'th')}"


def _shared(corpus: CorpusSummary) -> list[str]:
    counted = corpus.found_in_train
    shared = [
        f"Of the {corpus.pairs[split]:,} pairs of {split}, {counts['source']:,} have a source that is also in "
        "train, "
        f"{counts['target']:,} a target, and {counts['pair']:,} both as one pair."
        for split, counts in sorted(counted.items())
        if any(counts.values())
    ]
    tests = "test" if len(counted) == 2 else "a test set"
    return shared or ([f"No sentence of dev or {tests} is in train, on either side."] if counted else [])


def _encoded(texts: Mapping[str, EncodedText]) -> list[str]:
    sentences = []
    for name, text in texts.items():
        # Likely pairs are chosen after pairs that are too long were left out.
        likelihood, in_subwords = text.likelihood, text.unusable
        pair_count = f"the {text.pairs:,} likeliest of {likelihood.read:,}" if likelihood else f"{text.pairs:,}"
        sentences.append(
            f"Training text {name} has {pair_count} pairs; left out {'before, ' if likelihood else ''}in subwords "
            f"(max_length is {text.max_length}): {drops.words(in_subwords)}."
        )
    return sentences


def _replaced(texts: Mapping[str, EncodedText]) -> list[str]:
    return [
        f"Training text {name} {'is kept of pairs, among them' if text.likelihood else 'has'} "
        f"{placeholders.words(text.placeholders)}."
        for name, text in texts.items()
        if text.placeholders is not None
    ]


def _augmented(texts: Mapping[str, EncodedText]) -> list[str]:
    return [
        f"Pairs of training text {name} that are changed: {augment.words(text.augmented)}."
        for name, text in texts.items()
        if text.augmented is not None
    ]


def placeholder_outcomes(rows: Sequence[Row], qualities: Mapping[str, Mapping[str, Any]], split: str) -> list[str]:
    """Sentences about the placeholders in translations of each row of a split."""
    return [
        f"Translations of {split} by {row.system} ({row.name}, seed {row.seed}): "
        f"{placeholders.outcome_words(qualities[row.quality][placeholders.PLACEHOLDERS])}."
        for row in rows
        if row.split == split and placeholders.PLACEHOLDERS in qualities[row.quality]
    ]


def _mixed(mixtures: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Sentences about mixtures; systems with the same mixture share one."""
    sentences: dict[str, list[str]] = {}
    for system, counts in mixtures.items():
        shares = (f"{name} {text['pairs_an_epoch']:,.12g} of {text['pairs']:,}" for name, text in counts.items())
        sentences.setdefault(f"of each text, in pairs: {', '.join(shares)}.", []).append(system)
    return [f"An epoch of {', '.join(systems)} has {sentence}" for sentence, systems in sentences.items()]
