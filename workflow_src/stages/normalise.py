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

from workflow_src.config.datasets import TEST, GroupSplit, Split, raw_names, reference_stem
from workflow_src.config.languages import spaced
from workflow_src.config.parts import Languages
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.config.recipe import SplitRules
from workflow_src.config.texts import MONOLINGUAL, TRAINING_SPLITS
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.data.bleu import corpus_bleu
from workflow_src.data.characters import key, word_counter
from workflow_src.data.drops import left_out, notable, units, words
from workflow_src.data.held_out import Keys, found_in_train, pairs_among, without_held_out
from workflow_src.data.lines import check_parallel, count_lines, read_lines, zipped_lines
from workflow_src.data.normalise import Normaliser, drop_reason, normaliser_of
from workflow_src.data.placeholders import Placeholders
from workflow_src.data.placeholders import words as counted_placeholders
from workflow_src.data.raw import Places, check_split, read_raw_summary
from workflow_src.data.repeats import Counts, hashes
from workflow_src.data.splits import Row, divided
from workflow_src.data.tokenised import shares_of
from workflow_src.data.tokenised import warning as tokenised_words
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.quality.metrics import LEAST_ROUND_TRIP
from workflow_src.jobs import JobInputs, log, recorded, start
from workflow_src.records.atomic import atomic, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.runtime.workers import Workers, blocks_of

# Pairs that a process normalises at once.
BLOCK = 1024


class NormaliseSettings(SplitRules):
    languages: Languages
    normalisation: NormalisationConfig
    split: Split | None = Field(None, description="null where the dataset has dev and test of its own")

    def limit(self, split: str) -> int | None:
        """Pairs of a split that are kept, at most."""
        limits: dict[str, int] = dict(self.limits.items())
        return limits.get(split if split in ("dev", *TRAINING_SPLITS) else TEST)


class Inputs(JobInputs):
    settings: NormaliseSettings = Field(description="languages, normalisation, split, limits")
    raw: Path = Field(description="summary of download or clean, beside the texts")
    held_out: tuple[Path, ...] = Field((), description="normalised lines that text of one language must not have")
    summary: Path = Field(description="JSON with counts, written last; texts are written beside it")
    threads: int = Field(1, gt=0, description="processes that work side by side")


class Writer:
    """The texts of one split, pair by pair, up to `limit` pairs; `full` says when these are written.

    Dev and test sets have `references` of each source beside source and target. Placeholders of pairs are counted.
    """

    def __init__(
        self,
        split: str,
        settings: NormaliseSettings,
        target_side: Normaliser,
        references: int,
        folder: Path,
        stack: contextlib.ExitStack,
    ):
        """The texts appear in `folder`, all of them, when `stack` is left without an error."""
        codes = settings.languages
        self.names = [f"{split}.{code}" for code in codes]
        self._reference = None
        if split not in TRAINING_SPLITS:
            further = [reference_stem(split, number) for number in range(2, 1 + references)]
            self.names += [f"{stem}.{codes[1]}" for stem in (f"{split}.reference", *further)]
            self._reference = target_side.reference
        self._further_target = target_side.line
        self._files = [stack.enter_context(atomic(folder / name)) for name in self.names]
        self._codes = codes
        self._limit = settings.limit(split)
        self.pairs = 0
        self.words = {code: 0 for code in codes if spaced(code)}
        self.places = Places()
        kinds = settings.placeholder_kinds
        self.placeholders = Placeholders(kinds) if kinds and len(codes) > 1 else None
        self.counted: Counter[str] = Counter()
        # Pairs (normalised target, raw target) of dev and test; train has too many.
        self.references: list[tuple[str, str]] = []
        # Keys of each source and of its references, of the same pairs.
        self.keys: list[Keys] = []

    @property
    def full(self) -> bool:
        return self.pairs == self._limit

    def write(self, row: Row) -> bool:
        """Write a pair if there is room for it; returns whether there was."""
        if self.full:
            return False
        lines = [row.source, row.target][: len(self._codes)]
        for code, line in zip(self._codes, lines, strict=True):
            if code in self.words:
                self.words[code] += word_counter(code)(line)
        if self.placeholders is not None:
            self.counted.update(self.placeholders.count(row.source, row.target))
        if self._reference is not None:
            lines += map(self._reference, row.raw[1:])
            self.references.append((row.target, row.raw[1]))
            targets = (row.target, *map(self._further_target, row.raw[2:]))
            self.keys.append((key(row.source), tuple(map(key, targets))))
        for file, line in zip(self._files, lines, strict=True):
            file.write(line + "\n")
        self.pairs += 1
        return True


def normalisers_of(settings: NormaliseSettings) -> list[Normaliser]:
    """One for each language."""
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


def normalised(paths: Sequence[Path], inputs: Inputs, training: bool, dropped: Counter[str]) -> Iterator[Row]:
    """Rows of raw texts: source, target, further references. Pairs that cannot be used are left out and counted in
    `dropped`."""
    number = 0
    with Workers(inputs.threads, count_lines(paths[0]), normalising, inputs.settings, training) as workers:
        for block, results in workers.map(blocks_of(zipped_lines(*paths), BLOCK)):
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


def fill(writers: dict[str, Writer], assigned: Iterable[tuple[str, Row]], origins: Places | None) -> int:
    """Write rows until the writers are full; returns the number of those written.

    `origins` says where raw lines come from, as far as that is known.
    """
    count = 0
    for split, row in assigned:
        if writers[split].write(row):
            count += 1
            if origins is not None:
                writers[split].places.add(*origins.of(row.number))
        elif all(writer.full for writer in writers.values()):
            break
    return count


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


def warn_of_repeated(split: str, repeated: int, pairs: int) -> None:
    """Warn where a notable share of the pairs of dev or a test set is in train."""
    if notable({"repeated": repeated}, pairs):
        log.warning(
            "warning: %.1f %% of the pairs of %s are in train too: scores on it are too high for new text; "
            "set recipe.held_out: remove to leave them out of train.",
            100 * repeated / pairs,
            split,
        )


def run(inputs: Inputs) -> str:
    settings, codes, folder = inputs.settings, inputs.settings.languages, inputs.summary.parent
    normalisers = normalisers_of(settings)
    raw = read_raw_summary(inputs.raw, codes)
    check_split(settings.split, raw)
    references, training = raw.references, raw.training
    texts = {
        name: [inputs.raw.parent / text for text in raw_names(name, codes, references.get(name, 1))]
        for name in raw.pairs
    }
    split_test = [TEST] if isinstance(settings.split, GroupSplit) else []
    held_out = list(dict.fromkeys(("dev", *split_test, *raw.held_out))) if len(codes) > 1 else []
    read_counts: dict[str, int] = {}
    dropped: dict[str, Counter[str]] = {}
    # All texts get their names together, after the last one is written; the summary comes after them.
    with contextlib.ExitStack() as stack:
        writers = {
            name: Writer(name, settings, normalisers[-1], references.get(name, 1), folder, stack)
            for name in (training, *held_out)
        }
        # Train last: what dev and test sets have may be left out of it.
        for name, paths in sorted(texts.items(), key=lambda text: text[0] == training):
            unusable: Counter[str] = Counter()
            lines = max(check_parallel(paths[0], path) for path in paths[1:] or paths)
            earlier = Counter(raw.dropped[name])
            open_writers = {
                part: writer
                for part, writer in writers.items()
                if part == name or (settings.split and name == training and part not in texts)
            }
            origins = Places(raw.places[name]) if name in raw.places else None
            count = fill(open_writers, assigned_rows(name, paths, inputs, writers, unusable), origins)
            # Further segments of a unit are left out of its pair, which is read once.
            read_counts[name] = lines + earlier.total() - earlier["other_segment"]
            dropped[name] = +(earlier + unusable + Counter(limit=lines - count - unusable.total()))
        for name, writer in writers.items():
            origin = name if name in texts else training
            if not writer.pairs:
                raise ArtifactError(
                    " and ".join(map(str, texts[origin][: len(codes)])),
                    f"have no {units(codes)} for {name} after normalisation ({words(dropped[origin])})",
                    "check the texts and recipe.normalisation"
                    + (", and split.every and split.longest" if settings.split and name not in texts else ""),
                )
        inputs.summary.unlink(missing_ok=True)
    looks_tokenised = shares_of(
        (name, side.language, map(side.ordinary, read_lines(path)))
        for name, paths in texts.items()
        for side, path in zip(normalisers, paths, strict=False)
    )
    if looks_tokenised:
        log.warning("warning: %s", tokenised_words(looks_tokenised))
    round_trip = {name: round_trip_bleu(writers[name].references, normalisers[-1]) for name in held_out}
    warn_of_losses(round_trip, settings.normalisation)
    in_train: dict[str, dict[str, int]] = {}
    if held_out:
        train = [folder / name for name in writers[training].names]
        in_train = found_in_train({name: writers[name].keys for name in held_out}, train, inputs.threads)
    in_dev = {name: pairs_among(writers[name].keys, writers["dev"].keys) for name in held_out if name != "dev"}
    spans = {name: writer.counted for name, writer in writers.items() if writer.placeholders}
    for name, writer in writers.items():
        counted = f"; {counted_placeholders(spans[name])}" if name in spans else ""
        log.info("%s: %s %s%s%s", name, f"{writer.pairs:,}", units(codes), _shared(in_train.get(name, {})), counted)
        warn_of_repeated(name, in_train.get(name, {}).get("pair", 0), writer.pairs)
        if notable({"repeated": in_dev.get(name, 0)}, writer.pairs):
            log.warning(
                "warning: %.1f %% of the pairs of %s are in dev too, which chooses settings of searches: scores on it "
                "are too high for new text; take other pairs for one of them.",
                100 * in_dev[name] / writer.pairs,
                name,
            )
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
            # Not those of a split: they are never too long, and would be as many numbers as pairs.
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
