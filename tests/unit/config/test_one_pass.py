"""Which switches of one-pass models, and which searches of theirs, a configuration may combine."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from refusals import refuses

from workflow_src.config import Plan, load, load_experiment
from workflow_src.config.plan import shown_plan
from workflow_src.config.resolved import Loaded
from workflow_src.errors import ConfigError
from workflow_src.evaluation.manifest import Manifest

TRAINING = {"max_steps": 2, "batch_tokens": 100}
RESCORER = {"rescorer": "teacher"}
SEARCHES: list[dict[str, Any]] = [
    {"search": "ctc-greedy"},
    {"search": "ctc-beam", "beam": 2},
    {"search": "ctc-beam", "beam": 2, "draws": 2, **RESCORER},
    {"search": "argmax"},
    {"search": "argmax", "lengths": 3, **RESCORER},
    {"search": "npd", "draws": 2},
    {"search": "prior-mean"},
    {"search": "delta", "steps": 1},
]


def experiment(
    system: dict[str, Any], decodes: list[dict[str, Any]], removed: str | None = None, **others: Any
) -> Loaded:
    systems = {"one": {"family": "nat", "preset": "miniature", "training": TRAINING} | system, **others}
    report = {"remove_repetitions": removed}
    return load_experiment("smoke", systems=systems, decodes=decodes, report=report)


@pytest.mark.parametrize("glance", ["none", "random", "glat"])
@pytest.mark.parametrize("loss, latent", list(itertools.product(["ctc", "axe", "ce"], ["none", "vae"])))
def test_every_combination_is_valid_or_refused_in_one_sentence(loss, latent, glance):
    system = {"model": {"loss": loss, "latent": latent}, "objective": {"glance": glance}}
    works = []
    for search in SEARCHES:
        try:
            loaded = experiment(system, [{"system": "one", **search}])
        except ConfigError as refused:
            message = str(refused)
            assert message.startswith(f"decodes[0]: search {search['search']} of system one ") and "\n" not in message
            assert message.endswith(".") and message.count(". ") == 0
            works.append(False)
        else:
            # Also what reports and estimates ask for.
            assert Plan(loaded).settings_report()
            works.append(True)
    aligned, sized, latents = loss == "ctc", loss != "ctc", latent == "vae"
    assert works == [aligned, aligned, aligned and latents, sized, sized, latents, latents, latents]


CTC_BEAM = {"search": "ctc-beam", "beam": 2}
AXE, VAE = {"loss": "axe"}, {"latent": "vae"}


@pytest.mark.parametrize(
    ("model", "decode", "setting", "fields"),
    [
        (
            {"loss": "ce"},
            CTC_BEAM,
            "",
            {"problem": "search ctc-beam of system one needs model.loss: ctc, and that is ce; use search argmax"},
        ),
        (
            VAE,
            {"search": "delta", "steps": 1, "tune": {"length_quantile": [0.5, 0.6]}},
            "",
            {
                "problem": "search delta of system one takes no length_quantile: its latents are those of source "
                "positions; remove length_quantile"
            },
        ),
        (AXE, {"search": "argmax", "lengths": 0}, ".lengths", {"value": 0}),
        (AXE, {"search": "argmax", "lengths": 2, "length_quantile": 0.5}, ".length_quantile", {"mentions": ("2",)}),
        # What draws alone have.
        (VAE, CTC_BEAM | {"temperature": 0.5}, ".temperature", {"allowed": ("0.1",)}),
        ({}, CTC_BEAM | {"search_seed": 7}, ".search_seed", {"allowed": ("1",)}),
        (VAE, CTC_BEAM | {"tune": {"temperature": [0.1, 0.2]}}, ".tune.temperature", {"allowed": ("0.1",)}),
    ],
)
def test_a_decode_that_cannot_be_is_refused(model, decode, setting, fields):
    with refuses(setting=f"decodes[0]{setting}", **fields):
        experiment({"model": model}, [{"system": "one", **decode}])


NGRAMS = {"objective": {"ngrams": 2}}
DAT = {"family": "dat"}


@pytest.mark.parametrize(
    ("system", "setting", "fields"),
    [
        (NGRAMS, ".init_from", {"problem": "objective.ngrams is 2"}),
        (DAT | NGRAMS, ".init_from", {"problem": "objective.ngrams is 2"}),
        (NGRAMS | {"init_from": "teacher"}, ".init_from", {"value": "teacher", "mentions": ("nat",)}),
        (
            NGRAMS | {"model": {"upsample": 3.0}, "init_from": "plain"},
            ".model.upsample",
            {"value": 3.0, "mentions": ("plain",)},
        ),
        ({"model": {"latent_dim": 4}}, ".model.latent_dim", {"value": 4, "problem": "latent is none"}),
        ({"model": {"loss": "axes"}}, ".model.loss", {"nearest": "axe"}),
        ({"objective": {"glance": "all"}}, ".objective.glance", {"allowed": ("glat", "none", "random")}),
        ({"objective": {"skip_penalty": 3.0}}, "", {"mentions": ("objective.skip_penalty", "model.loss")}),
        (
            DAT | {"objective": {"ngrams": 2, "glance_share": 0.3}, "init_from": "teacher"},
            "",
            {"mentions": ("objective.glance_share", "objective.ngrams")},
        ),
        (
            DAT | {"objective": {"glance_share": 0, "glance_end": 0.3}},
            "",
            {"mentions": ("objective.glance_end", "objective.glance_share: 0")},
        ),
        # What latents and length heads alone have; a preset may say it, too.
        ({"model": {"posterior_layers": 1}}, "", {"mentions": ("model.posterior_layers", "model.latent")}),
        ({"model": {"head_scale": 0.2}}, "", {"mentions": ("model.head_scale", "model.latent")}),
        ({"model": {"max_length_difference": 9}}, "", {"mentions": ("model.max_length_difference", "model.loss")}),
        (
            {"preset": "tiny-vae", "model": {"latent": "none"}},
            "",
            {"mentions": ("model.posterior_layers", "model.latent")},
        ),
    ],
)
def test_a_system_that_cannot_be_is_refused(system, setting, fields):
    plain = {"family": "nat", "preset": "miniature", "training": TRAINING}
    search = {"search": "graph-path" if system.get("family") == "dat" else "ctc-greedy"}
    with refuses(setting=f"systems.one{setting}", **fields):
        experiment(system, [{"system": "one", **search}], plain=plain)


def score(**model: Any) -> dict[str, Any]:
    return {"family": "score", "preset": "miniature", "base": "one", "training": TRAINING, "model": model}


def test_refiners_work_in_the_latents_of_source_positions():
    decodes = [{"system": "refined", "search": "score", "steps": 1}, {"system": "one", "search": "delta", "steps": 1}]
    system = {"model": {"latent": "vae", "latent_dim": 8}}
    plan = Plan(experiment(system, decodes, refined=score()))
    # Analyses of latents at target positions have nothing to follow there.
    names = {entry for analysis in plan.analyses.values() for entry in analysis.systems}
    assert not names & {"one", "refined"}


@pytest.mark.parametrize(
    ("system", "decode", "fields"),
    [
        (
            {},
            {"search": "score", "steps": 1},
            {"setting": "systems.refined.base", "problem": "with its model settings no system that has latents"},
        ),
        (
            {"model": {"latent": "vae"}},
            {"search": "latent-search", "steps": 1},
            {"setting": "decodes[0]", "mentions": ("latent-search",)},
        ),
        ({"model": {"latent": "vae"}}, {"search": "score", "steps": 1, "lengthening": 0.1}, {"setting": "decodes[0]"}),
    ],
)
def test_what_refiners_of_a_one_pass_model_cannot_do(system, decode, fields):
    with refuses(**fields):
        experiment(system, [{"system": "refined", **decode}], refined=score())


@pytest.mark.parametrize("values", [[0.1, 0.0], [0.0, 0.1], [0.0, 0.1, 0.2]])
def test_every_value_that_dev_may_choose_is_checked(values):
    system = {"model": {"latent": "vae"}}
    decode = {"system": "one", "search": "delta", "steps": 1, "tune": {"lengthening": values}}
    with pytest.raises(ConfigError, match="search delta of system one takes no lengthening"):
        experiment(system, [decode])
    assert experiment(system, [decode | {"tune": {"lengthening": [0.0]}}]).decodes


def test_values_that_dev_may_choose_go_together():
    decode = {"system": "one", "search": "argmax", "length_quantile": 0.5, "tune": {"lengths": [1, 3]}}
    with pytest.raises(ConfigError, match=r"^decodes\[0\].tune.*length_quantile"):
        experiment({"model": {"loss": "axe"}}, [decode])
    assert experiment({"model": {"loss": "axe"}}, [decode | {"tune": {"lengths": [1]}}]).decodes


def test_only_alignments_rank_the_outputs_of_others():
    """CTC scores outputs of any length, the other losses those of one."""
    decode = {"system": "one", "search": "ctc-beam", "beam": 2, "rescorer": "other"}
    other = {"family": "nat", "preset": "miniature", "training": TRAINING}
    assert experiment({}, [decode], other=other).decodes
    with pytest.raises(ConfigError, match="rescorer is 'other'"):
        experiment({}, [decode], other={**other, "model": {"loss": "axe"}})


def table_4(loaded):
    """Its published figures: not those of Tables 5 and 6, whose systems are named by slots or by their teacher."""
    figures = loaded.config.report.expected
    return {name: figure for name, figure in figures.items() if not re.match(r"teacher|ctc-\d|.*-of-long", name)}


def test_the_grid_has_the_fifteen_rows_of_the_paper():
    loaded = load_experiment("nat-grid")
    rows = table_4(loaded)
    grid = {key.split("/")[0]: loaded.systems[key.split("/")[0]] for key in rows}
    switches = {(s.model.loss, s.model.latent, s.objective.glance, s.data) for s in grid.values()}
    assert len(grid) == len(switches) == 15
    # Equal budgets, whatever is switched; and those of `tatoeba` for some.
    one_pass = {name: system for name, system in loaded.systems.items() if system.family.name == "nat"}
    longer = {name for name in one_pass if name in ("ctc", "ctc-raw") or name.endswith("-hour")}
    assert len(longer) == 8
    for names, updates in ((set(one_pass) - longer, 2000), (longer, 9000)):
        assert len({one_pass[name].training.model_dump_json() for name in names}) == 1
        assert {one_pass[name].training.max_steps for name in names} == {updates}
    assert {one.init_from for one in one_pass.values()} == {"teacher"}
    for key in rows:
        system, search = key.split("/")
        words = system.split("-")
        one = grid[system]
        assert one.model.loss == words[0] and search == ("ctc-greedy" if words[0] == "ctc" else "argmax")
        assert (one.model.latent == "vae") == ("vae" in words) and (not one.teachers) == ("raw" in words)
        assert one.objective.glance == next((word for word in words if word in ("random", "glat")), "none")


def test_other_rows_of_the_grid_differ_in_what_their_names_say():
    systems = load_experiment("nat-grid").systems
    slots = {name: systems[name].model.upsample for name in ("ctc-15", "ctc-plain", "ctc-25", "ctc-30")}
    assert list(slots.values()) == [1.5, 2, 2.5, 3]
    penalties = [systems[name].objective.skip_penalty for name in ("axe", "axe-2", "axe-5", "axe-raw-2", "axe-raw-5")]
    assert penalties == [1, 2, 5, 2, 5]
    assert [systems[f"ctc-{kind}of-long"].teachers for kind in ("", "vae-")] == [["teacher-long"]] * 2
    pairs = (("ctc-15", "ctc-plain"), ("axe-2", "axe"), ("axe-raw-5", "axe-raw"), ("ctc-vae-of-long", "ctc-vae"))
    hours = [(name, name.removesuffix("-hour")) for name in systems if name.endswith("-hour")]
    assert len(hours) == 6
    for other, row in (*pairs, *((hour, short) for hour, short in hours if short in systems)):
        changed = {"upsample": systems[row].model.upsample} if hasattr(systems[row].model, "upsample") else {}
        assert systems[other].model.model_copy(update=changed) == systems[row].model


def test_the_grid_and_the_paper_have_the_same_published_figures():
    """The grid's plain systems have names of their own beside those of tatoeba."""
    figures, paper = table_4(load_experiment("nat-grid")), load_experiment("wmt14-nat").config.report.expected
    published = "11.4 16.59 18.18 19.5 21.66 21.81 22.19 22.74 23.58 24.67 26.16 26.51 27.2 27.21 27.49"
    assert sorted(figures.values()) == [float(figure) for figure in published.split()]
    assert {name: paper[name.replace("-plain", "")] for name in figures} == figures


LATENT = {"preset": "tiny", "model": {"latent": "vae"}}
REFINER = {"family": "score", "preset": "tiny", "base": "one", "training": TRAINING}
TUNED = {"tune": {"blank_penalty": [0.0, 0.5]}}


@pytest.mark.parametrize(
    "system, decode, removed",
    [
        ({}, {"search": "ctc-greedy"}, "none"),
        ({}, {"search": "ctc-beam", "beam": 2}, "none"),
        (LATENT, {"search": "delta", "steps": 1}, "none"),
        (LATENT, {"system": "refined", "search": "score", "steps": 1}, "none"),
        ({"model": {"loss": "axe"}}, {"search": "argmax"}, "subwords"),
        ({"model": {"loss": "ce", "latent": "vae"}}, {"search": "prior-mean"}, "subwords"),
        ({"family": "dat"}, {"search": "graph-path"}, "none"),
        ({"family": "cmlm"}, {"search": "argmax"}, "subwords"),
        ({}, {"system": "lvm", "search": "prior-mean"}, "subwords"),
        ({}, {"system": "teacher", "search": "greedy"}, "none"),
    ],
)
def test_nothing_is_removed_from_what_alignments_show(system, decode, removed):
    """By default, wherever removal is planned; what the report asks for by name stands for all but the teacher."""
    further = {"refined": REFINER} if "refined" in decode.values() else {}
    for setting, expected in ((None, removed), ("words", "none" if decode.get("system") == "teacher" else "words")):
        plan = Plan(experiment(system, [{"system": "one"} | decode], setting, **further))
        (planned,) = plan.loaded.decodes
        assert plan.loaded.removal(planned) == expected
        assert json.loads(plan.settings_choose(planned))["remove_repetitions"] == expected
        manifest = Manifest.of(shown_plan(json.loads(plan.settings_report())), {}.__getitem__)
        (displayed,) = manifest.decodes
        assert displayed.removal(manifest.report.remove_repetitions) == expected


LM = {"lm": {"family": "ngram", "preset": "3-gram", "data": "distilled-by-teacher"}}
CARRYING = {"data": "distilled-by-teacher", "carries": {"language_model": "lm"}}


def with_defaults(defaults: Any, system: dict[str, Any] = CARRYING) -> Plan:
    one = system | {"search_defaults": defaults}
    return Plan(experiment(one, [{"system": "one", "search": "ctc-greedy"}], **LM))


def test_a_finished_bundle_records_what_its_searches_take_by_default_and_nothing_else():
    defaults = {"ctc-beam": {"lm_weight": 0.3, "word_bonus": 2.0}}
    plan, plain = with_defaults(defaults), with_defaults({})
    finished = [json.loads(p.settings_finish("one", 1, None)) for p in (plan, plain)]
    assert finished[0] == finished[1] | {"search_defaults": defaults}
    assert plan.settings_training("one") == plain.settings_training("one")


@pytest.mark.parametrize(
    ("search", "settings", "system", "place", "fields"),
    [
        ("ctc-bem", {}, {}, "", {"nearest": "ctc-beam"}),
        ("beam", {"beam": 3}, {}, "", {"nearest": "ctc-beam"}),
        ("ctc-beam", {"weight": 1}, {}, ".weight", {"nearest": "lm_weight"}),
        ("ctc-beam", {"beam": 0}, {}, ".beam", {"value": 0}),
        (
            "ctc-beam",
            {"language_model": "lm"},
            {},
            ".language_model",
            {"problem": "bundles carry the systems that `carries` names"},
        ),
        ("ctc-beam", {"lm_weight": 0.3}, {"carries": {}}, ".lm_weight", {"allowed": ("0.2",)}),
        ("argmax", {"lengths": 3}, {}, "", {"mentions": ("argmax", "system one", "axe or ce", "ctc-greedy")}),
    ],
)
def test_defaults_that_no_search_takes_are_refused_in_one_sentence(search, settings, system, place, fields):
    with refuses(setting=f"systems.one.search_defaults.{search}{place}", **fields):
        with_defaults({search: settings}, CARRYING | system)


def test_a_list_may_have_none_among_its_values():
    decode = {"system": "ctc", "search": "ctc-beam", "beam": 3, "beam_threshold": [None, 2.0]}
    loaded = load({"experiment": "mine", "extends": "smoke", "decodes": [decode]})
    named = {each.name: each.values.beam_threshold for each in loaded.decodes}
    assert len(named) == 2 and set(named.values()) == {None, 2.0}
