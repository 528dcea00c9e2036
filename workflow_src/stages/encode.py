"""Stage encode: two line-aligned texts -> an encoded corpus; training pairs that are too long are left out."""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from workflow_src import jobs
from workflow_src.data import encoded
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.data.subwords import Subwords
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


def run(arguments: argparse.Namespace) -> str:
    check_parallel(arguments.source, arguments.target)
    max_length = int(arguments.settings["max_length"])
    subwords = Subwords.load(arguments.subwords, threads=arguments.threads)
    dropped: Counter[str] = Counter()

    def kept() -> Iterator[Pair]:
        found = False
        for pair in encoded_pairs(subwords, arguments.source, arguments.target):
            # Dev and test stay as they are: their scores are about every sentence.
            reason = reason_to_drop(pair, max_length) if arguments.split == "train" else None
            if reason:
                dropped[reason] += 1
                continue
            found = True
            yield pair
        if not found:
            raise ValueError(
                f"no pair of {arguments.source} and {arguments.target} is left to train on: "
                f"{', '.join(f'{count} {reason}' for reason, count in dropped.items())} "
                f"(recipe.max_length is {max_length})."
            )

    summary = {
        "split": arguments.split,
        "max_length": max_length if arguments.split == "train" else None,
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
        f"{whole['target_tokens']:,} target subwords; left out: {sum(dropped.values()):,}"
    )


def main(words: list[str] | None = None) -> None:
    parser = jobs.parser(__doc__)
    parser.add_argument("--subwords", type=Path, required=True, help="folder of learn_subwords")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--output-prefix", type=Path, required=True)
    parser.add_argument("--split", choices=("train", "dev", "test"), required=True)
    parser.add_argument("--threads", type=int, default=1)
    jobs.start(run, parser, words)


if __name__ == "__main__":
    main()
