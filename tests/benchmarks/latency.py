"""One sentence at a time, from text to text: milliseconds of every engine, alternating in one process. A benchmark.

    python tests/benchmarks/latency.py --bundle results/tatoeba/systems/score/seed-1/bundle \
        --source results/tatoeba/corpus/test.de

`--bundle` may name several bundles, and `--search` what they are searched with, such as `ctc-beam,beam=20`; a bundle
is measured with the searches that it can do.

Every round translates all sentences by every row in turn; a sentence's time is its least over rounds, because other
load only slows down; a row's is the mean over sentences. `cpu_ms` is the same of the process's CPU time, which other
load disturbs less. `same` is the share of sentences with the eager engine's very words. `--ctranslate2` adds greedy
and beam search of an autoregressive system that was converted for CTranslate2, in 8 bits, on the same subwords.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable

from workflow_src.data.lines import read_lines
from workflow_src.serving.translator import Translator

SEARCHES = ["prior-mean", "delta,steps=1", "score,steps=1", "score,steps=4", "ctc-greedy", "graph-path"]


def rows_of(arguments: argparse.Namespace) -> dict[str, Callable[[str], str]]:
    """What to measure: name -> translate one line."""
    rows = {}
    for bundle, engine in itertools.product(arguments.bundle, arguments.engines):
        translator = Translator.load(bundle, "cpu", threads=arguments.threads, engine=engine)
        for words in arguments.search:
            search, *settings = words.split(",")
            if search in translator.searches:
                values = dict(setting.split("=") for setting in settings)
                request = translator.request(search, batch=1, **{key: json.loads(values[key]) for key in values})
                system = f" {bundle}" if len(arguments.bundle) > 1 else ""
                rows[f"{engine} {words}{system}"] = lambda line, t=translator, r=request: t.translate([line], r)[0]
    if arguments.ctranslate2:
        rows |= _autoregressive(arguments.ctranslate2, translator, arguments.threads)
    return rows


def _autoregressive(folder: str, translator: Translator, threads: int) -> dict[str, Callable[[str], str]]:
    import ctranslate2

    engine = ctranslate2.Translator(
        folder, "cpu", compute_type="int8", inter_threads=1, intra_threads=threads, max_queued_batches=-1
    )
    pieces = translator.subwords.pieces_target(range(translator.subwords.target_size))
    ids = {piece: number for number, piece in enumerate(pieces)}

    def translate(line: str, beam: int) -> str:
        # Converted systems of ours read the same joint vocabulary and add the end symbol themselves.
        words = [pieces[i] for i in translator.subwords.encode_source([line])[0]]
        results = engine.translate_batch([words], beam_size=beam, max_decoding_length=2 * len(words) + 10)
        return translator.text([[ids[piece] for piece in results[0].hypotheses[0]]])[0]

    return {f"ctranslate2 int8 beam {beam}": lambda line, b=beam: translate(line, b) for beam in (1, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", nargs="+", required=True)
    parser.add_argument("--search", nargs="+", default=SEARCHES)
    parser.add_argument("--source", required=True)
    parser.add_argument("--engines", nargs="+", default=["eager", "fast", "fast-int8"])
    parser.add_argument("--ctranslate2", help="folder of a converted autoregressive system")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    rows = rows_of(arguments)
    lines = list(itertools.islice(read_lines(arguments.source), arguments.sentences))
    wall = {name: [float("inf")] * len(lines) for name in rows}
    cpu = {name: [float("inf")] * len(lines) for name in rows}
    texts: dict[str, list[str]] = {}
    for _ in range(arguments.rounds):
        for name, translate in rows.items():
            for line in lines[:3]:
                translate(line)
            texts[name] = []
            for number, line in enumerate(lines):
                began, cpu_began = time.perf_counter(), time.process_time()
                texts[name].append(translate(line))
                cpu[name][number] = min(cpu[name][number], time.process_time() - cpu_began)
                wall[name][number] = min(wall[name][number], time.perf_counter() - began)
    for name in rows:
        seconds = sum(wall[name]) / len(lines)
        eager = texts.get(f"eager {name.split(' ', 1)[1]}")
        same = None if eager is None else sum(map(str.__eq__, texts[name], eager)) / len(lines)
        figures = {"ms": round(1000 * seconds, 3), "cpu_ms": round(1000 * sum(cpu[name]) / len(lines), 3)}
        print(json.dumps({"row": name, **figures, "sentences_per_second": round(1 / seconds, 1), "same": same}))


if __name__ == "__main__":
    main()
