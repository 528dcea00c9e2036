"""The corpus of a report: texts with what was left out, found twice, replaced and changed, and warnings about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from workflow_src.config.datasets import NthSplit
from workflow_src.data import drops, tokenised
from workflow_src.data.download import SUMS
from workflow_src.evaluation.document import Block, Caption, Cell, Fold, Heading, Table, table_of
from workflow_src.evaluation.manifest import Row
from workflow_src.evaluation.quality.variants import Quality
from workflow_src.evaluation.report.files import CleaningStep, CorpusSummary, EncodedText
from workflow_src.evaluation.report.page import language

WORDS = ("text", "words", "left out", "placeholders", "changed")
HEADS = (*WORDS, "read", "pairs", "source in train", "target in train", "pair in train", "pair in dev", "max_length")
NOTES = {
    "In train": "Sentences and pairs of a split that are in train (dev) too, compared without case, punctuation and "
    "spaces.",
    "Training texts": "Pairs with more subwords than max_length are left out, and unlikely ones where a system chose "
    "likely ones; placeholders and changed pairs are counted before likely ones are chosen.",
}
GROUPS = (
    "Train, dev and test are split from one text. Pairs with a sentence in common form a group; dev and test have one "
    "pair each of as many groups, of which no other pair is used. One translation is kept of each sentence in "
)


def blocks(
    corpus: CorpusSummary,
    monolingual: CorpusSummary | None,
    texts: Mapping[str, EncodedText],
    mixtures: Mapping[str, Mapping[str, Mapping[str, float]]],
    outcomes: Sequence[Mapping[str, str]],
    languages: tuple[str, str],
) -> list[Block]:
    """The section of the corpus; nothing without splits.

    texts      descriptions of encoded training texts by name
    mixtures   counts of each text by system
    outcomes   entries of `placeholder_outcomes`
    languages  codes of source and target
    """
    entries = [
        _split(split, corpus, split)
        for split in sorted(corpus.pairs, key=lambda name: (name != "train", name != "dev", name))
    ]
    if monolingual:
        lines = f"lines of {language(monolingual.source)}"
        entries += [_split(f"{split}, {lines}", monolingual, split) for split in monolingual.pairs]
    entries += [_trained_on(name, text) for name, text in texts.items()]
    if not entries:
        return []
    mixed = [
        {
            "system": system,
            "text": name,
            "pairs": f"{counts['pairs']:,}",
            "pairs an epoch": f"{counts['pairs_an_epoch']:,.12g}",
        }
        for system, by_text in mixtures.items()
        for name, counts in by_text.items()
    ]
    return [
        Heading("Corpus"),
        table_of(entries, WORDS, caption=Caption("", NOTES | {"Splits": split_words(corpus)})),
        *([table_of(mixed, ("system", "text"))] if mixed else []),
        *([table_of(outcomes, ("outputs",))] if outcomes else []),
        *_cleaning(corpus, monolingual, texts, languages),
    ]


def _split(title: str, counts: CorpusSummary, split: str) -> dict[str, str]:
    words = counts.words.get(split, {})
    return dict.fromkeys(HEADS, "") | {
        "text": title,
        "words": ", ".join(f"{words[code]:,} {code}" for code in sorted(words)),
        "left out": drops.words(counts.dropped.get(split, {}), counts.inline_elements.get(split, 0)),
        "read": f"{counts.read[split]:,}" if split in counts.read else "",
        "pairs": f"{counts.pairs[split]:,}",
        **{f"{side} in train": f"{count:,}" for side, count in counts.found_in_train.get(split, {}).items()},
        **({"pair in dev": f"{counts.found_in_dev[split]:,}"} if split in counts.found_in_dev else {}),
    }


def _trained_on(name: str, text: EncodedText) -> dict[str, str]:
    return dict.fromkeys(HEADS, "") | {
        "text": f"trained on: {name}",
        "left out": drops.words(text.dropped),
        "placeholders": _counts(text.placeholders or {}),
        "changed": _counts(text.augmented or {}),
        "read": f"{text.read:,}",
        "pairs": f"{text.pairs:,}",
        "max_length": str(text.max_length),
    }


def _counts(by_name: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in by_name.items())


def placeholder_outcomes(rows: Sequence[Row], qualities: Mapping[str, Quality], split: str) -> list[dict[str, str]]:
    """Counts of the placeholders in translations of each row of a split."""
    outcomes = ("spans", "missing", "surplus", "dropped")
    return [
        {"outputs": f"{row.system}, {row.name}, seed {row.seed}"}
        | {f"placeholders {name}": f"{counts.get(name, 0):,}" for name in outcomes}
        for row in rows
        if row.split == split and (counts := qualities[row.quality].placeholders)
    ]


def split_words(corpus: CorpusSummary) -> str:
    """How a text was split into train, dev and test; empty where it was not."""
    split = corpus.split
    if split is None:
        return ""
    if isinstance(split, NthSplit):
        return f"Dev is one of every {split.every} pairs of the text that train comes from."
    return f"{GROUPS}{language(split.key_language or '')}."


def warnings(
    corpus: CorpusSummary, texts: Mapping[str, EncodedText], unread: Mapping[str, int], test_sets: Sequence[str]
) -> list[str]:
    """Points for the summary: a notable share of training pairs that is left out, text that looks tokenised, and test
    pairs that are in train or dev.

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
    for split in test_sets:
        if words := repeated_words(corpus, split, "train"):
            points.append(f"{words} {fix}")
        if words := repeated_words(corpus, split, "dev"):
            points.append(f"{words} Dev chooses settings of searches: scores are too high for new text.")
    return points


def repeated_words(corpus: CorpusSummary, split: str, other: Literal["train", "dev"]) -> str:
    """A sentence about the pairs of a split that are in train or dev too; "" without any."""
    in_train, in_dev = corpus.found_in_train.get(split, {}).get("pair", 0), corpus.found_in_dev.get(split, 0)
    count, pairs = in_train if other == "train" else in_dev, corpus.pairs.get(split)
    if not count or not pairs:
        return ""
    return f"Pairs of {split} that are in {other} too: {count:,} of {pairs:,} ({100 * count / pairs:.1f} %)."


def _cleaning(
    corpus: CorpusSummary,
    monolingual: CorpusSummary | None,
    texts: Mapping[str, EncodedText],
    languages: tuple[str, str],
) -> list[Block]:
    """Pairs that every filter left out and repaired, with shares, and examples; nothing without filters.

    Filters of the training text come first, then systems that selected likely pairs of encoded `texts`, then filters of
    text of the source language.
    """
    steps = [(step.title, step) for step in corpus.cleaning]
    steps += [(text.likelihood.title, text.likelihood) for text in texts.values() if text.likelihood]
    steps += [(f"{step.title} (monolingual)", step) for step in (monolingual.cleaning if monolingual else ())]
    if not steps:
        return []
    entries = [
        {
            "filter": title,
            "by setting": _counts(step.dropped),
            "read": f"{step.read:,}",
            "left out": _share(sum(step.dropped.values()), step),
            "repaired": _share(step.repaired, step),
        }
        for title, step in steps
    ]
    caption = Caption("", {"Pairs": "Each filter reads what those before it left.", "Examples": "Drawn from all."})
    return [
        Heading("Cleaning"),
        table_of(entries, ("filter", "by setting"), caption=caption),
        *(Fold(f"{title}: examples", [_examples(step, languages)]) for title, step in steps if step.examples),
    ]


def _share(count: int, step: CleaningStep) -> str:
    """A number of pairs and its share of the pairs that a filter read."""
    return f"{count:,} ({100 * count / step.read:.2f} %)" if count else ""


def _examples(step: CleaningStep, languages: tuple[str, str]) -> Table:
    """Pairs that a filter left out or repaired; a repaired side stands behind an arrow."""
    rows: list[list[str | Cell]] = []
    for example in step.examples:
        repaired = example.repaired
        sides = [
            Cell(side + (f" → {repaired[number]}" if repaired else ""), language=code)
            for number, (side, code) in enumerate(zip((example.source, example.target), languages, strict=True))
        ]
        reason = ": ".join(filter(None, [example.reason, example.cause]))
        rows.append([str(example.line), reason, *sides])
    return Table(["line", "setting", "source", "target"], rows, left=4)


def downloads(corpus: CorpusSummary, monolingual: CorpusSummary | None) -> str:
    """Downloaded files by the checksum that was compared; empty without downloads."""
    by_check: dict[str, list[str]] = {}
    for name, file in (corpus.downloads | (monolingual.downloads if monolingual else {})).items():
        by_check.setdefault(SUMS.get(file.check, "not compared"), []).append(name)
    return "; ".join(f"{check}: {', '.join(names)}" for check, names in by_check.items())
