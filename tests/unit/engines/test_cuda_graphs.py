"""Programs of static shapes, which run uncaptured on CPUs, against eager inference."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from miniatures import cmlm, dat, ending, inat, lanmt, lvm, nat, ngram, refiner, searched, transformer
from sessions import sentences, translated
from threads import in_threads

from workflow_src import registry
from workflow_src.data.batching import pad
from workflow_src.decoding.search import open_search, own_networks
from workflow_src.decoding.settings import LM, RESCORER
from workflow_src.engines import cuda_graphs
from workflow_src.engines.choose import choose, why_not
from workflow_src.engines.cuda_graphs import CapturedSearches
from workflow_src.engines.programs import Program, bucket, rows
from workflow_src.engines.session import KEPT_SEARCHES
from workflow_src.spec import MODEL

CPU = torch.device("cpu")


def chosen(engine: str, device: str, family: str, precision: str = "float32"):
    declared = registry.families()[family]
    mode, declared_engine = choose(engine, device, precision, declared, registry.searches_of(declared))
    return mode, declared_engine.name


def test_fast_on_a_gpu_is_these_graphs_where_they_serve():
    assert chosen("fast", "cuda:0", "lvm", "bfloat16") == ("fast", "cuda_graphs")
    assert chosen("fast", "cuda", "nat", "bfloat16") == ("fast", "cuda_graphs")
    for family in ("nat", "lvm", "transformer"):
        assert chosen("auto", "cuda", family) == ("fast", "cuda_graphs")
        assert chosen("eager", "cuda", family) == ("eager", "eager")
    assert chosen("auto", "cuda", "seq2seq") == ("eager", "eager")


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_buckets_hold_what_is_put_into_them(length, limit):
    actual = bucket(min(length, limit), limit)
    assert min(length, limit) <= actual <= limit
    assert bucket(actual, limit) == actual
    # Less than 8 positions wasted on short sentences, less than half as many as needed on longer ones.
    assert actual - min(length, limit) < max(8, min(length, limit) / 2)


def test_there_are_few_buckets():
    assert len({bucket(length, 512) for length in range(1, 513)}) == 16
    assert [rows(n) for n in (1, 2, 3, 4, 5, 64, 65)] == [1, 2, 4, 4, 8, 64, 128]


NEWER = {"decoder_skip": True, "length_pooling": "attention"}
AXE = {"loss": "axe", "max_length_difference": 4}
CE = {"loss": "ce", "max_length_difference": 4}
CASES = {
    "ctc-greedy": ("nat", nat, {"blank_penalty": 0.5}),
    "ctc-greedy, uniform": ("nat", lambda: nat(copy_source="uniform"), {}),
    "argmax": ("nat", lambda: nat(**AXE), {}),
    "argmax, lengths": ("nat", lambda: nat(**AXE), {"lengths": 3}),
    "argmax, cross-entropy": ("nat", lambda: nat(**CE), {"length_quantile": 0.7, "lengthening": 0.2}),
    "argmax, masked": ("cmlm", cmlm, {}),
    "prior-mean": ("nat", lambda: nat(latent="vae", latent_dim=3), {}),
    "npd": ("nat", lambda: nat(latent="vae", latent_dim=3), {"draws": 3}),
    "mask-predict": ("cmlm", cmlm, {"iterations": 3, "length_beam": 2}),
    "ctc-beam": ("nat", nat, {"beam": 4, "word_bonus": 0.5}),
    "ctc-beam, draws": ("nat", lambda: nat(latent="vae", latent_dim=3), {"beam": 3, "draws": 2}),
    "iterative-refinement": ("inat", inat, {"passes": 2}),
    "graph-path": ("dat", dat, {}),
    "graph-path, positions": ("dat", lambda: dat(inputs="positions"), {"lookahead": 0.0, "merge_equal": True}),
    "graph-viterbi": ("dat", dat, {"length_penalty": 3.0}),
    "graph-beam": ("dat", dat, {"beam": 4, "word_bonus": 2.0}),
    "delta": ("lanmt", lanmt, {"steps": 2}),
    "delta, states": ("lanmt", lambda: lanmt(length_reads="states"), {"steps": 1, "lengthening": 0.3}),
    "delta, scaled input": (
        "lanmt",
        lambda: lanmt(decoder_input="scaled", decoder_skip=True, first_position=0),
        {"steps": 2},
    ),
    "prior-mean, lvm": ("lvm", lvm, {}),
    "prior-mean, ends": ("lvm", lambda: ending(**NEWER), {"length_quantile": 0.7, "lengthening": 0.5}),
    "delta, lvm": ("lvm", lvm, {"steps": 2}),
    "delta, ends": ("lvm", lambda: ending(**NEWER), {"steps": 1, "length_quantile": 0.1}),
    "score": ("lvm", lvm, {"steps": 3}),
    "score, large steps": ("lvm", lambda: ending(**NEWER), {"steps": 1, "step_size": 30.0}),
}


def case(name: str):
    """Networks by family, and the settings of a search."""
    family, make, settings = CASES[name]
    models, search = {family: make()}, name.partition(",")[0]
    return models | ({"score": refiner("score")} if search == "score" else {}), registry.searches()[search].settings(
        **settings
    )


@torch.no_grad()
def eager(models, sources, settings, scored: bool = False):
    return searched(own_networks(models, settings), pad(sources, eos=True), settings, scored)


# Of other searches, outputs without scores are compared on a GPU (tests/test_gpu.py).
WITHOUT_SCORES = ("prior-mean", "graph-path", "graph-viterbi", "graph-beam", "delta, lvm")


@pytest.mark.parametrize(
    ("name", "scored"), [*((name, True) for name in CASES), *((name, False) for name in WITHOUT_SCORES)]
)
def test_outputs_are_those_of_dynamic_shapes(name, scored):
    """The same programs serve other sentences of their buckets; spare rows and padding change nothing."""
    models, settings = case(name)
    engine, sources = CapturedSearches(models, CPU), sentences(40)
    expected = eager(models, sources, settings, scored)
    for size, number in ((1, 16), (3, 15), (40, 40)):
        batches = [translated(engine, sources[i : i + size], settings, scored) for i in range(0, number, size)]
        assert [row for hypotheses in batches for row in hypotheses.tokens] == expected.tokens[:number]
        if expected.steps:
            assert [count for hypotheses in batches for count in hypotheses.steps] == expected.steps[:number]
        if scored:
            scores = [score for hypotheses in batches for score in hypotheses.scores]
            assert scores == pytest.approx(expected.scores[:number], abs=1e-9) and len(set(scores)) > 6
    assert len({tuple(row) for row in expected.tokens}) > 8
    # 16 single sentences, five batches and one of all: three widths of sources and three sizes of batches.
    assert len(engine._programs) <= 9


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_programs_read_no_values(name):
    """Of tensors without values, as in a capture: reading one is an error."""
    models, settings = case(name)
    search = open_search(
        own_networks({name: model.to("meta") for name, model in models.items()}, settings), settings, False
    )
    outputs, _ = search.at_width(torch.full((4, 16), 5, device="meta"), 16)
    assert all(output.is_meta for output in outputs)


class Counted(Program):
    instances = 0

    def __init__(self, *words):
        super().__init__(*words)
        Counted.instances += 1


def test_outputs_that_need_more_than_those_before_get_a_wider_program(monkeypatch):
    models, settings = case("argmax")
    monkeypatch.setattr(cuda_graphs, "bucket", lambda length, _limit: length)
    monkeypatch.setattr(cuda_graphs, "Program", Counted)
    monkeypatch.setattr(Counted, "instances", 0)
    engine, sources = CapturedSearches(models, CPU), [[word] * 5 for word in range(3, 13)]
    expected = [eager(models, [source], settings).tokens[0] for source in sources]
    # The narrowest outputs first.
    order = sorted(range(10), key=lambda i: len(expected[i]))
    assert len(expected[order[0]]) < len(expected[order[-1]])
    for i in (*order, *order):
        assert translated(engine, [sources[i]], settings).tokens == [expected[i]]
    # Narrower programs are deleted.
    assert len(engine._programs) == 1 and 1 < Counted.instances <= len({len(row) for row in expected})


def test_a_program_is_made_once_for_its_shapes():
    models, settings = case("ctc-greedy")
    engine = CapturedSearches(models, CPU)
    # As wide as the first needs; the others are narrower.
    for source in ([8, 9, 10, 11, 12, 5, 6], [5], [5, 6, 7]):
        translated(engine, [source], settings)
    assert len(engine._programs) == 1
    other_settings = settings.model_copy(update={"blank_penalty": 3.0})
    assert translated(engine, [[5, 6, 7]], other_settings).tokens == eager(models, [[5, 6, 7]], other_settings).tokens
    assert len(engine._programs) == 2


def test_threads_share_programs():
    models, settings = case("ctc-greedy, uniform")
    engine = CapturedSearches(models, CPU)
    sources = [source for source in sentences(200) if len(source) == 6][:5]
    expected = [eager(models, [source], settings).tokens for source in sources]
    assert len(set(map(str, expected))) > 2
    wrong = []

    def work(number: int) -> None:
        for _ in range(50):
            if translated(engine, [sources[number]], settings).tokens != expected[number]:
                wrong.append(number)

    in_threads(work, len(sources))
    assert wrong == []


def test_programs_of_the_last_searches_are_kept():
    models, settings = case("ctc-greedy")
    engine = CapturedSearches(models, CPU)
    for number in range(2 * KEPT_SEARCHES):
        searched = settings.model_copy(update={"blank_penalty": float(number)})
        for source in ([5, 6, 7], [5] * 12):
            translated(engine, [source], searched)
    assert len(engine._programs) == 2 * KEPT_SEARCHES
    assert translated(engine, [[5, 6, 7]], settings).tokens == eager(models, [[5, 6, 7]], settings).tokens


@pytest.mark.parametrize("end", [False, True])
def test_the_longest_sentences_fit(end):
    model = lvm(max_positions=21, end_symbol=end)
    with torch.no_grad():
        model.length.outer.bias[-1] += 100
        # A word may stand where the end symbol is due.
        model.output_bias[2] -= 1000
    settings, sources = registry.searches()["delta"].settings(steps=1), [[7] * 20]
    expected = eager({"lvm": model}, sources, settings)
    assert translated(CapturedSearches({"lvm": model}, CPU), sources, settings).tokens == expected.tokens
    assert len(expected.tokens[0]) == 21


@torch.no_grad()
def test_a_beam_over_slots_works_with_other_systems_beside_one_graph():
    """Results depend on the given networks, not on earlier ones; settings that change no graph share one."""
    model, sources, search = nat(), sentences(12), registry.searches()["ctc-beam"]
    engine = CapturedSearches({"nat": model}, CPU)
    role_networks = [
        {LM: ngram(11, seed=1)},
        {LM: ngram(11, seed=2)},
        {LM: ngram(11, seed=1), RESCORER: transformer(target_size=11)},
        {RESCORER: transformer(target_size=11, seed=3)},
    ]
    outputs = []
    for other_networks, weight in itertools.product(role_networks, (0.5, 3.0)):
        settings = search.settings(beam=4, lm_weight=weight, word_bonus=0.5, **dict.fromkeys(other_networks, "other"))
        networks = {MODEL: model, **other_networks}
        expected = searched(networks, pad(sources, eos=True), settings, scored=False)
        for size in (1, 12):
            batches = [
                translated(engine, sources[i : i + size], settings, networks=networks) for i in range(0, 12, size)
            ]
            assert [row for hypotheses in batches for row in hypotheses.tokens] == expected.tokens
            assert [row for hypotheses in batches for row in hypotheses.candidates] == expected.candidates
        outputs.append(expected.tokens)
    assert (
        outputs[0] != outputs[1] != outputs[3] and outputs[0] != outputs[2] != outputs[4] and outputs[4] != outputs[6]
    )
    # A sentence by itself, in up to two widths, and all of them.
    assert len(engine._programs) <= 4


REFUSED = [
    ("tagger", "argmax", {}, "tagger"),
    ("cmlm", "mask-predict", {"rescorer": "teacher"}, "rescorer"),
    ("lvm", "delta", {"steps": 8, "stop_threshold": 0.5}, "stop_threshold"),
    ("transformer", "beam", {"language_model": "lm"}, "language_model"),
    ("energy", "energy", {}, "program"),
]


@pytest.mark.parametrize(("family", "search", "settings", "named"), REFUSED)
def test_what_is_not_served_is_said(family, search, settings, named):
    declared, settings = registry.engines()["cuda_graphs"], registry.searches()[search].settings(**settings)
    assert named in why_not(declared, registry.families()[family], settings)
