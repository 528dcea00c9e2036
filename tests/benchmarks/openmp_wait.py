"""Training speed by how OpenMP's threads wait, alone and beside a busy process. A benchmark: nothing is asserted.

    python tests/benchmarks/openmp_wait.py --train results/tatoeba/encoded/raw/train

Threads that wait for others spin for a while before they sleep. Where another process wants a core, the one that they
wait for does not run, and spinning keeps it from its core. PyTorch's wheels for CPUs use GNU's libgomp, which reads
OMP_WAIT_POLICY and GOMP_SPINCOUNT when it is loaded; KMP_BLOCKTIME is Intel's and LLVM's. Each training is a process
of its own (`training_speed.py`), and all settings take turns, so that other load hits them alike. Prints target tokens
a second for each setting (medians over rounds), what a setting costs alone, and how much faster it is beside the
neighbour. `busy_cores_before` says how busy the machine was by itself: results count where it is near 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SETTINGS = (
    {},
    {"OMP_WAIT_POLICY": "PASSIVE"},
    {"OMP_WAIT_POLICY": "ACTIVE"},
    {"GOMP_SPINCOUNT": "0"},
    {"GOMP_SPINCOUNT": "1000"},
    {"GOMP_SPINCOUNT": "10000"},
    {"GOMP_SPINCOUNT": "100000"},
    {"KMP_BLOCKTIME": "0"},
    {"KMP_BLOCKTIME": "1"},
)
TRAINING = Path(__file__).with_name("training_speed.py")
ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Processes that use a core each."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def tokens_a_second(given: argparse.Namespace, setting: dict[str, str]) -> float:
    plain = {name: value for name, value in os.environ.items() if name not in (*VARIABLES, "OMP_NUM_THREADS")}
    words = ["--train", given.train, "--family", given.family, "--threads", given.threads, "--steps", given.steps]
    done = subprocess.run(
        [sys.executable, str(TRAINING), *map(str, words), "--warmup", str(given.warmup), "--device", "cpu"],
        env={**plain, "PYTHONPATH": str(ROOT), **setting},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])["target_tokens_per_second"]


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--train", required=True, help="prefix of an encoded training corpus")
    made.add_argument("--family", default="lvm")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--steps", type=int, default=100)
    made.add_argument("--warmup", type=int, default=20)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--neighbours", type=int, default=1, help="busy processes in the second case")
    made.add_argument("--only", nargs="+", help='settings by their words, such as "OMP_WAIT_POLICY=PASSIVE"')
    given = made.parse_args()
    words = {" ".join(f"{name}={value}" for name, value in one.items()) or "default": one for one in SETTINGS}
    if given.only:
        if unknown := set(given.only) - set(words):
            made.error(f"unknown setting {sorted(unknown)[0]}; allowed: {', '.join(words)}")
        words = {word: one for word, one in words.items() if word in given.only}
    load = psutil.cpu_percent(interval=2) / 100 * (psutil.cpu_count() or 1)
    found: dict[tuple[str, int], list[float]] = {(word, n): [] for word in words for n in (0, given.neighbours)}
    for _ in range(given.rounds):
        for word, setting in words.items():
            for count in (0, given.neighbours):
                with neighbours(count):
                    found[word, count].append(tokens_a_second(given, setting))
    first = next(iter(words))
    median = {key: statistics.median(values) for key, values in found.items()}
    for word in words:
        alone, beside = median[word, 0], median[word, given.neighbours]
        figures = {"alone": round(alone), "beside": round(beside), "busy_cores_before": round(load, 2)}
        figures["cost_alone"] = round(1 - alone / median[first, 0], 3)
        figures["gain_beside"] = round(beside / median[first, given.neighbours], 2)
        print(json.dumps({"setting": word, **figures}), flush=True)


if __name__ == "__main__":
    main()
