"""What every model family owes the rest: one set of tests over all of them, presets `miniature`."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch
import yaml
from miniatures import context, gradients, lively, padded, pairs

from workflow_src.config.experiment import TrainingConfig
from workflow_src.families.build import build, build_objective
from workflow_src.nn.weights import load_weights, weights_of
from workflow_src.records.atomic import save_tensors
from workflow_src.registry import families, fill, import_object, needs, searches
from workflow_src.runtime.device import Runtime
from workflow_src.spec import BASE
from workflow_src.training.optim import make_optimiser

MODELS = Path(__file__).resolve().parents[1] / "config/models"
PACKAGE = Path(__file__).resolve().parents[1] / "workflow_src"
# What is counted, and not trained by updates, is tested where it is declared.
FAMILIES = {name: family for name, family in families().items() if family.loss}
VOCABULARIES = {"joint": (23, 23, True), "separate": (23, 19, False)}

# Parameters whose gradient is nothing by construction, and why.
NO_GRADIENT = {
    # Training sees the slope of an energy only; what is added to the energy itself has no slope.
    "energy": {"head.bias", "stack.norm.bias"},
}


def make(family: str, vocabulary: str = "joint", seed: int = 0, **more):
    source, target, joint = VOCABULARIES[vocabulary]
    presets = yaml.safe_load(FAMILIES[family].presets.read_text(encoding="utf-8"))
    torch.manual_seed(seed)
    settings = {**presets["miniature"], **more}
    return lively(build(family, settings, {"source": source, "target": target, "joint": joint}), seed, 0.1)


def base_family(family: str) -> str | None:
    """A family that another one can be built on, or None."""
    role = FAMILIES[family].needs.get(BASE)
    return next(name for name, other in FAMILIES.items() if role.trait in other.traits) if role else None


@functools.cache
def base_of(family: str, vocabulary: str = "joint"):
    """The frozen model that a family is built on, or None."""
    base = base_family(family)
    return make(base, vocabulary, seed=9).requires_grad_(False) if base else None


def batch_of(vocabulary: str = "joint"):
    return pairs([4, 1, 6, 5], [3, 5, 1, 6], VOCABULARIES[vocabulary][:2])


def at_the_end(family: str, vocabulary: str = "joint"):
    """The last moment of training: every term of a loss is at work, free nats are gone."""
    return context(100, 100, seed=1, frozen=base_of(family, vocabulary))


def test_every_folder_is_a_family_and_has_presets():
    folders = {path.parent.name for path in (PACKAGE / "families").glob("*/__init__.py")}
    assert folders == set(families())
    assert {path.stem for path in MODELS.glob("*.yaml")} == set(families())


@pytest.mark.parametrize("family", families())
def test_every_preset_is_valid(family):
    presets = yaml.safe_load(families()[family].presets.read_text(encoding="utf-8"))
    for name, preset in presets.items():
        assert families()[family].model.model_validate(preset), name


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_objective_is_finite_and_trains_every_parameter(family, vocabulary):
    model = make(family, vocabulary).train()
    terms = build_objective(family, {})(model, batch_of(vocabulary), at_the_end(family, vocabulary))
    assert terms.total.shape == () and torch.isfinite(terms.total)
    assert terms.count > 0
    assert all(torch.isfinite(torch.as_tensor(value)) for value in terms.figures.values())
    for name, gradient in gradients(model, terms.total).items():
        nothing = gradient is None or not gradient.any()
        assert nothing == (name in NO_GRADIENT.get(family, ())), name
        assert gradient is None or torch.isfinite(gradient).all(), name


# Settings that presets leave off, all together; the bias of a softmax over positions moves nothing.
OTHERS = {
    "lvm": ({"end_symbol": False, "decoder_skip": True, "length_pooling": "attention"}, {"length_smoothing": 2.0},
            {"length.attention.bias"}),
    "score": ({"positions": False}, {"noise_scale": "batch", "noise_power": 1.0}, set()),
    "energy": ({"positions": False}, {"noise_scale": "batch", "noise_power": 1.0}, NO_GRADIENT["energy"]),
    "nat": ({"copy_source": "uniform", "upsample": 2.5}, {}, set()),
    "nat, axe": ({"loss": "axe"}, {"skip_penalty": 3.0, "glance": "random"}, set()),
    "nat, ce": ({"loss": "ce"}, {"label_smoothing": 0.1, "glance": "glat", "glance_count": "share"}, set()),
    "nat, vae": ({"latent": "vae"}, {}, set()),
    "nat, everything": ({"loss": "axe", "latent": "vae"}, {"glance": "glat", "budget_end": 0.1}, set()),
    "nat, glancing": ({"latent": "vae"}, {"glance": "glat"}, set()),
}  # fmt: skip
# What a search needs of a model that its miniature does not learn.
SERVING = {
    ("nat", "argmax"): {"loss": "ce"},
    ("nat", "ctc-beam"): {"latent": "vae"},
    ("nat", "npd"): {"latent": "vae"},
    ("nat", "prior-mean"): {"latent": "vae"},
    ("nat", "delta"): {"latent": "vae", "loss": "axe"},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_settings_train_every_parameter_and_padding_leaves_their_loss_alone(case, monkeypatch):
    (settings, objective, nothing), family = OTHERS[case], case.split(",")[0]
    model, objective = make(family, **settings).train(), build_objective(family, objective)
    terms = objective(model, batch_of(), at_the_end(family))
    for name, gradient in gradients(model, terms.total).items():
        # A softmax's rounding is no gradient.
        trained = gradient is not None and gradient.abs().max() > 1e-12
        assert trained == (name not in nothing), name
    monkeypatch.setattr(torch, "randn", lambda shape, **more: torch.zeros(shape, dtype=more.get("dtype")))
    terms, wider = (objective(model.eval(), x, at_the_end(family)) for x in (batch_of(), padded(batch_of(), 4)))
    assert terms.count == wider.count and terms.total.item() == pytest.approx(wider.total.item(), rel=1e-11)


@pytest.mark.parametrize("family", FAMILIES)
def test_extra_padding_leaves_the_loss_alone(family, monkeypatch):
    """Without noise, which is drawn for padding too."""
    monkeypatch.setattr(torch, "randn", lambda shape, **more: torch.zeros(shape, dtype=more.get("dtype")))
    model, objective = make(family), build_objective(family, {})
    terms, wider = (objective(model, x, at_the_end(family)) for x in (batch_of(), padded(batch_of(), 4)))
    assert terms.count == wider.count
    assert terms.total.item() == pytest.approx(wider.total.item(), rel=1e-11)
    found, wanted = (gradients(model, x.total) for x in (terms, wider))
    for name, gradient in found.items():
        assert gradient is None or torch.allclose(gradient, wanted[name], atol=1e-11), name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_generator_gives_the_same_loss(family):
    model, objective = make(family), build_objective(family, {})
    first, second = (objective(model, batch_of(), at_the_end(family)).total for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_travel_through_a_file(family, vocabulary, tmp_path):
    model, other = make(family, vocabulary, seed=1), make(family, vocabulary, seed=2)
    save_tensors(tmp_path / "model.safetensors", weights_of(model))
    load_weights(other, tmp_path / "model.safetensors")
    objective = build_objective(family, {})
    losses = [objective(x, batch_of(vocabulary), at_the_end(family, vocabulary)).total for x in (model, other)]
    assert torch.equal(*losses)


def run(name: str, family: str, model, base, source):
    """A search with two candidates or steps, as a translator runs it."""
    search = searches()[name]
    few = {
        field: 2 for field in ("steps", "beam", "lengths", "samples", "draws") if field in search.settings.model_fields
    }
    stepping = next((one for one in FAMILIES[family].searches if searches()[one].step), None)
    settings = search.settings(**few, **dict.fromkeys(search.settings.named("steps"), stepping))
    own = [(model, FAMILIES[family])] + ([(base, FAMILIES[base_family(family)])] if base is not None else [])
    networks = fill(needs(settings), own, {})
    with torch.no_grad():
        return import_object(search.run)(networks, source, settings)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family, search", [(f, s) for f in FAMILIES for s in FAMILIES[f].searches])
def test_every_search_of_the_family_runs(family, search, dtype):
    model, base = make(family, **SERVING.get((family, search), {})).to(dtype), base_family(family)
    base = make(base, seed=9).to(dtype) if base else None
    found = run(search, family, model, base, batch_of().source)
    assert len(found.tokens) == len(found.scores) == 4
    assert all(3 <= token < 23 for words in found.tokens for token in words)
    assert all(score <= 0 for score in found.scores)


def updated(family: str, narrow: bool) -> tuple[float, torch.Tensor, torch.nn.Module]:
    """Loss before one update of a family's miniature in float32 weights, the change of all weights, and the model."""
    model, objective, base = make(family).float().train(), build_objective(family, {}), base_of(family)
    frozen = None if base is None else make(base_family(family), seed=9).float().requires_grad_(False)
    runtime = Runtime(torch.device("cpu"), torch.bfloat16 if narrow else torch.float32)
    config = TrainingConfig(max_steps=10, batch_tokens=100, learning_rate=0.01, warmup_steps=0)
    optimiser = make_optimiser(model, config)
    before = torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])
    with runtime.autocast():
        loss = objective(model, batch_of(), context(10, 100, seed=1, frozen=frozen)).total
    loss.backward()
    optimiser.step()
    after = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return loss.item(), after - before, model


@pytest.mark.parametrize("family", FAMILIES)
def test_one_update_under_bfloat16_autocast_is_near_that_in_float32(family):
    (plain, wanted, _), (narrow, found, model) = updated(family, False), updated(family, True)
    assert narrow == pytest.approx(plain, rel=0.1, abs=0.1)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters()) and torch.isfinite(found).all()
    # Adam's first step is the sign of the gradient times the rate: where the gradient is near 0, rounding may turn it.
    assert wanted.abs().max() == pytest.approx(0.01, rel=1e-3)
    assert 0.9 < torch.cosine_similarity(wanted, found, dim=0) and not torch.equal(wanted, found)
