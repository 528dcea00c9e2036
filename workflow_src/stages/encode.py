"""Stage encode: two line-aligned texts -> an encoded corpus; training pairs over max_length are left out.

Sentences that no model could read end the job here, before anything is trained.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from workflow_src import jobs
from workflow_src.data import encoded
from workflow_src.data.drops import left_out
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.data.places import Places
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json
from workflow_src.records.provenance import provenance

CHUNK = 8192
Pair = tuple[list[int], list[int]]


def encoded_pairs(subwords: Subwords, source: Path, target: Path) -> Iterator[Pair]:
    """Ids of every pair of lines; memory for `CHUNK` of them."""
    lines = zip(read_lines(source), read_lines(target), strict=True)
    while block := list(itertools.islice(lines, CHUNK)):
        sources, targets = zip(*block, strict=True)
        yield from zip(subwords.encode_source(list(sources)), subwords.encode_target(list(targets)), strict=True)


def reason_to_drop(pair: Pair, max_length: int) -> str | None:
    """Why a pair is no training pair: the first reason that holds, or None."""
    for side, ids in zip(encoded.SIDES, pair, strict=True):
        if not ids:
            return f"{side}-empty"
        if len(ids) > max_length:
            return f"{side}-too-long"
    return None


def refusal(rows: list[tuple[int, int, int]], arguments: argparse.Namespace, max_length: int) -> ArtifactError:
    """The error of pairs that no model could read: rows from 0, the side that is too long, and its subwords."""
    texts = (arguments.source, arguments.target)
    row, side, subwords = rows[0]
    name, number = str(texts[side]), row + 1
    limit = (
        f"the models of this experiment take at most {arguments.longest:,} (model.max_positions without an end symbol)"
    )
    if arguments.split == "train":
        return ArtifactError(
            name,
            f"has {subwords:,} subwords, which recipe.max_length, {max_length:,}, allows, and {limit}",
            f"lower recipe.max_length to {arguments.longest}, or raise model.max_positions",
            line=number,
        )
    runs = read_json(arguments.corpus_summary)["places"].get(arguments.split) if arguments.corpus_summary else None
    if runs:
        names, origin = Places(runs).of(row)
        # Lines of generated corpora come from no file.
        name, number = (names[side], origin) if names[side] else (name, number)
    wanted = {row for row, _, _ in rows}
    pairs = zip(read_lines(texts[0]), read_lines(texts[1]), strict=True)
    fewest = min(max(map(len, pair)) for row, pair in enumerate(pairs) if row in wanted)
    others = f", the first of {len(rows):,} such pairs" if len(rows) > 1 else ""
    return ArtifactError(
        name,
        f"({arguments.split}) has {subwords:,} subwords{others}, and {limit}",
        "split the line in both languages, raise model.max_positions, or leave such pairs out by "
        f"recipe.normalisation.max_characters: {fewest - 1}",
        line=number,
    )


def run(arguments: argparse.Namespace) -> str:
    check_parallel(arguments.source, arguments.target)
    max_length = int(arguments.settings["max_length"])
    subwords = Subwords.load(arguments.subwords, threads=arguments.threads)
    dropped: Counter[str] = Counter()
    training = arguments.split == "train"

    def kept() -> Iterator[Pair]:
        empty = True
        too_long: list[tuple[int, int, int]] = []
        for row, pair in enumerate(encoded_pairs(subwords, arguments.source, arguments.target)):
            # Dev and test stay as they are: their scores are about every sentence.
            reason = reason_to_drop(pair, max_length) if training else None
            if reason:
                dropped[reason] += 1
                continue
            subwords_of_longer, side = max((len(ids), side) for side, ids in enumerate(pair))
            if arguments.longest is not None and subwords_of_longer > arguments.longest:
                too_long.append((row, side, subwords_of_longer))
            empty = False
            yield pair
        if too_long:
            raise refusal(too_long, arguments, max_length)
        if empty:
            raise ValueError(
                f"no pair of {arguments.source} and {arguments.target} is left to train on: "
                f"{', '.join(f'{count} {reason}' for reason, count in dropped.items())} "
                f"(recipe.max_length is {max_length})."
            )

    summary = {
        "split": arguments.split,
        "max_length": max_length if training else None,
        "dropped": dropped,
        "subwords_digest": subwords.digest,
        "source_vocabulary": subwords.source_size,
        "target_vocabulary": subwords.target_size,
        "provenance": provenance(
            arguments.settings,
            {
                "source": arguments.source,
                "target": arguments.target,
                "subwords": arguments.subwords / "subwords.json",
            },
        ),
    }
    vocabulary = max(subwords.source_size, subwords.target_size)
    whole = encoded.write_pairs(arguments.output_prefix, kept(), summary, vocabulary)
    return (
        f"encoded {whole['pairs']:,} pairs of {arguments.split}: {whole['source_tokens']:,} source and "
        f"{whole['target_tokens']:,} target subwords{left_out(dropped)}"
    )


def main(words: list[str] | None = None) -> None:
    parser = jobs.parser(__doc__)
    parser.add_argument("--subwords", type=Path, required=True, help="folder of learn_subwords")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--output-prefix", type=Path, required=True)
    parser.add_argument("--split", choices=("train", "dev", "test"), required=True)
    parser.add_argument(
        "--corpus-summary", type=Path, help="corpus.json, which tells where lines of dev and test are from"
    )
    parser.add_argument(
        "--longest",
        type=int,
        help="subwords of a sentence that every model can read; not in settings, because no result depends on it",
    )
    parser.add_argument("--threads", type=int, default=1)
    jobs.start(run, parser, words)


if __name__ == "__main__":
    main()
