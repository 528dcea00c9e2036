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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--searches", nargs="*", help="default: all of the bundle's")
    parser.add_argument("--sentences", type=int, default=200, help="one at a time")
    parser.add_argument("--batched", type=int, default=2000, help="in batches")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3, help="the best is reported, as other load only slows down")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    translator = Translator.load(arguments.bundle, arguments.device, threads=arguments.threads)
    lines = list(itertools.islice(read_lines(arguments.source), max(arguments.sentences, arguments.batched)))
    for search in arguments.searches or translator.searches:
        rates_by_batch = {}
        for batch, count in ((1, arguments.sentences), (arguments.batch, arguments.batched)):
            request = translator.request(search, batch=batch, return_scores=True)
            translator.search(lines[:20], request)
            rates = []
            for _ in range(arguments.repeats):
                began = time.perf_counter()
                translator.search(lines[:count], request)
                translator.runtime.synchronise()
                rates.append(min(count, len(lines)) / (time.perf_counter() - began))
            rates_by_batch[f"batch_{batch}"] = round(max(rates), 1)
        print(
            json.dumps({"search": search, "sentences_per_second": rates_by_batch, "threads": torch.get_num_threads()})
        )


if __name__ == "__main__":
    main()
