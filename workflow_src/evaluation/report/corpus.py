"""The corpus of a report: pairs of every split, and what was left out between the dataset's files and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workflow_src.config.manifest import RowInfo
from workflow_src.data import augment, drops, placeholders
from workflow_src.data.download import SUMS
from workflow_src.evaluation.report.page import language


def table(corpus: Mapping[str, Any], monolingual: Mapping[str, Any]) -> list[dict[str, str]]:
    """Pairs, words and pairs left out of every split, as text. What a split of train leaves out stands at train.

    Text of the source language, if any, comes last.
    """
    rows = []
    pairs = corpus.get("pairs", {})
    for split in sorted(pairs, key=lambda name: (name != "train", name != "dev")):
        words = corpus.get("words", {}).get(split, {})
        rows.append(
            {
                "split": split,
                "pairs": f"{pairs[split]:,}",
                "words": ", ".join(f"{words[code]:,} {code}" for code in sorted(words)) or "–",
                "dropped": drops.words(corpus.get("dropped", {}).get(split, {})),
            }
        )
    if monolingual:
        rows.append(
            {
                "split": f"monolingual, {language(monolingual['language'])}",
                "pairs": f"{monolingual['lines']:,} of {monolingual['read']:,} lines",
                "words": "–",
                "dropped": drops.words(monolingual["dropped"]),
            }
        )
    return rows


def cleaning(
    corpus: Mapping[str, Any], monolingual: Mapping[str, Any], texts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What every filter did, as text: pairs left out and repaired, with shares, and examples.

    Filters of the training text come first, then systems that found encoded `texts` unlikely, then filters of text of
    the source language.
    """
    steps = [*corpus.get("cleaning", ())]
    steps += [text["likelihood"] for text in texts.values() if "likelihood" in text]
    steps += [step | {"title": f"{step['title']} (monolingual)"} for step in monolingual.get("cleaning", ())]
    return [
        {
            "title": step["title"],
            "read": f"{step['read']:,}",
            "dropped": _counted(sum(step["dropped"].values()), step["read"]),
            "repaired": _counted(step["repaired"], step["read"]),
            "reasons": ", ".join(f"{reason} {count:,}" for reason, count in step["dropped"].items()),
            "examples": step["examples"],
        }
        for step in steps
    ]


def downloads(corpus: Mapping[str, Any], monolingual: Mapping[str, Any]) -> str:
    """Which sum of each downloaded file was compared with that of the dataset; empty where nothing was downloaded."""
    by_check: dict[str, list[str]] = {}
    for name, file in (corpus.get("downloads", {}) | monolingual.get("downloads", {})).items():
        by_check.setdefault(file["check"], []).append(name)
    return "; ".join(
        f"{f'compared by {SUMS[check]}' if check in SUMS else 'not compared'}: {', '.join(names)}"
        for check, names in by_check.items()
    )


def _counted(count: int, read_pairs: int) -> str:
    """A number of pairs and its share of those that a filter read."""
    return f"{count:,} ({100 * count / read_pairs:.2f} %)" if count else "–"


def sentences(
    corpus: Mapping[str, Any],
    texts: Mapping[str, Mapping[str, Any]],
    mixtures: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> list[str]:
    """How the splits came about, which sentences they share, what encoding left out, and what mixtures are of.

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


def _split(corpus: Mapping[str, Any]) -> list[str]:
    split, read_counts = corpus.get("split"), corpus.get("read", {})
    if not split:
        return []
    dropped = sum(corpus["dropped"]["train"].values())
    counts = f"Of {read_counts['train']:,} pairs read, {dropped:,} are left out."
    if split["method"] == "every-nth":
        return [f"Dev is every {ordinal(split['every'])} pair of the text that train comes from. {counts}"]
    return [
        f"Train, dev and test are split from one text. {counts} One translation is kept of each sentence in "
        f"{language(split['key_language'])}. Pairs with a sentence in common form a group; dev and test have one pair "
        "each of as many groups, of which no other pair is used."
    ]


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 23rd."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number // 10 % 10 == 1 else endings.get(number % 10, 'th')}"


def _shared(corpus: Mapping[str, Any]) -> list[str]:
    counted = corpus.get("found_in_train", {})
    shared = [
        f"Of the {corpus['pairs'][split]:,} pairs of {split}, {counts['source']:,} have a source that is also in "
        "train, "
        f"{counts['target']:,} a target, and {counts['pair']:,} both as one pair."
        for split, counts in sorted(counted.items())
        if any(counts.values())
    ]
    tests = "test" if len(counted) == 2 else "a test set"
    return shared or ([f"No sentence of dev or {tests} is in train, on either side."] if counted else [])


def _encoded(texts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    sentences = []
    for name, text in texts.items():
        # Likely pairs are chosen after pairs that are too long were left out.
        likelihood, in_subwords = text.get("likelihood"), {**text["dropped"], "unlikely": 0}
        pair_count = (
            f"the {text['pairs']:,} likeliest of {likelihood['read']:,}" if likelihood else f"{text['pairs']:,}"
        )
        sentences.append(
            f"Training text {name} has {pair_count} pairs; left out {'before, ' if likelihood else ''}in subwords "
            f"(max_length is {text['max_length']}): {drops.words(in_subwords)}."
        )
    return sentences


def _replaced(texts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"Training text {name} {'is kept of pairs, among them' if 'likelihood' in text else 'has'} "
        f"{placeholders.words(text[placeholders.PLACEHOLDERS])}."
        for name, text in texts.items()
        if placeholders.PLACEHOLDERS in text
    ]


def _augmented(texts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"Pairs of training text {name} that are changed: {augment.words(text['augmented'])}."
        for name, text in texts.items()
        if "augmented" in text
    ]


def placeholder_outcomes(rows: Sequence[RowInfo], qualities: Mapping[str, Mapping[str, Any]], split: str) -> list[str]:
    """What the translations of each row of a split make of the placeholders of its source, in sentences."""
    return [
        f"Translations of {split} by {row.system} ({row.name}, seed {row.seed}): "
        f"{placeholders.outcome_words(qualities[row.quality][placeholders.PLACEHOLDERS])}."
        for row in rows
        if row.split == split and placeholders.PLACEHOLDERS in qualities[row.quality]
    ]


def _mixed(mixtures: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Systems that learn from the same mixture share a sentence."""
    sentences: dict[str, list[str]] = {}
    for system, counts in mixtures.items():
        parts = (f"{name} {text['pairs_an_epoch']:,.12g} of {text['pairs']:,}" for name, text in counts.items())
        sentences.setdefault(f"of each text, in pairs: {', '.join(parts)}.", []).append(system)
    return [f"An epoch of {', '.join(systems)} has {sentence}" for sentence, systems in sentences.items()]
