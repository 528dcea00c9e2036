"""Stage encode: two line-aligned texts -> an encoded corpus; training pairs over max_length are left out.

Where max_length is auto, the raw training pairs fix it, and other training texts take theirs. Sentences that no model
could read end the job here, before anything is trained.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.recipe import TextRules
from workflow_src.config.sizes import AUTO, MaxLength
from workflow_src.config.sizes import max_length as fitting_length
from workflow_src.config.training import AugmentConfig
from workflow_src.data import encoded
from workflow_src.data.augment import Augmented, augmented, without_effect
from workflow_src.data.augment import words as augmented_words
from workflow_src.data.drops import left_out, warn_of_losses
from workflow_src.data.lines import check_parallel, read_lines, zipped_lines
from workflow_src.data.normalise import normaliser_of
from workflow_src.data.placeholders import words as counted_placeholders
from workflow_src.data.raw import Places
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.jobs import JobInputs, log, start
from workflow_src.records.checked import Lenient, read_file
from workflow_src.records.provenance import provenance
from workflow_src.runtime.workers import Workers, blocks_of

CHUNK = 8192
# Pairs that max_length is measured on, where it is auto; of more, every so many-th.
MEASURED = 20_000
# Lengths of aligned lines correlate by 0.35 or more, also between distant languages; those of 500 lines in another
# order by 0.1 or less.
LEAST_CORRELATION, FEWEST_CORRELATED = 0.1, 500
Pair = tuple[list[int], list[int]]


class MeasuredText(Lenient):
    """The description of an encoded text, as far as the encoding of others reads it."""

    max_length: int


class Origins(Lenient):
    """`corpus.json`: runs of lines of the user's files (`Places`) by split."""

    places: dict[str, list[list[Any]]]


class EncodingSettings(TextRules):
    max_length: MaxLength
    augment: AugmentConfig | None = Field(None, description="shares of training pairs that are changed")
    own_target: NormalisationConfig | None = Field(
        None, description="the target is the user's own text, to be normalised"
    )


class Inputs(JobInputs):
    settings: EncodingSettings = Field(description="the longest training sentence")
    languages: tuple[str, str] = Field(description="codes of source and target")
    subwords: Path = Field(description="folder of learn_subwords")
    source: Path
    target: Path
    output_prefix: Path
    split: str = Field(description="train, dev or a test set")
    corpus_summary: Path | None = Field(None, description="corpus.json, with the origin of lines of dev and test")
    measured: Path | None = Field(None, description="description of the encoded raw pairs, which fixed max_length")
    longest: int | None = Field(None, description="subwords that a sentence may have at most, else the job is refused")
    threads: int = Field(1, gt=0, description="processes that work side by side")


@dataclasses.dataclass(frozen=True)
class Counts:
    """Numbers of pairs left out by reason, of placeholders by kind, and of changed training pairs by modifier."""

    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    placeholders: Counter[str] = dataclasses.field(default_factory=Counter)
    augmented: Counter[str] = dataclasses.field(default_factory=Counter)


def target_lines(inputs: Inputs) -> Iterator[str]:
    """The lines of the target, normalised and counted in the log where they are the user's own."""
    settings = inputs.settings
    if settings.own_target is None or inputs.split != "train":
        yield from read_lines(inputs.target)
        return
    normaliser = normaliser_of(inputs.languages[1], settings.own_target, settings)
    changed = count = 0
    for text in read_lines(inputs.target, own=True):
        # Text that a teacher of this pipeline wrote may be tokenised already.
        line = normaliser.line(normaliser.detokenise(text))
        count += 1
        changed += line != text
        yield line
    log.info("%s: %d of %d lines were changed by normalisation", inputs.target, changed, count)


def changed_pairs(
    block: list[tuple[str, str]],
    subwords: Subwords,
    settings: AugmentConfig,
    languages: tuple[str, str],
    max_length: int,
) -> tuple[list[Pair], Counter[str]]:
    """Ids of training pairs, changed as `settings` say, and counts of changed pairs by modifier.

    A pair that would be too long stays as it is.
    """
    # Pairs with an empty side are left out later.
    changed = [
        augmented(*pair, settings, languages, subwords.placeholders) if all(pair) else Augmented(*pair, None)
        for pair in block
    ]
    pairs = subwords.encode_pairs([pair.source for pair in changed], [pair.target for pair in changed])
    modifiers = {row: pair.modifier for row, pair in enumerate(changed) if pair.modifier is not None}
    long = {row for row in modifiers if max(map(len, pairs[row])) > max_length}
    for row in long:
        source, target = block[row]
        [pairs[row]] = subwords.encode_pairs([source], [target])
    changes = Counter(modifier for row, modifier in modifiers.items() if row not in long)
    changes.update(too_long=sum(max(map(len, pairs[row])) <= max_length for row in long))
    return pairs, changes


Encode = Callable[[list[tuple[str, str]]], tuple[list[Pair], Counter[str], Counter[str]]]


def encoding(
    folder: Path, augment: AugmentConfig | None, languages: tuple[str, str], training: bool, max_length: int
) -> Encode:
    """A function of blocks of pairs of lines: their ids, and counts of placeholders and of changed pairs by modifier.

    In pairs of dev and test all placeholders of a source are symbols, as where it is translated.
    """
    subwords = Subwords.load(folder)

    def encode(block: list[tuple[str, str]]) -> tuple[list[Pair], Counter[str], Counter[str]]:
        placeholders: Counter[str] = Counter()
        changes: Counter[str] = Counter()
        sources, targets = zip(*block, strict=True)
        if not training:
            sides = subwords.encode_source(sources), subwords.encode_target(targets, sources)
            return list(zip(*sides, strict=True)), placeholders, changes
        if subwords.placeholders:
            for pair in block:
                placeholders.update(subwords.placeholders.count(*pair))
        if augment:
            pairs, changes = changed_pairs(block, subwords, augment, languages, max_length)
            return pairs, placeholders, changes
        return subwords.encode_pairs(sources, targets), placeholders, changes

    return encode


def resolved_max_length(subwords: Subwords, inputs: Inputs, lines: int) -> int:
    """The number of `max_length`: the setting, that of the raw pairs, or one that follows these pairs."""
    if inputs.settings.max_length != AUTO:
        return inputs.settings.max_length
    if inputs.measured is not None:
        return read_file(MeasuredText, inputs.measured).max_length
    text = zip(read_lines(inputs.source), target_lines(inputs), strict=True)
    sample = (pair for pair in itertools.islice(text, 0, None, -(-lines // MEASURED)) if all(pair))
    lengths: list[int] = []
    for block in blocks_of(sample, CHUNK):
        lengths += (max(map(len, pair)) for pair in subwords.encode_pairs(*zip(*block, strict=True)))
    # Without any pair, encoding says what was left out.
    number = fitting_length(lengths or [0])
    share = sum(length <= number for length in lengths) / max(len(lengths), 1)
    log.info("max_length is auto: %d subwords, which %.1f %% of the training pairs keep to", number, 100 * share)
    return number


def encoded_pairs(inputs: Inputs, max_length: int, lines: int, counts: Counts) -> Iterator[Pair]:
    """Ids of every pair of lines; memory for a few blocks of them. Placeholders and changes of training pairs are
    counted."""
    training, text = inputs.split == "train", zip(read_lines(inputs.source), target_lines(inputs), strict=True)
    settings = inputs.subwords, inputs.settings.augment, inputs.languages, training, max_length
    with Workers(inputs.threads, lines, encoding, *settings) as workers:
        for _, (pairs, counted, changes) in workers.map(blocks_of(text, CHUNK)):
            counts.placeholders.update(counted)
            counts.augmented.update(changes)
            yield from pairs


def reason_to_drop(pair: Pair, max_length: int) -> str | None:
    """Why a pair is no training pair: the first reason that holds, or None."""
    for side, ids in zip(encoded.SIDES, pair, strict=True):
        if not ids:
            return f"{side}-empty"
        if len(ids) > max_length:
            return f"{side}-too-long"
    return None


def refusal(rows: list[tuple[int, int, int]], inputs: Inputs, max_length: int) -> ArtifactError:
    """The error for pairs that some model cannot read, by row from 0, side that is too long, and its subwords."""
    texts = inputs.source, inputs.target
    row, side, subwords = rows[0]
    name, number = str(texts[side]), row + 1
    limit = f"models that read it take at most {inputs.longest:,} (model.max_positions without an end symbol)"
    if inputs.split == "train":
        return ArtifactError(
            name,
            f"has {subwords:,} subwords, which recipe.max_length, {max_length:,}, allows, and {limit}",
            f"lower recipe.max_length to {inputs.longest}, or raise model.max_positions",
            line=number,
        )
    runs = read_file(Origins, inputs.corpus_summary).places.get(inputs.split) if inputs.corpus_summary else None
    if runs:
        names, origin = Places(runs).of(row)
        # Lines of generated corpora come from no file.
        name, number = (names[side], origin) if names[side] else (name, number)
    numbers = {row for row, _, _ in rows}
    pairs = enumerate(zipped_lines(*texts))
    fewest = min(max(map(len, pair)) for row, pair in pairs if row in numbers)
    note = f", the first of {len(rows):,} such pairs" if len(rows) > 1 else ""
    return ArtifactError(
        name,
        f"({inputs.split}) has {subwords:,} subwords{note}, and {limit}",
        "split the line in both languages, raise model.max_positions, or leave such pairs out by "
        f"recipe.normalisation.max_characters: {fewest - 1}",
        line=number,
    )


def usable_pairs(inputs: Inputs, max_length: int, lines: int, counts: Counts) -> Iterator[Pair]:
    """Ids of the pairs that are encoded; what is left out is counted.

    Raises ArtifactError, behind the last pair, where models cannot read some, or where none is left.
    """
    training = inputs.split == "train"
    empty = True
    too_long: list[tuple[int, int, int]] = []
    for row, pair in enumerate(encoded_pairs(inputs, max_length, lines, counts)):
        # Dev and test stay as they are: their scores are about every sentence.
        reason = reason_to_drop(pair, max_length) if training else None
        if reason:
            counts.dropped[reason] += 1
            continue
        subwords_of_longer, side = max((len(ids), side) for side, ids in enumerate(pair))
        if inputs.longest is not None and subwords_of_longer > inputs.longest:
            too_long.append((row, side, subwords_of_longer))
        empty = False
        yield pair
    if too_long:
        raise refusal(too_long, inputs, max_length)
    if empty:
        problem = f"have no pair left to train on: {', '.join(f'{n} {reason}' for reason, n in counts.dropped.items())}"
        fix = f"check them, and recipe.max_length, which is {max_length}"
        raise ArtifactError(f"{inputs.source} and {inputs.target}", problem, fix)


def description_of(inputs: Inputs, subwords: Subwords, max_length: int, counts: Counts) -> dict[str, Any]:
    """The description of an encoded text. It holds the counters of `counts`, which are filled until it is written."""
    training = inputs.split == "train"
    files = {"source": inputs.source, "target": inputs.target, "subwords": inputs.subwords / "subwords.json"}
    if inputs.measured:
        files["measured"] = inputs.measured
    description = {
        "split": inputs.split,
        "max_length": max_length if training else None,
        "dropped": counts.dropped,
        "subwords_digest": subwords.digest,
        "source_vocabulary": subwords.source_size,
        "target_vocabulary": subwords.target_size,
        "provenance": provenance(inputs.settings.model_dump(mode="json", exclude_none=True), files),
    }
    if training and subwords.placeholders:
        description["placeholders"] = counts.placeholders
    if inputs.settings.augment:
        description["augmented"] = counts.augmented
    return description


def warn_of_misalignment(inputs: Inputs) -> None:
    """Log a warning where the lines of the user's own target are as long as if they were in another order."""
    corpus = encoded.EncodedCorpus.open(inputs.output_prefix)
    if len(corpus) < FEWEST_CORRELATED:
        return
    # Lengths that are all the same have no correlation.
    with np.errstate(invalid="ignore"):
        correlation = np.corrcoef(corpus.source_lengths, corpus.target_lengths)[0, 1]
    if correlation < LEAST_CORRELATION:
        log.warning(
            "warning: %s does not look like a translation of %s, line by line: the lengths of their lines correlate by "
            "%.2f. If it was made from lines in another order, translate %s again.",
            inputs.target,
            inputs.source,
            correlation,
            inputs.source,
        )


def run(inputs: Inputs) -> str:
    training = inputs.split == "train"
    own = inputs.settings.own_target is not None and training
    if own:
        # The format is checked first: lines of other formats are no lines.
        next(read_lines(inputs.target, own=True), None)
    lines = check_parallel(inputs.source, inputs.target)
    subwords = Subwords.load(inputs.subwords, threads=inputs.threads)
    max_length = resolved_max_length(subwords, inputs, lines) if training else 0
    counts = Counts()
    description = description_of(inputs, subwords, max_length, counts)
    vocabulary = max(subwords.source_size, subwords.target_size)
    pairs = usable_pairs(inputs, max_length, lines, counts)
    written = encoded.write(inputs.output_prefix, pairs, description, vocabulary)
    fix = f"raise recipe.max_length, which is {max_length}, or normalise and clean the text"
    warn_of_losses(
        f"{inputs.source} and {inputs.target}", counts.dropped, written["pairs"] + counts.dropped.total(), fix
    )
    if augment := inputs.settings.augment:
        for name in without_effect(augment, counts.augmented, written["pairs"]):
            log.warning(
                "warning: training.augment.%s changes no pair of %s and %s: sources have nothing that it changes, or "
                "the changed pairs are longer than recipe.max_length; remove it, or raise that.",
                name,
                inputs.source,
                inputs.target,
            )
    if own:
        warn_of_misalignment(inputs)
    return (
        f"encoded {written['pairs']:,} pairs of {inputs.split}: {written['source_tokens']:,} source and "
        f"{written['target_tokens']:,} target subwords{left_out(counts.dropped)}"
        + (f"; {counted_placeholders(counts.placeholders)}" if counts.placeholders else "")
        + (f"; augmented: {augmented_words(counts.augmented)}" if counts.augmented else "")
    )


if __name__ == "__main__":
    start(run, Inputs, __doc__)
