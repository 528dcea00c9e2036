"""Stages on corpora of growing size: pairs a second with one thread and with two, peak memory, and how it grows.

    python tests/benchmarks/large_corpus.py [--sizes 45000 450000 4500000] [--threads 1 2] [--stages clean]
        [--folder /big/disk]

`clean` has all filters but language, `language` that one alone; `moses` normalises with Moses tokenisation, `normalise`
without; `split` normalises and splits by connected groups. With several sizes and one and two threads, the output ends
with a forecast for 10 million pairs on 16 cores.

Pairs are made of random words with the frequencies of text (Zipf), 5 to 45 words a side; encoding takes subwords of
the smallest corpus. Each stage runs in a process of its own, as its rule runs it, and starts others for its threads.
`learn` always has the four threads of SentencePiece. Everything lies in a temporary folder that is removed; the largest
corpus takes about 6 GB.
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

from workflow_src.data.learn_subwords import MOST_LINES

PROJECT = Path(__file__).resolve().parents[2]
LANGUAGES = ("de", "en")
LIMIT = 2048  # MB that a process may take
STAGES = ("clean", "language", "normalise", "moses", "split", "learn", "encode")
CHEAP = "garbled invisible length longest_word letters script capitals copies numbers addresses".split()
FILTERS = {
    "clean": [
        *((name, {}) for name in CHEAP),
        ("ratio", {"max_words": 10, "max_characters": 20}),
        ("repeated", {"source": 5, "target": 5}),
    ],
    "language": [("language", {})],
}

# The corpus and the cores that a forecast is for.
FORECAST_PAIRS, FORECAST_CORES = 10_000_000, 16
# Seconds by the clock, CPU seconds of the stage's own process, and megabytes, by stage and threads.
Results = dict[tuple[str, int], tuple[float, float, float]]


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
    """Seconds by the clock, CPU seconds of its own process, and the most memory (MB) of a process, of a stage."""
    # The folder of these tests, which is not on the path of a script in it.
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from stage_words import stage_line

    line = stage_line(stage, arguments, Path(tempfile.mkdtemp()))
    command = [sys.executable, "-m", f"workflow_src.stages.{stage}", *line]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)}
    began = time.perf_counter()
    process = subprocess.Popen(command, cwd=PROJECT, env=environment, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{stage} failed: {' '.join(command)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def measure(pairs: int, folder: Path, subwords: Path, stages: list[str], threads: list[int]) -> Results:
    """Seconds, CPU seconds and peak memory (MB) of a process, by stage and threads."""
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
    counts = {split: pairs if split == "train" else 100 for split in ("train", "dev", "test")}
    description = {"pairs": counts, "dropped": {split: {} for split in counts}, "places": {}}
    description |= {"dataset": "random", "languages": LANGUAGES}
    (raw / "raw.json").write_text(json.dumps(description))
    alone = {"pairs": {"train": pairs}, "dropped": {"train": {}}}
    (raw / "train.json").write_text(json.dumps(description | alone))
    languages = {"languages": LANGUAGES}
    rules = {"max_words": 60, "max_length_ratio": 9}
    settings = {name: languages | {"clean": FILTERS[name]} for name in FILTERS}
    settings |= {
        "normalise": languages | {"normalisation": rules},
        "moses": languages | {"normalisation": rules | {"moses_tokenise": True}},
        "split": languages
        | {
            "normalisation": rules,
            "split": {"method": "connected-groups", "dev": 100, "test": 100, "key_language": "de"},
        },
        "learn": {"vocabulary_size": 8000},
        "encode": {"max_length": 256},
    }
    modules = {
        "clean": "clean",
        "language": "clean",
        "moses": "normalise",
        "split": "normalise",
        "learn": "learn_subwords",
    }
    texts = ["--source", str(corpus / "train.de"), "--target", str(corpus / "train.en")]
    words = {name: ["--raw", str(raw / "raw.json"), "--summary", str(folder / name / "raw.json")] for name in stages}
    words["split"] = ["--raw", str(raw / "train.json"), "--summary", str(folder / "split" / "corpus.json")]
    words["normalise"] = ["--raw", str(raw / "raw.json"), "--summary", str(corpus / "corpus.json")]
    words["learn"] = [*texts, "--output-folder", str(folder / "subwords")]
    words["encode"] = ["--subwords", str(subwords), "--languages", "de", "en", "--split", "train", *texts]
    words["encode"] += ["--output-prefix", str(folder / "encoded/train")]

    def run_stage(name: str, count: int) -> tuple[float, float, float]:
        options = ["--settings", json.dumps(settings[name]), "--threads", str(count)]
        return run(modules.get(name, name), *options, *words[name])

    if {"learn", "encode"} & set(stages):
        run_stage("normalise", max(threads))
    if "encode" in stages and not subwords.exists():
        run("learn_subwords", "--settings", json.dumps(settings["learn"]), *texts, "--output-folder", str(subwords))
    results: Results = {}
    for name in stages:
        for count in threads if name != "learn" else [4]:
            results[name, count] = run_stage(name, count)
    return results


def forecast(results: dict[int, Results]) -> dict[str, float]:
    """Seconds of each stage for FORECAST_PAIRS on FORECAST_CORES, by what grows from the smallest corpus to the last.

    One core does what the stage's own process did with two threads; the others share what one thread took in all.
    Subwords are learned from so many lines at most, as if by one core.
    """
    first, last = min(results), max(results)
    seconds = {}
    for stage in dict.fromkeys(stage for stage, _ in results[last]):
        growth = {
            threads: (results[last][stage, threads][1] - results[first][stage, threads][1]) / (last - first)
            for threads in (1, 2, 4)
            if (stage, threads) in results[last]
        }
        if stage == "learn":
            seconds[stage] = growth[4] * min(FORECAST_PAIRS, MOST_LINES // 2)
        elif {1, 2} <= growth.keys():
            seconds[stage] = max(growth[2], growth[1] / (FORECAST_CORES - 1)) * FORECAST_PAIRS
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[45_000, 450_000, 4_500_000])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, help="where there is room; default: that of temporary files")
    arguments = parser.parse_args()
    # Encoding reads what normalisation without Moses leaves.
    stages = [name for name in STAGES if name in arguments.stages]
    results: dict[int, Results] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        subwords = Path(folder, "subwords")
        for pairs in sorted(arguments.sizes):
            with tempfile.TemporaryDirectory(dir=folder) as place:
                results[pairs] = measure(pairs, Path(place, "data"), subwords, stages, arguments.threads)
            for (stage, threads), (seconds, cpu_seconds, memory) in results[pairs].items():
                print(
                    f"{pairs:>9,} pairs  {stage:<9}  {threads} threads  {pairs / seconds:>8,.0f} pairs/s  "
                    f"{cpu_seconds:>6,.1f} CPU s  {memory:>6,.0f} MB",
                    flush=True,
                )
    first, last = min(results), max(results)
    for key in results[first] if first != last else ():
        growth = (results[last][key][2] - results[first][key][2]) / (last - first) * 1e6
        print(f"{key[0]}, {key[1]} threads: {growth:.1f} MB more for each million pairs")
    for stage, seconds in forecast(results).items() if first != last else ():
        print(f"{stage}: {seconds / 60:.1f} minutes for {FORECAST_PAIRS:,} pairs on {FORECAST_CORES} cores")
    too_much = [key[0] for by_stage in results.values() for key, (*_, memory) in by_stage.items() if memory > LIMIT]
    if too_much:
        sys.exit(f"more than {LIMIT} MB: {', '.join(too_much)}")


if __name__ == "__main__":
    main()
