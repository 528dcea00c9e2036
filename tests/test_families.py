"""Properties that every model family must have: one set of tests over all of them, presets `miniature`.

A package may say more of its families in a module `contract`, in dictionaries with the names of those here:
NO_GRADIENT, OTHERS and SERVING.
"""

from __future__ import annotations

import functools
import importlib
import math
from pathlib import Path

import pytest
import torch
import yaml
from miniatures import context, figure, gradients, lively, one, padded, pairs

from workflow_src.config.roles import fill, needs, of_the_family
from workflow_src.config.training import TrainingConfig
from workflow_src.decoding.search import open_search
from workflow_src.decoding.settings import DRAFTER
from workflow_src.families.build import build, build_objective
from workflow_src.nn.models import BlockModel
from workflow_src.nn.weights import load_weights, weights_of
from workflow_src.records.atomic import save_tensors
from workflow_src.registry import families, plugins, searches
from workflow_src.runtime.device import Runtime
from workflow_src.spec import AUTOREGRESSIVE, BASE, MODEL, PARALLEL, SCORER, Role
from workflow_src.training.means import added
from workflow_src.training.update import make_optimiser
from workflow_src.types import PAD

MODELS = Path(__file__).resolve().parents[1] / "config/models"
PACKAGE = Path(__file__).resolve().parents[1] / "workflow_src"
# Families that are counted, and not trained by updates, have tests of their own.
FAMILIES = {name: family for name, family in families().items() if family.loss}
VOCABULARIES = {"joint": (23, 23, True), "separate": (23, 19, False)}

# Parameters whose gradient is nothing by construction, and why.
NO_GRADIENT = {
    # Training sees only the slope of an energy; terms added to the energy have no slope.
    "energy": {"head.bias", "stack.norm.bias"},
}


def preset(family: str) -> dict:
    return yaml.safe_load(FAMILIES[family].presets.read_text(encoding="utf-8"))["miniature"]


def make(family: str, vocabulary: str = "joint", seed: int = 0, **settings):
    source, target, joint = VOCABULARIES[vocabulary]
    torch.manual_seed(seed)
    settings = {**preset(family), **settings}
    return lively(build(family, settings, {"source": source, "target": target, "joint": joint}), seed, 0.1)


def filling(role: Role) -> str:
    """The first family whose systems can fill a role."""
    names = [name for name, family in FAMILIES.items() if role.trait is None or role.trait in family.traits]
    assert names, f"no trained family is {role.trait!r}"
    return names[0]


def filler(family: str, role: str) -> str:
    """The first family whose systems can fill a role that another family needs."""
    return filling(FAMILIES[family].needs[role])


@functools.cache
def others(family: str, vocabulary: str = "joint", dtype: torch.dtype = torch.float64) -> dict[str, torch.nn.Module]:
    """Frozen miniatures in every role that a family needs, its base and optional ones too."""
    declared, filled = FAMILIES[family], {}
    settings = declared.model.model_validate(preset(family))
    # They are kept: whether they are built now or were before, draws that follow, such as dropout's, are the same.
    with torch.random.fork_rng():
        for seed, (role, needed_role) in enumerate(declared.needs.items(), 9):
            agreed = {
                name: getattr(settings, name) for name in needed_role.agree if name in type(settings).model_fields
            }
            filled[role] = make(filler(family, role), vocabulary, seed, **agreed).to(dtype).requires_grad_(False)
    return filled


def sharp(model: torch.nn.Module) -> torch.nn.Module:
    """The model with probabilities of words and of moves in a graph that are far from even."""
    factors = {"target_embedding.weight": 3, "projection.weight": 3, "transition.query.weight": 4}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(factors.get(name, 1))
    return model


def batch_of(vocabulary: str = "joint"):
    return pairs([4, 1, 6, 5], [3, 5, 1, 6], VOCABULARIES[vocabulary][:2])


def at(step: int, total: int, filled: dict[str, torch.nn.Module]):
    """A moment of training, with the systems in the roles that the family needs."""
    return context(step, total, seed=1, frozen=filled.get(BASE), roles={r: x for r, x in filled.items() if r != BASE})


def at_the_end(family: str, vocabulary: str = "joint"):
    """The last moment of training: every term of a loss is at work, free nats are gone."""
    return at(100, 100, others(family, vocabulary))


def test_every_folder_is_a_family_and_has_presets():
    folders = {path.parent.name for path in (PACKAGE / "families").glob("*/__init__.py")}
    assert {folder.replace("_", "-") for folder in folders} == set(families())
    assert {path.stem for path in MODELS.glob("*.yaml")} == {
        name for name, family in families().items() if not family.imported
    }


@pytest.mark.parametrize("family", [name for name, family in families().items() if not family.imported])
def test_every_preset_is_valid(family):
    presets = yaml.safe_load(families()[family].presets.read_text(encoding="utf-8"))
    for name, preset in presets.items():
        assert families()[family].model.model_validate(preset), name


@pytest.mark.parametrize("family", FAMILIES)
def test_engines_compile_passes_over_blocks_of_models_that_have_them(family):
    assert isinstance(make(family), BlockModel) == FAMILIES[family].blocks


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_objective_is_finite_and_trains_every_parameter(family, vocabulary):
    model = make(family, vocabulary).train()
    terms = build_objective(family, {})(model, batch_of(vocabulary), at_the_end(family, vocabulary))
    assert terms.loss.shape == () and torch.isfinite(terms.loss)
    assert terms.count > 0
    assert all(math.isfinite(figure(terms, name)) for name in terms.figures)
    for name, gradient in gradients(model, terms.loss).items():
        nothing = gradient is None or not gradient.any()
        assert nothing == (name in NO_GRADIENT.get(family, ())), name
        assert gradient is None or torch.isfinite(gradient).all(), name


# What the losses of families score. Latents are those of target positions, one of them the end symbol's.
WORDS, ENDS, MASKED, SENTENCES = "subwords", "subwords and end symbols", "masked subwords", "sentences with a path"
SCORED = {
    **dict.fromkeys(("inat", "nat", "tagger"), WORDS),
    **dict.fromkeys(("transformer", "seq2seq", "lvm", "lanmt", "inference-network", "inference-tagger"), ENDS),
    **dict.fromkeys(("score", "energy"), ENDS),
    "cmlm": MASKED,
    "dat": SENTENCES,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_count_of_a_loss_is_the_number_of_positions_that_it_scores(family):
    batch, objective = batch_of(), build_objective(family, {})
    terms = objective(make(family), batch, at_the_end(family))
    words = int((batch.target != PAD).sum())
    counts = {
        WORDS: {words},
        ENDS: {words + len(batch.target)},
        MASKED: set(range(len(batch.target), words + 1)),
        # Of the miniature's, with four vertices for each subword of the source, all have one.
        SENTENCES: {len(batch.target)},
    }
    # A family of a plug-in has one of these meanings.
    assert terms.count in counts.get(SCORED.get(family), set().union(*counts.values()))


# Settings that presets leave off, all together; the bias of a softmax over positions moves nothing.
OTHERS = {
    "lvm": (
        {"end_symbol": False, "decoder_skip": True, "length_pooling": "attention"},
        {"length_smoothing": 2.0},
        {"length.attention.bias"},
    ),
    "score": ({"positions": False}, {"noise_scale": "batch", "noise_power": 1.0}, set()),
    "energy": ({"positions": False}, {"noise_scale": "batch", "noise_power": 1.0}, NO_GRADIENT["energy"]),
    "inat": ({"carry_states": False}, {"guess": "sample", "label_smoothing": 0.1, "passes": 2}, set()),
    "inat, denoising": ({}, {"dae_mix": 1.0, "corruptions": ["swap"], "corruption_share": 1.0}, set()),
    "lanmt": ({"latent_dim": 4}, {"length_smoothing": 2.0, "budget_end": 0.1}, set()),
    "lanmt, released code": (
        {"decoder_input": "scaled", "decoder_skip": True, "length_reads": "states", "first_position": 0},
        {},
        set(),
    ),
    "nat": ({"copy_source": "uniform", "upsample": 2.5}, {}, set()),
    "nat, axe": ({"loss": "axe"}, {"label_smoothing": 0.1, "skip_penalty": 3.0, "glance": "random"}, set()),
    "nat, smoothed": ({}, {"label_smoothing": 0.1}, set()),
    "nat, ce": ({"loss": "ce"}, {"label_smoothing": 0.1, "glance": "glat", "glance_count": "share"}, set()),
    "nat, vae": ({"latent": "vae"}, {}, set()),
    "nat, ce vae": ({"loss": "ce", "latent": "vae"}, {}, set()),
    "nat, everything": ({"loss": "axe", "latent": "vae"}, {"glance": "glat", "budget_end": 0.1}, set()),
    "cmlm": (
        {"length_pooling": "attention"},
        {"label_smoothing": 0.0, "length_smoothing": 2.0},
        {"length.attention.bias"},
    ),
    "nat, glancing": ({"latent": "vae"}, {"glance": "glat"}, set()),
    "nat, bigrams": ({}, {"ngrams": 2}, set()),
    "dat, bigrams": ({}, {"ngrams": 2}, set()),
    "dat": ({"inputs": "positions", "vertices": 2.5}, {"glance_share": 0.0, "glance_end": 0.0}, set()),
    "dat, glancing": ({"vertices": 8.0}, {"glance_share": 1.0, "glance_end": 1.0}, set()),
    "inference-network": (
        {"length_pooling": "attention"},
        {"input_operator": "SG", "output_operator": "GX"},
        {"length.attention.bias"},
    ),
    "inference-network, logits": ({}, {"input_operator": "STL", "output_operator": "STL"}, set()),
    "inference-tagger": ({"source_layers": 2}, {"input_operator": "GX", "output_operator": "SG"}, set()),
    "tagger": ({"target_layers": 2, "dropout": 0.2}, {"label_smoothing": 0.0}, set()),
}
# Settings of a model that a search needs and its miniature lacks.
SERVING = {
    ("nat", "argmax"): {"loss": "ce"},
    ("nat", "ctc-beam"): {"latent": "vae"},
    ("nat", "npd"): {"latent": "vae"},
    ("nat", "prior-mean"): {"latent": "vae"},
    ("nat", "delta"): {"latent": "vae", "loss": "axe"},
}


def contract(plugin: str) -> dict[str, dict]:
    """What the module `contract` of a plug-in's package says."""
    try:
        return vars(importlib.import_module(f"{plugin}.contract"))
    except ModuleNotFoundError as failure:
        if failure.name not in (f"{plugin}.contract", plugin):
            raise
        return {}


for loaded in plugins():
    said = contract(loaded.module)
    for name, whole in {"NO_GRADIENT": NO_GRADIENT, "OTHERS": OTHERS, "SERVING": SERVING}.items():
        whole.update(said.get(name, {}))


@pytest.mark.parametrize("case", OTHERS)
def test_other_settings_train_every_parameter_and_padding_leaves_their_loss_alone(case, monkeypatch):
    (settings, objective, nothing), family = OTHERS[case], case.split(",")[0]
    model, objective = make(family, **settings).train(), build_objective(family, objective)
    terms = objective(model, batch_of(), at_the_end(family))
    for name, gradient in gradients(model, terms.loss).items():
        # A softmax's rounding is no gradient.
        trained = gradient is not None and gradient.abs().max() > 1e-12
        assert trained == (name not in nothing), name
    padding_leaves_the_loss_alone(family, model.eval(), objective, monkeypatch)


@pytest.mark.parametrize(
    ("family", "settings", "objective"),
    [
        *((family, {}, {}) for family in FAMILIES),
        *((case.split(",")[0], settings, objective) for case, (settings, objective, _) in OTHERS.items()),
    ],
)
def test_figures_of_parts_of_a_batch_are_those_of_the_whole(family, settings, objective):
    """Its sentences have different lengths, and miniatures of `nat` do not reach one of the targets."""
    model, batch, objective = make(family, **settings).eval(), batch_of(), build_objective(family, objective)
    for step in (0, 100):
        moment = at(step, 100, others(family))
        whole = objective(model, batch, moment)
        parts = [objective(model, one(batch, row), moment) for row in range(len(batch.target))]
        for name in whole.figures:
            total, count = added(part.means[name] for part in parts)
            assert float(total / count) == pytest.approx(figure(whole, name), rel=1e-5, abs=1e-9), name


def padding_leaves_the_loss_alone(family: str, model: torch.nn.Module, objective, monkeypatch) -> None:
    """Nor does it change gradients. Without noise, which is drawn for padding too."""
    monkeypatch.setattr(torch, "randn", lambda shape, **more: torch.zeros(shape, dtype=more.get("dtype")))
    terms, wider = (objective(model, x, at_the_end(family)) for x in (batch_of(), padded(batch_of(), 4)))
    assert terms.count == wider.count
    assert terms.loss.item() == pytest.approx(wider.loss.item(), rel=1e-11)
    actual, expected = (gradients(model, x.loss) for x in (terms, wider))
    for name, gradient in actual.items():
        assert gradient is None or torch.allclose(gradient, expected[name], atol=1e-11), name


@pytest.mark.parametrize("family", FAMILIES)
def test_extra_padding_leaves_the_loss_alone(family, monkeypatch):
    padding_leaves_the_loss_alone(family, make(family), build_objective(family, {}), monkeypatch)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_update_lowers_the_loss(family):
    model, objective = make(family, seed=3), build_objective(family, {})
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    before = objective(model, batch_of(), at_the_end(family)).loss
    before.backward()
    optimiser.step()
    assert objective(model, batch_of(), at_the_end(family)).loss < before


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_generator_gives_the_same_loss(family):
    model, objective = make(family), build_objective(family, {})
    first, second = (objective(model, batch_of(), at_the_end(family)).loss for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_travel_through_a_file(family, vocabulary, tmp_path):
    model, loaded = make(family, vocabulary, seed=1), make(family, vocabulary, seed=2)
    save_tensors(tmp_path / "model.safetensors", weights_of(model))
    load_weights(loaded, tmp_path / "model.safetensors")
    objective = build_objective(family, {})
    losses = [objective(x, batch_of(vocabulary), at_the_end(family, vocabulary)).loss for x in (model, loaded)]
    assert torch.equal(*losses)


def run(name: str, family: str, model, filled, source):
    """A search with two candidates or steps, as a translator runs it."""
    search = searches()[name]
    counts = ("steps", "beam", "lengths", "samples", "draws", "iterations", "length_beam")
    few = {field: 2 for field in counts if field in search.settings.model_fields}
    stepping = next((other for other in FAMILIES[family].searches if searches()[other].refines), None)
    settings = search.settings(**few, **dict.fromkeys(search.settings.named("steps"), stepping))
    networks = [(model, FAMILIES[family])]
    networks += [(filled[BASE], FAMILIES[filler(family, BASE)])] if BASE in filled else []
    named = of_the_family(settings, {role: member for role, member in filled.items() if role != BASE})
    # Settings name systems for other roles.
    for role in settings.roles().values():
        if not search.needs[role].optional:
            named[role] = make(filling(search.needs[role])).to(model.output_bias.dtype)
    return open_search(fill(needs(settings), networks, named), settings).translate(source)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family, search", [(f, s) for f in FAMILIES for s in FAMILIES[f].searches])
def test_every_search_of_the_family_runs(family, search, dtype):
    model = make(family, **SERVING.get((family, search), {})).to(dtype)
    hypotheses = run(search, family, model, others(family, dtype=dtype), batch_of().source)
    assert len(hypotheses.tokens) == len(hypotheses.scores) == 4
    # Subwords and the family's own symbols, which have no text.
    assert all(3 <= token < 23 + len(FAMILIES[family].symbols) for words in hypotheses.tokens for token in words)
    assert all(score <= 0 for score in hypotheses.scores)
    declared = searches()[search]
    assert (hypotheses.ranked is not None) == declared.several
    for tokens, score, ranked in zip(
        hypotheses.tokens, hypotheses.scores, hypotheses.ranked() if hypotheses.ranked else (), strict=False
    ):
        # All hypotheses of a sentence, the best first, which is the translation.
        assert ranked[0] == (score, tokens) and len({tuple(words) for _, words in ranked}) == len(ranked)
        assert [score for score, _ in ranked] == sorted((score for score, _ in ranked), reverse=True)


@pytest.mark.parametrize("family, search", [(f, s) for f in FAMILIES for s in FAMILIES[f].searches])
def test_neither_padding_nor_company_changes_a_translation(family, search):
    model, batch = sharp(make(family, seed=3, **SERVING.get((family, search), {}))), batch_of()
    filled = others(family)
    together = run(search, family, model, filled, batch.source)
    # Sentences whose outputs are alike could be mixed unseen.
    assert len(set(map(tuple, together.tokens))) > 1
    wider = run(search, family, model, filled, padded(batch, 4).source)
    assert wider.tokens == together.tokens and wider.scores == pytest.approx(together.scores, abs=1e-9)
    for row in range(4):
        alone = run(search, family, model, filled, one(batch, row).source)
        assert alone.tokens == [together.tokens[row]]
        assert alone.scores == pytest.approx([together.scores[row]], abs=1e-9)


@pytest.mark.parametrize("verifier", [name for name, family in FAMILIES.items() if AUTOREGRESSIVE in family.traits])
@pytest.mark.parametrize("drafter", [name for name, family in FAMILIES.items() if PARALLEL in family.traits])
def test_checked_drafts_give_the_output_of_greedy_search(drafter, verifier):
    model, greedy, verified = make(verifier, seed=3), searches()["greedy"], searches()["verified"]
    expected = open_search({MODEL: model}, greedy.settings()).translate(batch_of().source)
    networks = {MODEL: model, DRAFTER: make(drafter)}
    actual = open_search(networks, verified.settings(drafter="mine")).translate(batch_of().source)
    assert actual.tokens == expected.tokens and actual.scores == pytest.approx(expected.scores, abs=1e-9)


def updated(family: str, narrow: bool) -> tuple[float, torch.Tensor, torch.nn.Module]:
    """Loss before one update of a family's miniature in float32 weights, the change of all weights, and the model."""
    model, objective = make(family).float().train(), build_objective(family, {})
    runtime = Runtime(torch.device("cpu"), torch.bfloat16 if narrow else torch.float32)
    config = TrainingConfig(max_steps=10, batch_tokens=100, learning_rate=0.01, warmup_steps=0)
    optimiser = make_optimiser(model, config)
    before = torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])
    with runtime.autocast():
        loss = objective(model, batch_of(), at(10, 100, others(family, dtype=torch.float32))).loss
    loss.backward()
    optimiser.step()
    after = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return loss.item(), after - before, model


@pytest.mark.parametrize("family", FAMILIES)
def test_one_update_under_bfloat16_autocast_is_near_that_in_float32(family):
    plain, expected, _ = updated(family, False)
    try:
        in_bfloat16, actual, model = updated(family, True)
    except RuntimeError as failure:
        if "primitive descriptor for the LSTM" not in str(failure):
            raise
        pytest.skip("this processor has no LSTM in bfloat16")
    assert in_bfloat16 == pytest.approx(plain, rel=0.1, abs=0.1)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters()) and torch.isfinite(actual).all()
    # Adam's first step is the sign of the gradient times the rate: where the gradient is near 0, rounding may turn it.
    assert expected.abs().max() == pytest.approx(0.01, rel=1e-3)
    assert 0.9 < torch.cosine_similarity(expected, actual, dim=0) and not torch.equal(expected, actual)


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if SCORER in family.traits])
def test_a_scorer_scores_an_output_alike_alone_in_a_batch_and_padded(family):
    # Short enough to be possible for any model.
    model, batch = make(family), pairs([4, 1, 6, 5], [3, 1, 2, 4], VOCABULARIES["joint"][:2])
    with torch.no_grad():
        states = model.scoring_states(batch.source)
        scores = model.log_probability(states, batch.target)
        assert scores.shape == (4,) and (scores <= 0).all() and torch.isfinite(scores).all()
        rows = torch.tensor([2, 0, 2])
        assert torch.allclose(model.log_probability(states.select(rows), batch.target[rows]), scores[rows], atol=1e-10)
        longer = padded(batch, 4)
        assert torch.allclose(
            model.log_probability(model.scoring_states(longer.source), longer.target), scores, atol=1e-10
        )
        for row in range(4):
            single = one(batch, row)
            score = model.log_probability(model.scoring_states(single.source), single.target)
            assert score.item() == pytest.approx(scores[row].item(), abs=1e-10)
