"""Stage: normalise raw text, drop unusable pairs, split train where there is no dev and test, and count every drop.

Of text in one language, lines that came before or are in dev or test are dropped too.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from workflow_src.config.datasets import TEST, GroupSplit, raw_names
from workflow_src.config.parts import Languages
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.texts import MONOLINGUAL, TRAINING_SPLITS
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.data.bleu import corpus_bleu
from workflow_src.data.characters import key
from workflow_src.data.drops import left_out, notable, units, words
from workflow_src.data.drops import warn_of_losses as warn_of_left_out
from workflow_src.data.groups import Counts, hashes
from workflow_src.data.lines import check_parallel, count_lines, read_lines, zipped_lines
from workflow_src.data.normalise import Normaliser, clean, drop_reason, normaliser_of
from workflow_src.data.placeholders import words as counted_placeholders
from workflow_src.data.raw import Places, RawSummary
from workflow_src.data.split_writer import (
    NormaliseSettings,
    Writer,
    fill,
    found_in_train,
    pairs_among,
    without_held_out,
)
from workflow_src.data.splits import Row, divided
from workflow_src.data.tokenised import shares_of
from workflow_src.data.tokenised import warning as tokenised_words
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.quality.metrics import LEAST_ROUND_TRIP
from workflow_src.jobs import JobInputs, log, recorded, start
from workflow_src.records.atomic import write_json
from workflow_src.records.checked import read_file
from workflow_src.records.provenance import digests, provenance
from workflow_src.runtime.workers import Workers, blocks_of

# Pairs that a process normalises at once.
BLOCK = 1024


class Inputs(JobInputs):
    settings: NormaliseSettings = Field(description="languages, normalisation, split, limits")
    raw: Path = Field(description="summary of download or clean, beside the texts")
    held_out: tuple[Path, ...] = Field((), description="normalised lines that text of one language must not have")
    summary: Path = Field(description="JSON with counts, written last; texts are written beside it")
    threads: int = Field(1, gt=0, description="processes that work side by side")


def normalisers_of(settings: NormaliseSettings) -> list[Normaliser]:
    return [normaliser_of(code, settings.normalisation, settings) for code in settings.languages]


def normalising(
    settings: NormaliseSettings, training: bool
) -> Callable[[list[tuple[str, ...]]], list[tuple[str, str, str | None]]]:
    """A function of raw lines (source, target, further references): both sides normalised, and why they cannot be used
    or None."""
    normalisers = normalisers_of(settings)
    languages = settings.languages[0], settings.languages[-1]

    def normalise(block: list[tuple[str, ...]]) -> list[tuple[str, str, str | None]]:
        results = []
        for raw in block:
            lines = [side.line(text) for side, text in zip(normalisers, raw, strict=False)]
            pair = lines[0], lines[-1]
            results.append((*pair, drop_reason(*pair, settings.normalisation, languages, training)))
        return results

    return normalise


def empty_last(raw: tuple[str, ...]) -> tuple[str, ...]:
    """Raw lines (source, references) with empty references after the others: the first one is the target."""
    source, *references = raw
    return (source, *sorted(references, key=lambda text: not clean(text)))


def normalised(paths: Sequence[Path], inputs: Inputs, training: bool, dropped: Counter[str]) -> Iterator[Row]:
    """Rows of raw texts: source, target, further references. Pairs that cannot be used are left out and counted in
    `dropped`."""
    number = 0
    lines: Iterator[tuple[str, ...]] = zipped_lines(*paths)
    if len(paths) > 2:
        lines = map(empty_last, lines)
    with Workers(inputs.threads, count_lines(paths[0]), normalising, inputs.settings, training) as workers:
        for block, results in workers.map(blocks_of(lines, BLOCK)):
            for raw, (source, target, reason) in zip(block, results, strict=True):
                if reason is None:
                    yield Row(source, target, raw, number)
                else:
                    dropped[reason] += 1
                number += 1


def assigned_rows(
    name: str, paths: Sequence[Path], inputs: Inputs, writers: Mapping[str, Writer], dropped: Counter[str]
) -> Iterator[tuple[str, Row]]:
    """(split, row) of the raw text `name`; what is left out of it is counted in `dropped`.

    Train may not have what `writers` have of dev and test sets.
    """
    settings = inputs.settings
    rows = normalised(paths, inputs, name in TRAINING_SPLITS, dropped)
    assigned: Iterator[tuple[str, Row]] = ((name, row) for row in rows)
    if settings.split and name == "train":
        # Pairs that models cannot be trained on are not for the dev and test of a split either.
        assigned = divided(rows, settings.split, settings.languages, dropped, inputs.summary.parent)
    if name == MONOLINGUAL:
        keys = {(key(line), key(line)) for path in inputs.held_out for line in read_lines(path)}
        assigned = without_repeats(without_held_out(assigned, keys, dropped), dropped)
    elif name == "train" and settings.held_out == "remove":
        assigned = without_held_out(assigned, held_out_keys(writers, paths, inputs), dropped)
    return assigned


def held_out_keys(writers: Mapping[str, Writer], train: Sequence[Path], inputs: Inputs) -> set[tuple[str, str]]:
    """Keys of source and target, or of source and further reference, of all pairs of dev and test sets.

    Those of dev and test sets of the dataset are written before train. Dev and test of connected groups have no
    sentence in common with train.
    """
    settings = inputs.settings
    keys = {(source, target) for writer in writers.values() for source, targets in writer.keys for target in targets}
    if settings.split and settings.split.method == "every-nth":
        rows = normalised(train, inputs, True, Counter())
        assigned = divided(rows, settings.split, settings.languages, Counter(), inputs.summary.parent)
        dev = (row for split, row in assigned if split == "dev")
        keys.update((key(row.source), key(row.target)) for row in itertools.islice(dev, settings.limit("dev")))
    return keys


def without_repeats(assigned: Iterable[tuple[str, Row]], dropped: Counter[str]) -> Iterator[tuple[str, Row]]:
    """Assigned rows, each source once; others are counted in `dropped`."""
    counts = Counts()
    for block in blocks_of(assigned, BLOCK):
        repeated = counts.add(hashes([row.source for _, row in block]), limit=1)
        for (split, row), is_repeated in zip(block, repeated, strict=True):
            if is_repeated:
                dropped["repeated"] += 1
            else:
                yield split, row


def round_trip_bleu(references: list[tuple[str, str]], side: Normaliser) -> float:
    """BLEU in [0, 100] of normalised references, detokenised as outputs are, against the raw references.

    `references` are (normalised, raw). Where nothing differs it is 100, although texts without any four words have BLEU
    0.
    """
    perfect = [side.detokenise(line) for line, _ in references]
    unchanged = [side.ordinary(raw) for _, raw in references]
    return 100.0 if perfect == unchanged else corpus_bleu(perfect, unchanged, bleu_tokeniser(side.language))


def warn_of_losses(round_trip: dict[str, float], rules: NormalisationConfig) -> None:
    """Warn where normalisation alone costs too much. `round_trip`: split -> `round_trip_bleu`."""
    low = [f"{bleu:.1f} on {split}" for split, bleu in round_trip.items() if bleu < LEAST_ROUND_TRIP]
    if low and rules.references == "given":
        log.warning(
            "warning: references that are normalised and put together again have BLEU %s against themselves; set "
            "recipe.normalisation.references: normalised, or normalise less.",
            " and ".join(low),
        )


def warn_of_repeated(split: str, other: str, repeated: int, pairs: int, fix: str) -> None:
    """Warn where a notable share of the pairs of dev or a test set is in another split."""
    if notable({"repeated": repeated}, pairs):
        log.warning(
            "warning: %.1f %% of the pairs of %s are in %s too: scores on it are too high for new text; %s.",
            100 * repeated / pairs,
            split,
            other,
            fix,
        )


def write_texts(
    inputs: Inputs, raw: RawSummary, texts: Mapping[str, Sequence[Path]], held_out: Sequence[str], target: Normaliser
) -> tuple[dict[str, Writer], dict[str, int], dict[str, Counter[str]]]:
    """Write the texts of all splits beside the summary, and remove an old summary.

    Returns the writers of the splits, closed, and by raw text numbers of lines read and of pairs left out by reason.
    Raises ArtifactError for a split without pairs.
    """
    settings, training = inputs.settings, raw.training
    read_counts: dict[str, int] = {}
    dropped: dict[str, Counter[str]] = {}
    # All texts get their names together, after the last one is written; the summary comes after them.
    with contextlib.ExitStack() as stack:
        writers = {
            name: Writer(name, settings, target, raw.references.get(name, 1), inputs.summary.parent, stack)
            for name in (training, *held_out)
        }
        # Train last: what dev and test sets have may be left out of it.
        for name, paths in sorted(texts.items(), key=lambda text: text[0] == training):
            lines = max(check_parallel(paths[0], path) for path in paths[1:] or paths)
            reasons = Counter(raw.dropped[name])
            # Further segments of a unit are left out of its pair, which is read once.
            read_counts[name] = lines + reasons.total() - reasons["other_segment"]
            open_writers = {
                part: writer
                for part, writer in writers.items()
                if part == name or (settings.split and name == training and part not in texts)
            }
            origins = Places(raw.places[name]) if name in raw.places else None
            with_earlier = lines + reasons.total()
            count = fill(open_writers, assigned_rows(name, paths, inputs, writers, reasons), origins)
            dropped[name] = +(reasons + Counter(limit=with_earlier - count - reasons.total()))
        for name, writer in writers.items():
            if not writer.pairs:
                origin = name if name in texts else training
                raise _without_pairs(name, settings, texts[origin], dropped[origin], divided=name not in texts)
        inputs.summary.unlink(missing_ok=True)
    return writers, read_counts, dropped


def _without_pairs(
    name: str, settings: NormaliseSettings, paths: Sequence[Path], dropped: Counter[str], divided: bool
) -> ArtifactError:
    """The error for a split without pairs; `divided` where it would have been a part of train."""
    codes = settings.languages
    return ArtifactError(
        " and ".join(map(str, paths[: len(codes)])),
        f"have no {units(codes)} for {name} after normalisation ({words(dropped)})",
        "check the texts and recipe.normalisation"
        + (", and split.every and split.longest" if settings.split and divided else ""),
    )


def tokenised_shares(
    texts: Mapping[str, Sequence[Path]], normalisers: Sequence[Normaliser]
) -> dict[str, dict[str, float]]:
    """Shares of raw texts that look tokenised, by split and language; a warning names them."""
    shares = shares_of(
        (name, side.language, map(side.ordinary, read_lines(path)))
        for name, paths in texts.items()
        for side, path in zip(normalisers, paths, strict=False)
    )
    if shares:
        log.warning("warning: %s", tokenised_words(shares))
    return shares


def overlaps_of(
    inputs: Inputs, writers: Mapping[str, Writer], held_out: Sequence[str], training: str
) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Numbers of pairs of dev and test sets that are in train too (by side and as one pair), and in dev."""
    in_train: dict[str, dict[str, int]] = {}
    if held_out:
        train = [inputs.summary.parent / name for name in writers[training].names]
        in_train = found_in_train({name: writers[name].keys for name in held_out}, train, inputs.threads)
    in_dev = {name: pairs_among(writers[name].keys, writers["dev"].keys) for name in held_out if name != "dev"}
    return in_train, in_dev


def log_splits(
    writers: Mapping[str, Writer], codes: Languages, in_train: Mapping[str, dict[str, int]], in_dev: Mapping[str, int]
) -> None:
    """Log the pairs of every split, and warn where many of dev or a test set are in train or in dev."""
    for name, writer in writers.items():
        shared = in_train.get(name, {})
        counted = f"; {counted_placeholders(writer.counted)}" if writer.placeholders else ""
        log.info("%s: %s %s%s%s", name, f"{writer.pairs:,}", units(codes), _shared(shared), counted)
        fix = "set recipe.held_out: remove to leave them out of train"
        warn_of_repeated(name, "train", shared.get("pair", 0), writer.pairs, fix)
        fix = "dev chooses settings of searches; take other pairs for one of them"
        warn_of_repeated(name, "dev", in_dev.get(name, 0), writer.pairs, fix)


def run(inputs: Inputs) -> str:
    settings, codes, folder = inputs.settings, inputs.settings.languages, inputs.summary.parent
    normalisers = normalisers_of(settings)
    raw = read_file(RawSummary, inputs.raw)
    texts = {
        name: [inputs.raw.parent / text for text in raw_names(name, codes, raw.references.get(name, 1))]
        for name in raw.pairs
    }
    split_test = [TEST] if isinstance(settings.split, GroupSplit) else []
    held_out = list(dict.fromkeys(("dev", *split_test, *raw.held_out))) if len(codes) > 1 else []
    writers, read_counts, dropped = write_texts(inputs, raw, texts, held_out, normalisers[-1])
    looks_tokenised = tokenised_shares(texts, normalisers)
    round_trip = {name: round_trip_bleu(writers[name].references, normalisers[-1]) for name in held_out}
    warn_of_losses(round_trip, settings.normalisation)
    if isinstance(settings.split, GroupSplit):
        lost = {"other_translation": dropped[raw.training]["other_translation"]}
        key_language = settings.split.key_language or codes[0]
        fix = f"one is kept for each sentence of {key_language}; split.key_language may name the other language"
        warn_of_left_out(raw.training, lost, read_counts[raw.training], fix)
    in_train, in_dev = overlaps_of(inputs, writers, held_out, raw.training)
    log_splits(writers, codes, in_train, in_dev)
    spans = {name: writer.counted for name, writer in writers.items() if writer.placeholders}
    sums = digests(folder, [file for writer in writers.values() for file in writer.names])
    files = {path.name: path for path in (*inputs.held_out, *(path for paths in texts.values() for path in paths))}
    write_json(
        inputs.summary,
        {
            **dict(zip(("source", "target"), codes, strict=False)),
            "pairs": {name: writer.pairs for name, writer in writers.items()},
            "words": {name: writer.words for name, writer in writers.items()},
            "read": read_counts,
            "dropped": dropped,
            # Places of a split are left out: its pairs are never too long, and places would be many numbers.
            "places": {name: writers[name].places.runs for name in raw.places},
            "limits": settings.limits,
            "found_in_train": in_train,
            "found_in_dev": in_dev,
            "round_trip_bleu": round_trip,
            **({"looks_tokenised": looks_tokenised} if looks_tokenised else {}),
            "split": settings.split and recorded(settings.split),
            "normalisation": settings.normalisation.model_dump(mode="json"),
            **({"placeholders": spans} if spans else {}),
            **raw.model_dump(
                include={"inline_elements", "downloads", "cleaning", "references", "texts"}, exclude_defaults=True
            ),
            "sha256": sums,
            "provenance": provenance(recorded(settings), files, sums),
        },
    )
    kept = ", ".join(f"{name} {writer.pairs:,}" for name, writer in writers.items())
    all_dropped = left_out(sum(dropped.values(), Counter()))
    return f"{sum(read_counts.values()):,} {units(codes)} read: {kept}{all_dropped}"


def _shared(counts: dict[str, int]) -> str:
    """The number of pairs of a split that are in train too, in words for the log; empty where none is."""
    if not any(counts.values()):
        return ""
    return (
        f"; in train are the source of {counts['source']:,}, the target of {counts['target']:,}, "
        f"and both as one pair of {counts['pair']:,}"
    )


if __name__ == "__main__":
    start(run, Inputs, __doc__)
