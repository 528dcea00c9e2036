"""Sentences a second of every search of a bundle, one at a time and in batches. A benchmark, not a test.

    python tests/benchmarks/decoding_speed.py --bundle results/tatoeba/systems/teacher/seed-1/bundle \
        --source results/tatoeba/corpus/test.de
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import torch

from workflow_src.data.lines import read_lines
from workflow_src.serving.translator import Translator


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--bundle", required=True)
    made.add_argument("--source", required=True)
    made.add_argument("--searches", nargs="*", help="default: all of the bundle's")
    made.add_argument("--sentences", type=int, default=200, help="one at a time")
    made.add_argument("--batched", type=int, default=2000, help="in batches")
    made.add_argument("--batch", type=int, default=64)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--repeats", type=int, default=3, help="the best is reported, as other load only slows down")
    made.add_argument("--device", default="auto")
    given = made.parse_args()
    translator = Translator.load(given.bundle, given.device, threads=given.threads)
    lines = list(itertools.islice(read_lines(given.source), max(given.sentences, given.batched)))
    for search in given.searches or translator.searches:
        found, (settings, _) = {}, translator.settings(search)
        for batch, count in ((1, given.sentences), (given.batch, given.batched)):
            translator.search(lines[:20], settings, batch=batch)
            rates = []
            for _ in range(given.repeats):
                began = time.perf_counter()
                translator.search(lines[:count], settings, batch=batch)
                translator.runtime.synchronise()
                rates.append(min(count, len(lines)) / (time.perf_counter() - began))
            found[f"batch_{batch}"] = round(max(rates), 1)
        print(json.dumps({"search": search, "sentences_per_second": found, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
