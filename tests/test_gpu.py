"""The device changes no output: searches give the same on a GPU and a CPU; every family takes an update on a GPU."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from graphs import random_graphs
from miniatures import (
    beam_search,
    cmlm,
    dat,
    ending,
    greedy,
    inat,
    lanmt,
    lvm,
    nat,
    pairs,
    refiner,
    searched,
    seq2seq,
    tagger,
    tokens,
    transformer,
    translate,
)
from sessions import translated

from workflow_src import registry
from workflow_src.config.training import TrainingConfig
from workflow_src.data.batching import pad
from workflow_src.decoding.search import open_search, own_networks
from workflow_src.decoding.settings import DRAFTER
from workflow_src.engines.cuda_graphs import CapturedSearches
from workflow_src.families.build import build_objective
from workflow_src.losses.axe import axe_loss
from workflow_src.losses.ctc import Lattice, ctc_loss, own_symbols, viterbi
from workflow_src.losses.paths import Paths, best_path, posterior
from workflow_src.runtime.device import choose
from workflow_src.spec import MODEL
from workflow_src.training.update import Task, Updater
from workflow_src.types import PAD, TrainingContext

pytestmark = pytest.mark.gpu
SOURCE = pairs([3, 9, 1, 6], [4, 5, 2, 7]).source


def both(search):
    """Tokens of a search on the CPU and on the GPU, in float64, where rounding decides no comparison."""
    runtime = choose("cuda", "float32")
    return search(torch.device("cpu")).tokens, search(runtime.device).tokens


@pytest.mark.parametrize("beam", [1, 4])
def test_autoregressive_searches_agree(beam):
    def search(device):
        model = copy.deepcopy(transformer()).to(device)
        return greedy(model, SOURCE.to(device)) if beam == 1 else beam_search(model, SOURCE.to(device), beam)

    on_cpu, on_gpu = both(search)
    assert on_cpu == on_gpu


@pytest.mark.parametrize("name", ["prior-mean", "delta", "score", "energy"])
def test_latent_searches_agree(name):
    def search(device):
        network = copy.deepcopy(refiner(name)).to(device) if name in ("score", "energy") else None
        return translate(copy.deepcopy(lvm()).to(device), SOURCE.to(device), name, 3, refiner=network)

    on_cpu, on_gpu = both(search)
    assert on_cpu == on_gpu


SLOTS = {
    "ctc-greedy": {},
    "ctc-greedy, blank penalty": {"blank_penalty": 1.5},
    "ctc-beam": {"beam": 4, "min_ratio": 0.02, "word_bonus": 0.5},
    "ctc-beam, draws": {"beam": 3, "min_ratio": 0.1, "draws": 3, "temperature": 2.0},
    "argmax": {"lengths": 3},
}


@pytest.mark.parametrize("case", SLOTS)
def test_searches_over_slots_agree(case):
    name, size = case.partition(",")[0], 13
    declared = registry.searches()[name]
    latents = {"latent": "vae", "latent_dim": 3} if case.endswith("draws") else {}
    latents |= {"loss": "axe", "max_length_difference": 4} if name == "argmax" else {}
    source, hypotheses = tokens([3, 9, 1, 6], size, end=True), []

    def search(device):
        model = nat(size, size, seed=4, **latents).to(device)
        opened = open_search({MODEL: model}, declared.settings(**SLOTS[case]))
        hypotheses.append(opened.translate(source.to(device)))
        return hypotheses[-1]

    on_cpu, on_gpu = both(search)
    assert on_cpu == on_gpu and len({word for row in on_cpu for word in row}) > 1
    assert hypotheses[0].scores == pytest.approx(hypotheses[1].scores, abs=1e-6)


NEWER = {"decoder_skip": True, "length_pooling": "attention"}
CAPTURED = {
    "ctc-greedy": ("nat", nat, {"blank_penalty": 0.5}),
    "argmax": ("nat", lambda: nat(loss="axe", max_length_difference=4), {"lengths": 3}),
    "argmax, cross-entropy": ("nat", lambda: nat(loss="ce", max_length_difference=4), {}),
    "argmax, masked": ("cmlm", cmlm, {}),
    "npd": ("nat", lambda: nat(latent="vae", latent_dim=3), {"draws": 3}),
    "mask-predict": ("cmlm", cmlm, {"iterations": 3, "length_beam": 2}),
    "iterative-refinement": ("inat", inat, {"passes": 2}),
    "ctc-beam": ("nat", nat, {"beam": 4, "word_bonus": 0.5}),
    "ctc-beam, draws": ("nat", lambda: nat(latent="vae", latent_dim=3), {"beam": 3, "draws": 2}),
    "delta": ("lanmt", lanmt, {"steps": 2}),
    "prior-mean": ("lvm", lvm, {}),
    "delta, ends": ("lvm", lambda: ending(**NEWER), {"steps": 3, "lengthening": 0.3}),
    "score": ("lvm", lambda: ending(**NEWER), {"steps": 3, "lengthening": 0.3}),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_captured_searches_translate_like_dynamic_shapes(name):
    """Of every family: replayed for other sentences than those of the capture, and of other sizes."""
    family, make, settings = CAPTURED[name]
    runtime, declared = choose("cuda", "float32"), registry.searches()[name.partition(",")[0]]
    models = {family: make()} | ({"score": refiner("score")} if declared.name == "score" else {})
    settings = declared.settings(**settings)
    on_gpu = {name: copy.deepcopy(model).to(runtime.device) for name, model in models.items()}
    engine = CapturedSearches(on_gpu, runtime.device)
    sources = [row[row > 2].tolist() for row in pairs([3, 9, 1, 6, 14, 2, 7], [1] * 7).source]
    search = open_search(own_networks(models, settings), settings, scored=False)
    expected = search.translate(pad(sources, eos=True)).tokens
    for size in (1, 3):
        by_batch = [translated(engine, sources[i : i + size], settings).tokens for i in range(0, 7, size)]
        assert [row for rows in by_batch for row in rows] == expected
    assert engine._programs and all(program.graph is not None for program in engine._programs.values())


@pytest.mark.parametrize("search", ["greedy", "beam", "verified"])
def test_captured_autoregressive_searches_agree(search):
    """With the eager searches of the CPU, in float64; programs are replayed for other sentences than their first."""
    runtime, settings = choose("cuda", "float32"), registry.searches()[search].settings()
    sources = [row[row > 2].tolist() for row in pairs([3, 9, 1, 6, 14, 2, 7], [1] * 7).source]
    networks = {MODEL: transformer(seed=5)} | ({DRAFTER: nat(13, 12)} if search == "verified" else {})
    on_gpu = {role: copy.deepcopy(network).to(runtime.device) for role, network in networks.items()}
    engine = CapturedSearches({"transformer": on_gpu[MODEL]}, runtime.device)
    for batch in (sources, sources[:1], sources[1:2], sources[:3], sources[3:6], sources):
        expected = searched(networks, pad(batch, eos=True), settings)
        actual = translated(engine, batch, settings, scored=True, networks=on_gpu)
        assert actual.tokens == expected.tokens and actual.scores == pytest.approx(expected.scores, abs=1e-9)
    programs = [*engine._steps._programs.values(), *engine._blocks._programs.values()]
    assert any(program.graph is not None for program in programs)


def _on(device, name):
    """Losses of an alignment and the gradients of its layer, computed on a device in float64."""
    generator = torch.Generator().manual_seed(7)
    shapes = ((4, 30, 8), (40, 8), (40,))
    layer = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    hidden, weight, bias = (tensor.to(device).requires_grad_() for tensor in layer)
    slots, lengths = torch.tensor([30, 22, 17, 5]), torch.tensor([11, 13, 1, 0])
    target = (torch.randint(4, 39, (4, 13), generator=generator) * (torch.arange(13) < lengths[:, None])).to(device)
    mask = (torch.arange(30) < slots[:, None]).to(device)
    if name == "ctc":
        losses, *_ = ctc_loss(hidden, weight, bias, mask, target, 39)
    else:
        losses, _ = axe_loss(hidden, weight, bias, mask, target, 39, 1.5)
    gradients = torch.autograd.grad(losses.sum(), [hidden, weight, bias])
    return [tensor.detach().cpu() for tensor in (losses, *gradients)]


@pytest.mark.parametrize("name", ["ctc", "axe"])
def test_losses_over_alignments_and_their_gradients_agree(name):
    for on_cpu, on_gpu in zip(_on("cpu", name), _on("cuda", name), strict=True):
        assert torch.allclose(on_cpu, on_gpu, atol=1e-10)


def test_sums_and_maxima_over_paths_agree():
    vertices = torch.tensor([12, 9, 7, 2])
    emissions, transitions = random_graphs(vertices, 9)
    targets = Paths.of(torch.tensor([[5, 6, 7, 5, 5, 6, 8], [5, 6] + [PAD] * 5, [5] * 7, [PAD] * 7]), vertices)
    on_gpu = emissions.to("cuda"), transitions.to("cuda"), Paths(targets.symbols.to("cuda"), vertices.to("cuda"))
    expected, actual = posterior(emissions, transitions, targets), posterior(*on_gpu)
    assert torch.allclose(actual.total.cpu()[targets.reachable], expected.total[targets.reachable])
    assert torch.allclose(actual.visits.cpu(), expected.visits, atol=1e-10)
    assert torch.allclose(actual.transitions.cpu(), expected.transitions, atol=1e-10)
    assert torch.equal(
        best_path(*on_gpu).cpu()[targets.reachable], best_path(emissions, transitions, targets)[targets.reachable]
    )


def test_best_alignments_agree():
    generator = torch.Generator().manual_seed(8)
    lengths = torch.tensor([6, 9, 0])
    target = torch.randint(4, 9, (3, 9), generator=generator) * (torch.arange(9) < lengths[:, None])
    slots = torch.tensor([20, 14, 8])
    emissions = torch.randn(3, 20, own_symbols(target, 9).size(1), generator=generator, dtype=torch.float64)
    on_cpu, on_gpu = (
        viterbi(emissions.to(device), Lattice(target.to(device), slots.to(device))).cpu() for device in ("cpu", "cuda")
    )
    assert torch.equal(on_cpu, on_gpu)


UPDATED = [
    *("transformer", "seq2seq", "lvm", "score", "energy", "nat", "dat", "cmlm", "lanmt", "inat", "tagger"),
    *("inference-network", "inference-tagger", "lvm-newer", "score-newer", "dat-newer"),
]


@pytest.mark.parametrize(
    ("family", "precision"), [("transformer", "float32"), *((family, "bfloat16") for family in UPDATED)]
)
def test_every_family_takes_an_update(family, precision):
    runtime = choose("cuda", precision)
    masked = functools.partial(cmlm, target_size=12)
    miniatures = {
        **{"transformer": transformer, "lvm": lvm, "seq2seq": seq2seq, "lanmt": lanmt, "inat": inat},
        **{"nat": functools.partial(nat, target_size=12), "cmlm": masked, "inference-network": masked},
        **{"tagger": tagger, "inference-tagger": tagger},
        **dict.fromkeys(("dat", "dat-newer"), functools.partial(dat, target_size=12)),
        "lvm-newer": lambda: ending(**NEWER),
        **{kind: functools.partial(refiner, kind) for kind in ("score", "energy")},
        "score-newer": lambda: refiner("score", positions=False),
    }
    model = copy.deepcopy(miniatures[family]()).float().to(runtime.device).train()
    base = {"score": lvm, "energy": lvm, "score-newer": ending}.get(family)
    frozen = copy.deepcopy(base()).float().to(runtime.device).eval() if base else None
    newer = {
        "lvm-newer": {"length_smoothing": 2.0},
        "score-newer": {"noise_scale": "batch"},
        "dat-newer": {"ngrams": 2},
    }
    settings = newer.get(family, {})
    family = family.removesuffix("-newer")
    critic = copy.deepcopy(transformer()).float().to(runtime.device).eval().requires_grad_(False)
    roles = {"energy": critic} if "energy" in registry.families()[family].needs else {}
    batch = pairs([3, 9, 1, 6], [4, 5, 2, 7]).to(runtime.device)
    context = TrainingContext(90, 100, 1, frozen, roles)
    with runtime.autocast():
        terms = build_objective(family, settings)(model, batch, context)
    terms.loss.backward()
    assert torch.isfinite(terms.loss)
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    assert torch.isfinite(norm) and norm > 0


def test_a_harmful_update_is_skipped_without_waiting_for_the_gpu():
    """Weights, moments and steps stay, and nothing that decides it makes the CPU wait."""
    runtime = choose("cuda", "float32")
    model = copy.deepcopy(transformer()).float().to(runtime.device).train()
    updater = Updater(Task(model, None, None, TrainingConfig(max_steps=5), 1, runtime))
    loss = torch.ones((), device=runtime.device)

    def apply(gradient):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        gradients = [parameter.grad for parameter in model.parameters()]
        torch.cuda.set_sync_debug_mode("error")
        try:
            skipped, _ = updater._apply(gradients, loss)["skipped"]
            return skipped
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def everything():
        moments = [tensor for entry in updater.optimiser.state.values() for tensor in entry.values()]
        return [tensor.detach().clone() for tensor in (*model.parameters(), *moments)]

    assert not apply(1.0)
    before = everything()
    assert apply(float("nan")) and apply(float("inf"))
    assert all(torch.equal(now, then) for now, then in zip(everything(), before, strict=True))
    assert not apply(1.0)
    assert not torch.equal(everything()[0], before[0])
