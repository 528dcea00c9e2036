"""Clean, normalise and encode on corpora of growing size: pairs a second on one core, peak memory, and how it grows.

    python tests/benchmarks/large_corpus.py [--sizes 45000 450000 4500000] [--stages clean] [--folder /big/disk]

`clean` has all filters but language, `language` that one alone.

Pairs are made of random words with the frequencies of text (Zipf), 5 to 45 words a side; subwords are learnt once, on
the smallest corpus. Each stage runs in a process of its own, with one thread, as its rule runs it. Everything lies in a
temporary folder that is removed; the largest corpus takes about 6 GB.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PROJECT = Path(__file__).resolve().parents[2]
LANGUAGES = ("de", "en")
LIMIT = 2048  # MB that a stage may take
STAGES = ("clean", "language", "normalise", "encode")
CHEAP = "garbled invisible length longest_word letters script capitals copies numbers addresses".split()
FILTERS = {
    "clean": [
        *((name, {}) for name in CHEAP),
        ("ratio", {"max_words": 10, "max_characters": 20}),
        ("repeated", {"source": 5, "target": 5}),
    ],
    "language": [("language", {})],
}


def words(seed: int, count: int = 30_000) -> list[str]:
    """Made-up words of 2 to 12 letters."""
    draw = np.random.default_rng(seed)
    letters = np.array(list("enirsatdhulgcmobwfkzpvjyxq"))
    weights = 1 / np.arange(1, len(letters) + 1)
    lengths = draw.integers(2, 13, count)
    return ["".join(draw.choice(letters, n, p=weights / weights.sum())) for n in lengths]


def write_text(path: Path, pairs: int, seed: int) -> None:
    """Lines of 5 to 45 words; the more frequent a word, the earlier in the list."""
    lexicon, draw = np.array(words(seed), dtype=object), np.random.default_rng(seed + 1)
    weights = 1 / np.arange(1, len(lexicon) + 1)
    cumulative = np.cumsum(weights / weights.sum())
    with open(path, "w", encoding="utf-8") as file:
        for start in range(0, pairs, 50_000):
            lengths = draw.integers(5, 46, min(50_000, pairs - start))
            drawn = lexicon[np.searchsorted(cumulative, draw.random(int(lengths.sum())))]
            ends = np.cumsum(lengths)
            file.writelines(" ".join(drawn[a:b]) + " .\n" for a, b in zip([0, *ends[:-1]], ends, strict=True))


def run(stage: str, *arguments: str) -> tuple[float, float, float]:
    """Seconds by the clock, seconds of computing, and the most memory (MB) of a stage."""
    command = [sys.executable, "-m", f"workflow_src.stages.{stage}", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=PROJECT, env=environment, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{stage} failed: {' '.join(command)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(pairs: int, folder: Path, subwords: Path, stages: list[str]) -> dict[str, tuple[float, float]]:
    """Pairs a second of computing and peak memory (MB), by stage."""
    raw, corpus = folder / "raw", folder / "corpus"
    raw.mkdir(parents=True)
    texts = [
        (raw / f"{split}.{code}", pairs if split == "train" else 100, 10 * number + seed)
        for number, code in enumerate(LANGUAGES)
        for seed, split in enumerate(("train", "dev", "test"))
    ]
    # In another process: what this one takes would count as its children's, which begin as copies of it.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.starmap(write_text, texts)
    by_stage = {}
    counts = {split: pairs if split == "train" else 100 for split in ("train", "dev", "test")}
    description = {"pairs": counts, "dropped": {split: {} for split in counts}, "places": {}}
    description |= {"dataset": "random", "languages": LANGUAGES}
    (raw / "raw.json").write_text(json.dumps(description))
    for name in [stage for stage in stages if stage in FILTERS]:
        settings = json.dumps({"source": "de", "target": "en", "clean": FILTERS[name]})
        words = ["--settings", settings, "--raw-folder", str(raw), "--output-folder", str(folder / name)]
        _, seconds, memory = run("clean", *words)
        by_stage[name] = (pairs / seconds, memory)
    if not set(stages) & {"normalise", "encode"}:
        return by_stage
    rules = {"max_words": 60, "max_length_ratio": 9}
    settings = json.dumps({"source": "de", "target": "en", "normalisation": rules, "split": None})
    _, seconds, memory = run(
        "normalise", "--settings", settings, "--raw-folder", str(raw), "--output-folder", str(corpus)
    )
    by_stage["normalise"] = (pairs / seconds, memory)
    texts = ["--source", str(corpus / "train.de"), "--target", str(corpus / "train.en")]
    if not subwords.exists():
        run("learn_subwords", "--settings", '{"vocabulary_size": 8000}', *texts, "--output-folder", str(subwords))
    words = ["--settings", '{"max_length": 256}', "--subwords", str(subwords), "--split", "train", *texts]
    _, seconds, memory = run("encode", *words, "--output-prefix", str(folder / "encoded/train"))
    by_stage["encode"] = (pairs / seconds, memory)
    return by_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[45_000, 450_000, 4_500_000])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--folder", type=Path, help="where there is room; default: that of temporary files")
    arguments = parser.parse_args()
    results: dict[int, dict[str, tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        subwords = Path(folder, "subwords")
        for pairs in sorted(arguments.sizes):
            with tempfile.TemporaryDirectory(dir=folder) as place:
                results[pairs] = measure(pairs, Path(place, "data"), subwords, arguments.stages)
            for stage, (rate, memory) in results[pairs].items():
                print(f"{pairs:>9,} pairs  {stage:<9}  {rate:>8,.0f} pairs/s a core  {memory:>6,.0f} MB", flush=True)
    first, last = min(results), max(results)
    for stage in results[first] if first != last else ():
        growth = (results[last][stage][1] - results[first][stage][1]) / (last - first) * 1e6
        print(f"{stage}: {growth:.1f} MB more for each million pairs")
    if too_much := [s for by_stage in results.values() for s, (_, memory) in by_stage.items() if memory > LIMIT]:
        sys.exit(f"more than {LIMIT} MB: {', '.join(too_much)}")


if __name__ == "__main__":
    main()
