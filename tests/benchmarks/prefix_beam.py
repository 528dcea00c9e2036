"""The search over prefixes by itself: milliseconds a sentence in Python and compiled by Numba. A benchmark.

    python tests/benchmarks/prefix_beam.py --bundle results/tatoeba/systems/ctc-raw/seed-1/bundle \
        --source results/tatoeba/corpus/test.de

The logits of all sentences are computed once. Every round reads all of them by every row, by a search that has not seen
them; a row's time is the least of its rounds' means. The bundle's own language model is used, with the weights that it
names. Outputs must be the same.
"""

from __future__ import annotations

import argparse
import time

import torch

from workflow_src.data.lines import read_lines
from workflow_src.decoding.ctc import slot_logits
from workflow_src.decoding.slots import rows_of_arrays
from workflow_src.searches.ctc_beam.compiled import PrefixBeam, try_out
from workflow_src.serving.translator import Translator
from workflow_src.types import EOS

ROWS = ((5, 0.05, None), (5, 0.02, None), (20, 0.05, 2), (20, 0.02, 3), (20, 0.05, None), (20, 0.02, None))


def timed(beam, rows) -> tuple[float, list]:
    begin = time.perf_counter()
    beams = [beam(row) for row in rows]
    return 1000 * (time.perf_counter() - begin) / len(rows), [[output for _, output in outputs] for outputs in beams]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bundle", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--sentences", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    translator = Translator.load(arguments.bundle, "cpu")
    settings = translator.request("ctc-beam").settings
    model = translator.models["nat"]
    try_out()
    language_model = translator.models["ngram"].scorer
    lines = [line for line in read_lines(arguments.source) if line.strip()][: arguments.sentences]
    logits = []
    for ids in translator.subwords.encode_source(lines):
        scores, mask = slot_logits(model, model.encode(torch.tensor([[*ids, EOS]])))
        logits.append((scores.numpy(), mask.sum(1).numpy()))
    print("| beam | `min_ratio` | `beam_threshold` | Python | compiled |\n|---|---|---|---|---|")
    for width, min_ratio, threshold in ROWS:
        rows = [rows_of_arrays(*one, min_ratio, False)[0] for one in logits]
        about = model.blank, width, threshold, language_model, settings.lm_weight, settings.word_bonus
        rounds = [
            (timed(PrefixBeam(*about, fast=False), rows), timed(PrefixBeam(*about), rows))
            for _ in range(arguments.rounds)
        ]
        assert all(one == other for (_, one), (_, other) in rounds)
        slow, quick = (min(times) for times in zip(*((a, b) for (a, _), (b, _) in rounds), strict=True))
        print(f"| {width} | {min_ratio} | {threshold or '–'} | {slow:.2f} | {quick:.3f} |")


if __name__ == "__main__":
    main()
