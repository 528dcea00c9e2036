"""Stage: normalise raw text, drop unusable pairs, split train where there is no dev and test, and count every drop."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, NamedTuple

from pydantic import Field

from workflow_src.config.datasets import TEST, NormalisationConfig, Split, raw_names, reference_stem
from workflow_src.config.languages import spaced
from workflow_src.config.recipe import PlaceholderKind, TokenisedKind
from workflow_src.config.tokenisers import bleu_tokeniser
from workflow_src.data.bleu import corpus_bleu
from workflow_src.data.drops import left_out, notable, words
from workflow_src.data.lines import check_parallel, count_lines, read_lines
from workflow_src.data.normalise import Normaliser, drop_reason, word_count
from workflow_src.data.placeholders import Placeholders
from workflow_src.data.placeholders import words as counted_placeholders
from workflow_src.data.places import Places
from workflow_src.data.splits import EveryNth, connected_groups, key
from workflow_src.data.tokenised import shares_of
from workflow_src.data.tokenised import warning as tokenised_words
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.quality.metrics import LEAST_ROUND_TRIP
from workflow_src.jobs import JobInputs, log, recorded, start
from workflow_src.records.atomic import atomic, read_json, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.runtime.workers import Workers, blocks_of
from workflow_src.spec import Frozen

# Pairs that a process normalises at once.
BLOCK = 1024


class NormaliseSettings(Frozen):
    source: str = Field(description="code of the source language")
    target: str = Field(description="code of the target language")
    limits: dict[str, int] = Field({}, description="pairs of train, dev and test sets; none: all")
    normalisation: NormalisationConfig
    split: Split | None = Field(description="null where the dataset has dev and test of its own")
    held_out: Literal["keep", "remove"] = Field("keep", description="training pairs that dev or test sets have too")
    placeholders: tuple[PlaceholderKind, ...] = Field((), description="kinds of spans that stay as they are")
    tokenised: dict[str, TokenisedKind] = Field({}, description="languages whose raw text is tokenised, and how")


class Inputs(JobInputs):
    settings: NormaliseSettings = Field(description="languages, normalisation, split, limits")
    raw_folder: Path = Field(description="output folder of download")
    output_folder: Path
    threads: int = 1


class Row(NamedTuple):
    """A normalised pair, its raw target, the number of its raw lines, from 0, and further raw references."""

    source: str
    target: str
    raw_target: str
    number: int
    further_references: tuple[str, ...] = ()


class Writer:
    """The texts of one split, pair by pair, up to `limit` pairs; `full` says when these are written.

    Dev and test sets have `references` of each source beside source and target.
    """

    def __init__(
        self,
        split: str,
        target_side: Normaliser,
        codes: tuple[str, str],
        limit: int | None,
        references: int = 1,
        placeholders: Placeholders | None = None,
    ):
        self.names = [f"{split}.{code}" for code in codes]
        self._reference = None
        if split != "train":
            further = [reference_stem(split, number) for number in range(2, 1 + references)]
            self.names += [f"{stem}.{codes[1]}" for stem in (f"{split}.reference", *further)]
            self._reference = target_side.reference
        self._line = target_side.line
        self._files: list[IO[str]] = []
        self._codes = codes
        self.limit = limit
        self.pairs = 0
        self.words = {code: 0 for code in codes if spaced(code)}
        self.places = Places()
        self._placeholders = placeholders
        self.counted: Counter[str] = Counter()
        # (normalised target, raw target) of dev and test only: those of train are not needed, and many.
        self.references: list[tuple[str, str]] = []
        # Further references of each source, normalised like targets.
        self.further_references: list[list[str]] = []

    def open(self, folder: Path, stack: contextlib.ExitStack) -> None:
        """The texts appear in `folder`, all of them, when `stack` is left without an error."""
        self._files = [stack.enter_context(atomic(folder / name)) for name in self.names]

    @property
    def full(self) -> bool:
        return self.pairs == self.limit

    def write(self, row: Row) -> bool:
        """Write a pair if there is room for it; returns whether there was."""
        if self.full:
            return False
        lines = [row.source, row.target]
        for code, line in zip(self._codes, lines, strict=True):
            if code in self.words:
                self.words[code] += word_count(line, code)
        if self._placeholders is not None:
            self.counted.update(self._placeholders.count(row.source, row.target))
        if self._reference is not None:
            lines += map(self._reference, (row.raw_target, *row.further_references))
            self.references.append((row.target, row.raw_target))
            self.further_references.append([self._line(text) for text in row.further_references])
        for file, line in zip(self._files, lines, strict=True):
            file.write(line + "\n")
        self.pairs += 1
        return True


def normalisers_of(settings: NormaliseSettings) -> tuple[Normaliser, Normaliser]:
    """Those of source and target."""
    rules, kinds = settings.normalisation, settings.placeholders
    source_side, target_side = (
        Normaliser(rules, code, kinds, settings.tokenised.get(code)) for code in (settings.source, settings.target)
    )
    return source_side, target_side


def normalising(
    settings: NormaliseSettings, training: bool
) -> Callable[[list[tuple[str, ...]]], list[tuple[str, str, str | None]]]:
    """A function of raw lines (source, target, further references): both sides normalised, and why they cannot be used
    or None."""
    source_side, target_side = normalisers_of(settings)
    languages = settings.source, settings.target

    def normalise(block: list[tuple[str, ...]]) -> list[tuple[str, str, str | None]]:
        sides = ((source_side.line(source), target_side.line(target)) for source, target, *_ in block)
        return [(*pair, drop_reason(*pair, settings.normalisation, languages, training)) for pair in sides]

    return normalise


def normalised(paths: Sequence[Path], inputs: Inputs, training: bool, dropped: Counter[str]) -> Iterator[Row]:
    """Rows of raw texts: source, target, further references. Pairs that cannot be used are left out and counted in
    `dropped`."""
    number = 0
    with Workers(inputs.threads, count_lines(paths[0]), normalising, inputs.settings, training) as workers:
        for block, results in workers.map(blocks_of(_zipped(*paths), BLOCK)):
            for (_, raw_target, *further_references), (source, target, reason) in zip(block, results, strict=True):
                if reason is None:
                    yield Row(source, target, raw_target, number, tuple(further_references))
                else:
                    dropped[reason] += 1
                number += 1


def divided(
    rows: Iterable[Row], split: Split, languages: tuple[str, str], dropped: Counter[str]
) -> Iterator[tuple[str, Row]]:
    """(train, dev or test, row); pairs that the split leaves out are counted in `dropped`.

    The split does not depend on the direction: the key language comes first in it.
    """
    if split.method == "every-nth":
        turns = EveryNth(split)
        for row in rows:
            yield turns.split_of((row.source, row.target)), row
        return
    all_rows = list(rows)
    turned = languages[1] == split.key_language
    chosen = connected_groups(
        [(row.target, row.source) if turned else (row.source, row.target) for row in all_rows], split
    )
    dropped.update(chosen.dropped)
    for name in ("train", "dev", TEST):
        for number in getattr(chosen, name):
            yield name, all_rows[number]


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


def held_out_keys(texts: Mapping[str, Sequence[Path]], inputs: Inputs) -> set[tuple[str, str]]:
    """Keys of source and target, or of source and further reference, of all pairs of dev and test sets.

    Connected groups have no sentence in common with train.
    """
    settings = inputs.settings
    split, target_side = settings.split, normalisers_of(settings)[1]
    keys: set[tuple[str, str]] = set()
    for name, paths in texts.items():
        rows = normalised(paths, inputs, name == "train", Counter())
        part = name
        if name == "train":
            if split is None or split.method != "every-nth":
                continue
            languages = settings.source, settings.target
            rows = (row for part, row in divided(rows, split, languages, Counter()) if part != "train")
            part = "dev"
        for row in itertools.islice(rows, settings.limits.get(part)):
            targets = (row.target, *map(target_side.line, row.further_references))
            keys.update((key(row.source), key(target)) for target in targets)
    return keys


def without_held_out(
    assigned: Iterable[tuple[str, Row]], keys: Container[tuple[str, str]], dropped: Counter[str]
) -> Iterator[tuple[str, Row]]:
    """Assigned rows without training pairs whose keys are among `keys`; these are counted in `dropped`."""
    for split, row in assigned:
        if split == "train" and (key(row.source), key(row.target)) in keys:
            dropped["held_out"] += 1
        else:
            yield split, row


def found_in_train(
    folder: Path, codes: tuple[str, str], further_references: Mapping[str, Sequence[Sequence[str]]], threads: int
) -> dict[str, dict[str, int]]:
    """Numbers of the pairs of dev and test sets whose source, target, or both as one pair are among those of train.

    Sentences are compared by `key`, as splits do. `further_references` has those of each pair by split; with several
    references, any of them counts as target.
    """
    paths = {split: [folder / f"{split}.{code}" for code in codes] for split in ("train", *further_references)}
    # (source, its references)
    held_out = {
        split: [
            (key(source), tuple(map(key, (target, *further))))
            for (source, target), further in zip(_zipped(*paths[split]), lines, strict=True)
        ]
        for split, lines in further_references.items()
    }
    held_out_pairs = [pair for pairs in held_out.values() for pair in pairs]
    sources = {source for source, _ in held_out_pairs}
    targets = {target for _, references in held_out_pairs for target in references}
    train_sources: set[str] = set()
    train_targets: set[str] = set()
    train_pairs: set[tuple[str, str]] = set()
    with Workers(threads, count_lines(paths["train"][0]), common_keys, sources, targets) as workers:
        for _, (source_keys, target_keys, pair_keys) in workers.map(blocks_of(_zipped(*paths["train"]), BLOCK)):
            train_sources |= source_keys
            train_targets |= target_keys
            train_pairs |= pair_keys
    return {
        split: {
            "source": sum(source in train_sources for source, _ in pairs),
            "target": sum(not train_targets.isdisjoint(references) for _, references in pairs),
            "pair": sum(
                any((source, reference) in train_pairs for reference in references) for source, references in pairs
            ),
        }
        for split, pairs in held_out.items()
    }


def common_keys(
    sources: set[str], targets: set[str]
) -> Callable[[list[tuple[str, str]]], tuple[set[str], set[str], set[tuple[str, str]]]]:
    """A function of pairs: those of `sources`, those of `targets`, and the pairs of both, that are among them."""

    def common(block: list[tuple[str, str]]) -> tuple[set[str], set[str], set[tuple[str, str]]]:
        keys = [(key(source), key(target)) for source, target in block]
        return (
            sources.intersection(source for source, _ in keys),
            targets.intersection(target for _, target in keys),
            {(source, target) for source, target in keys if source in sources and target in targets},
        )

    return common


def _zipped(*texts: Path) -> Iterator[tuple[str, ...]]:
    return zip(*map(read_lines, texts), strict=True)


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
            *(100 * repeated / pairs, split),
        )


def run(inputs: Inputs) -> str:
    settings, folder = inputs.settings, inputs.output_folder
    rules, split, limits = settings.normalisation, settings.split, settings.limits
    codes = (settings.source, settings.target)
    kinds = settings.placeholders
    normalisers = normalisers_of(settings)
    target_side = normalisers[1]
    placeholders = Placeholders(kinds) if kinds else None
    raw = read_json(inputs.raw_folder / "raw.json")
    references = raw.get("references", {})
    texts = {
        name: [inputs.raw_folder / text for text in raw_names(name, codes, references.get(name, 1))]
        for name in raw["pairs"]
    }
    test_sets = [name for name in texts if name not in ("train", "dev")] or [TEST]
    splits = ("train", "dev", *test_sets)
    summary = folder / "corpus.json"
    read_counts: dict[str, int] = {}
    dropped: dict[str, Counter[str]] = {}
    # All texts get their names together, after the last one is written; the summary comes after them.
    with contextlib.ExitStack() as stack:
        writers = {
            name: Writer(name, target_side, codes, limits.get(name), references.get(name, 1), placeholders)
            for name in splits
        }
        for writer in writers.values():
            writer.open(folder, stack)
        for name, paths in texts.items():
            unusable: Counter[str] = Counter()
            lines = max(check_parallel(paths[0], path) for path in paths[1:])
            earlier = Counter(raw["dropped"][name])
            rows = normalised(paths, inputs, name == "train", unusable)
            open_writers = {name: writers[name]}
            assigned: Iterable[tuple[str, Row]] = ((name, row) for row in rows)
            if split and name == "train":
                # Pairs that models cannot be trained on are not for the dev and test of a split either.
                assigned = divided(rows, split, codes, unusable)
                open_writers = {part: writer for part, writer in writers.items() if part not in texts or part == name}
            if name == "train" and settings.held_out == "remove":
                assigned = without_held_out(assigned, held_out_keys(texts, inputs), unusable)
            origins = Places(raw["places"][name]) if name in raw["places"] else None
            count = fill(open_writers, assigned, origins)
            read_counts[name] = lines + earlier.total()
            dropped[name] = +(earlier + unusable + Counter(limit=lines - count - unusable.total()))
        for name, writer in writers.items():
            _check_filled(name, writer, dropped, texts)
        summary.unlink(missing_ok=True)
    looks_tokenised = shares_of(
        (name, side.language, map(side.ordinary, read_lines(path)))
        for name, paths in texts.items()
        for side, path in zip(normalisers, paths, strict=False)
    )
    if looks_tokenised:
        log.warning("warning: %s", tokenised_words(looks_tokenised))
    round_trip = {name: round_trip_bleu(writers[name].references, target_side) for name in splits[1:]}
    warn_of_losses(round_trip, rules)
    in_train = found_in_train(
        folder, codes, {name: writers[name].further_references for name in splits[1:]}, inputs.threads
    )
    for name, writer in writers.items():
        spans = f"; {counted_placeholders(writer.counted)}" if kinds else ""
        log.info("%s: %s pairs%s%s", name, f"{writer.pairs:,}", _shared(in_train.get(name, {})), spans)
        warn_of_repeated(name, in_train.get(name, {}).get("pair", 0), writer.pairs)
    sums = digests(folder, [file for writer in writers.values() for file in writer.names])
    files = {path.name: path for paths in texts.values() for path in paths}
    write_json(
        summary,
        {
            "source": codes[0],
            "target": codes[1],
            "pairs": {name: writer.pairs for name, writer in writers.items()},
            "words": {name: writer.words for name, writer in writers.items()},
            "read": read_counts,
            "dropped": dropped,
            "found_in_train": in_train,
            # Not those of a split: they are never too long, and would be as many numbers as pairs.
            "places": {name: writers[name].places.runs for name in raw["places"]},
            "limits": limits,
            "round_trip_bleu": round_trip,
            **({"looks_tokenised": looks_tokenised} if looks_tokenised else {}),
            "split": split and recorded(split),
            "normalisation": rules.model_dump(mode="json"),
            **({"placeholders": {name: writer.counted for name, writer in writers.items()}} if kinds else {}),
            **{key: raw[key] for key in ("downloads", "cleaning", "references") if raw.get(key)},
            "sha256": sums,
            "provenance": provenance(recorded(settings), files, sums),
        },
    )
    pairs = ", ".join(f"{name} {writer.pairs:,}" for name, writer in writers.items())
    return f"{sum(read_counts.values()):,} pairs read: {pairs}{left_out(sum(dropped.values(), Counter()))}"


def _check_filled(split: str, writer: Writer, dropped: dict[str, Counter[str]], texts: dict[str, list[Path]]) -> None:
    """Raises ArtifactError for a split without a pair."""
    if not writer.pairs:
        origin = split if split in texts else "train"
        source, target = texts[origin][:2]
        raise ArtifactError(
            source,
            f"and {target} have no pair for {split} after normalisation ({words(dropped[origin])})",
            "check the texts and recipe.normalisation",
        )


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
