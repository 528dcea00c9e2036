"""Why a one-pass system falls short: figures of its outputs, its graph and its drafts. A benchmark.

    python tests/benchmarks/one_pass_measures.py --bundle results/tatoeba-graphs/bundles/dat-raw/seed-1 \
        --verifier results/tatoeba-graphs/bundles/teacher/seed-1 \
        --source results/tatoeba/corpus/dev.de --reference results/tatoeba/corpus/dev.reference.en

Of each sentence: subwords of the output for each of the reference; of slots, the entropy in nats of a symbol, of all
slots and of those whose best symbol is a word, and the share of the latter; of graphs, the share of vertices on the
path, the entropy in nats of the next vertex and the log-probability of the best word on it; the length of the draft's
beginning that greedy search of the verifier puts out too, and the share of sentences whose first words up to each
position are all accepted, of those that are as long.
"""

from __future__ import annotations

import argparse
from statistics import mean

import torch

from workflow_src.data.lines import read_lines
from workflow_src.decoding.ctc import slot_logits
from workflow_src.decoding.graphs import graph_of
from workflow_src.decoding.search import open_search
from workflow_src.registry import searches
from workflow_src.searches.graph_path.search import path_of
from workflow_src.serving.translator import Translator
from workflow_src.types import EOS

SEARCHES = {"nat": "ctc-greedy", "dat": "graph-path"}
POSITIONS = (1, 2, 4, 6, 8, 12, 16)


def slot_figures(model, ids: list[int]) -> dict[str, float]:
    """Figures of the slots of a source without its end symbol; no figure of words where every slot is blank."""
    logits, mask = slot_logits(model, model.encode(torch.tensor([[*ids, EOS]])))
    scores = logits[mask].log_softmax(-1)
    entropies = -(scores.exp() * scores.clamp(min=-100)).sum(-1)
    words = scores.argmax(-1) != model.blank
    return {
        "share of slots that are words": words.float().mean().item(),
        "entropy of a slot": entropies.mean().item(),
        **({"entropy of a slot that is a word": entropies[words].mean().item()} if words.any() else {}),
    }


def graph_figures(model, ids: list[int]) -> dict[str, float]:
    """Figures of the lookahead path of a source without its end symbol; no figure of words where there are none."""
    source = torch.tensor([[*ids, EOS]])
    logits, transitions, _ = graph_of(model, model.encode(source))
    search = open_search({"model": model}, searches()["graph-path"].settings())
    path = path_of(search(source)[1][0].tolist())
    moves = transitions[0, path[:-1]]
    best = logits[0, path[1:-1]].log_softmax(-1).amax(-1)
    return {
        "share of vertices on the path": len(path) / logits.size(1),
        "entropy of the next vertex": -(moves.exp() * moves.clamp(min=-100)).sum(-1).mean().item(),
        **({"log-probability of the best word": best.mean().item()} if len(best) else {}),
    }


def accepted(draft: list[int], output: list[int]) -> int:
    """The number of first words that are the same."""
    return next(
        (place for place, (word, other) in enumerate(zip(draft, output, strict=False)) if word != other),
        min(len(draft), len(output)),
    )


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bundle", required=True, help="of a one-pass system with slots or a graph")
    parser.add_argument("--verifier", help="bundle of an autoregressive system with the same subwords")
    parser.add_argument("--source", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--sentences", type=int, default=500)
    arguments = parser.parse_args()
    translator = Translator.load(arguments.bundle, "cpu", engine="eager")
    family = next(name for name in SEARCHES if name in translator.models)
    lines = read_lines(arguments.source), read_lines(arguments.reference)
    pairs = [pair for pair, _ in zip(zip(*lines, strict=True), range(arguments.sentences), strict=False) if all(pair)]
    sources = translator.subwords.encode_source([source for source, _ in pairs])
    references = translator.subwords.encode_target([reference for _, reference in pairs])
    drafts = translator.search_ids(sources, translator.request(searches()[SEARCHES[family]].settings())).tokens
    print(f"subwords of outputs for each of the references: {sum(map(len, drafts)) / sum(map(len, references)):.3f}")
    measure = {"nat": slot_figures, "dat": graph_figures}[family]
    figures = [measure(translator.models[family], ids) for ids in sources]
    for name in dict.fromkeys(name for row in figures for name in row):
        print(f"{name}: {mean(row[name] for row in figures if name in row):.3f}")
    if arguments.verifier is None:
        return
    verifier = Translator.load(arguments.verifier, "cpu", engine="eager")
    outputs = verifier.search_ids(sources, verifier.request(searches()["greedy"].settings())).tokens
    lengths = [accepted(draft, output) for draft, output in zip(drafts, outputs, strict=True)]
    print(f"drafts that are the whole output: {mean(d == o for d, o in zip(drafts, outputs, strict=True)):.3f}")
    print(f"words of the output that the draft begins with: {sum(lengths) / sum(map(len, outputs)):.3f}")
    for position in POSITIONS:
        long = [length >= position for length, output in zip(lengths, outputs, strict=True) if len(output) >= position]
        if long:
            print(f"all accepted up to position {position}: {mean(long):.3f} of {len(long)}")


if __name__ == "__main__":
    main()
