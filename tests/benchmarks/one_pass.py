"""Translation in one pass: its loss, searches and ranking, by engine. CPU time on one thread. A benchmark.

    python tests/benchmarks/one_pass.py --bundle results/tatoeba/systems/ctc-raw/seed-1/bundle \
        --rescorer results/tatoeba/systems/teacher/seed-1/bundle \
        --rivals results/tatoeba/systems/student/seed-1/ctranslate2 results/tatoeba/systems/teacher/seed-1/ctranslate2 \
        --source results/tatoeba/corpus/test.de

It prints two tables in Markdown. Sentences of subwords go in, subwords come out; detokenisation is left out. Rows take
turns after all sentences, so that each works with its own weights in the processor's caches. A sentence's (a batch's)
time is the least over rounds of the process's CPU time, which other load disturbs little; a row's is the mean over
sentences. Other load still empties caches: the last figures want a quiet machine.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.data.lines import read_lines
from workflow_src.losses.ctc import ctc_loss
from workflow_src.serving.base import BaseTranslator
from workflow_src.serving.translator import Translator

Sources = list[list[int]]
Row = Callable[[Sources], Any]
ENGINES = {"eager": "eager", "ONNX Runtime float32": "fast", "ONNX Runtime int8": "fast-int8"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for cells in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(cells)} |", flush=True)
    print()


def least_times(rows: dict[str, Row], parts: list[Sources], rounds: int) -> dict[str, float]:
    """Seconds of CPU time a sentence, of each row."""
    best = {name: [float("inf")] * len(parts) for name in rows}
    for _ in range(rounds):
        for name, translate in rows.items():
            translate(parts[0])
            for number, part in enumerate(parts):
                began = time.process_time()
                translate(part)
                best[name][number] = min(best[name][number], time.process_time() - began)
    return {name: sum(times) / sum(map(len, parts)) for name, times in best.items()}


# Searches


def eager_row(networks, settings) -> Row:
    run = registry.import_object(registry.search_of(settings).run)

    def translate(sources):
        with torch.no_grad():
            return run(networks, pad(sources, eos=True), settings, False)

    return translate


def searches(translator: Translator, beam: int, threshold: float | None) -> dict[str, dict[str, Any]]:
    """Settings by row: the greedy search, and beams with the bundle's own language model."""
    tuned = {"lm_weight": 0.4, "word_bonus": 2.5}
    names = {"ctc-greedy": ("ctc-greedy", {}), f"ctc-beam {beam}": ("ctc-beam", {"beam": beam, **tuned})}
    if threshold:
        names[f"ctc-beam 20 within {threshold:g}"] = (
            "ctc-beam",
            {"beam": 20, "beam_threshold": threshold, "min_ratio": 0.05, **tuned},
        )
    return {row: translator.settings(name, **fields)[0] for row, (name, fields) in names.items()}


def rows_of(given: argparse.Namespace) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    rescorer = Translator.load(given.rescorer, "cpu", "float32", 1, "eager") if given.rescorer else None
    for title, mode in ENGINES.items():
        if title in given.skip:
            continue
        translator = Translator.load(given.bundle, "cpu", "float32", 1, mode)
        wanted = {name: (settings, {}) for name, settings in searches(translator, given.beam, given.threshold).items()}
        if rescorer:
            name = f"ctc-beam {given.beam}"
            ranked = wanted[name][0].model_copy(update={"rescorer": rescorer.description["system"]})
            wanted[f"{name}, ranked"] = (ranked, {"rescorer": rescorer})
        for name, (settings, systems) in wanted.items():
            networks = translator.networks(settings, systems)
            fast = translator._fast
            rows[f"{name} | {title}"] = (
                functools.partial(lambda s, f, c, n: f.search(s, c, False, n), f=fast, c=settings, n=networks)
                if fast
                else eager_row(networks, settings)
            )
    for folder in given.rivals:
        rival = Translator.load(folder, "cpu", "int8", 1)
        system = rival.description["system"]
        for search, fields in (("greedy", {}), ("beam", {"beam": 4})):
            settings, _ = rival.settings(search, **fields)
            rows[f"{system} {' '.join([search, *map(str, fields.values())])} | CTranslate2 int8"] = rival_row(
                rival, settings
            )
    return rows


def rival_row(rival: BaseTranslator, settings) -> Row:
    width, penalty = getattr(settings, "beam", 1), getattr(settings, "length_penalty", 1.0)
    return lambda sources: rival.single.search(sources, width, penalty, settings.max_length_ratio, len(sources), False)


def measure_searches(given: argparse.Namespace) -> None:
    rows = rows_of(given)
    subwords = Translator.load(given.bundle, "cpu", "float32", 1, "eager").subwords
    for batch in given.batches:
        lines = list(itertools.islice(read_lines(given.source), given.sentences * (1 if batch == 1 else 4)))
        sources = sorted(subwords.encode_source(lines), key=len)
        parts = [sources[i : i + batch] for i in range(0, len(sources), batch)]
        times = least_times(rows, parts, given.rounds if batch == 1 else max(2, given.rounds // 4))
        together = "one sentence at a time" if batch == 1 else f"{batch} sentences together"
        table(
            ("search", "engine", f"{together}: ms", "sentences a second"),
            [(*name.split(" | "), f"{1000 * value:.3f}", f"{1 / value:.0f}") for name, value in times.items()],
        )


# The loss


def whole_vocabulary(hidden, weight, bias, mask, target, blank):
    """torch's CTC loss, which wants log-probabilities of all slots and words at once."""
    scores = (hidden @ weight.T + bias).log_softmax(-1).transpose(0, 1)
    lengths = (target != 0).sum(1)
    return F.ctc_loss(scores, target, mask.sum(1), lengths, blank, "none", zero_infinity=True), None


def measure_loss(sentences: int, slots: int, vocabulary: int, dim: int, rounds: int) -> None:
    """Loss and gradients of an update's worth of sentences."""
    torch.manual_seed(0)
    hidden = torch.randn(sentences, slots, dim, requires_grad=True)
    weight = (0.05 * torch.randn(vocabulary, dim)).requires_grad_()
    bias = torch.zeros(vocabulary, requires_grad=True)
    mask = torch.arange(slots) < torch.randint(slots // 2, slots + 1, (sentences, 1))
    target = torch.randint(3, vocabulary - 1, (sentences, slots // 2))
    target[torch.arange(slots // 2) >= torch.randint(2, slots // 4 + 1, (sentences, 1))] = 0
    rows = {"this project": ctc_loss, "torch.nn.functional.ctc_loss": whole_vocabulary}
    best = dict.fromkeys(rows, float("inf"))
    for _ in range(rounds):
        for name, loss in rows.items():
            began = time.process_time()
            loss(hidden, weight, bias, mask, target, vocabulary - 1)[0].sum().backward()
            best[name] = min(best[name], time.process_time() - began)
    table(
        ("CTC loss and gradients", f"{sentences} sentences of {slots} slots, {vocabulary} symbols: ms"),
        [(name, f"{1000 * value:.0f}") for name, value in best.items()],
    )


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bundle", required=True, help="of a system whose searches are ctc-greedy and ctc-beam")
    made.add_argument("--rescorer", help="bundle of the system that ranks candidates")
    made.add_argument("--rivals", nargs="*", default=[], help="folders of another engine, for their greedy and beam 4")
    made.add_argument("--source", required=True, help="normalised text, one sentence a line")
    made.add_argument("--beam", type=int, default=5)
    made.add_argument("--threshold", type=float, default=3.0, help="beam_threshold of a row with beam 20; 0: no row")
    made.add_argument("--sentences", type=int, default=64, help="sentences one at a time; four times these in batches")
    made.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    made.add_argument("--rounds", type=int, default=20)
    made.add_argument("--skip", nargs="*", default=[], choices=list(ENGINES), help="engines to leave out")
    made.add_argument("--skip-loss", action="store_true")
    given = made.parse_args()
    torch.set_num_threads(1)
    if not given.skip_loss:
        measure_loss(130, 28, 4001, 128, max(2, given.rounds // 4))
    measure_searches(given)


if __name__ == "__main__":
    main()
