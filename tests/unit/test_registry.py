"""Declarations: who is declared, what follows from a settings class, and what is refused in one sentence."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pydantic
import pytest
from pydantic import Field

from workflow_src import registry
from workflow_src.config.base import ConfigError
from workflow_src.config.experiment import DecodeConfig
from workflow_src.config.load import load_experiment
from workflow_src.config.metrics import measured
from workflow_src.config.plan import Plan
from workflow_src.declarations import DECODE_FIELDS, METRIC_TAKEN, TAKEN, DeclarationError, check
from workflow_src.evaluation.report.results import Row
from workflow_src.serving import command
from workflow_src.serving.translator import Translator
from workflow_src.spec import Option, Role, SearchSettings

TUNED = {"system": "score", "search": "score", "steps": 1, "tune": {"step_size": [0.5, 1.0]}}
ROOT = Path(__file__).resolve().parents[2]
PLUGIN = '''
"""A plug-in that declares what `declared` says."""
import dataclasses
from workflow_src import spec
from workflow_src.families.transformer import FAMILY
from workflow_src.searches.greedy import SEARCH

class Settings(spec.SearchSettings):
    pass

search = dataclasses.replace(SEARCH, name="other-search", settings=Settings)
family = dataclasses.replace(FAMILY, name="other-family", searches=("other-search",))
PLUGIN = spec.Plugin("other", "1.2", families=(family,), searches=(search,))
'''
# Of a change below: a plug-in with an analysis that differs from one of the tree in these fields.
ANALYSIS = """
from workflow_src.evaluation.analyses.marginal import ANALYSIS

def change(**fields):
    return spec.Plugin("other", "1", analyses=(dataclasses.replace(ANALYSIS, **{"name": "other"} | fields),))

"""


class Settings(SearchSettings):
    width: Annotated[int, Option(part="-{}", always=True)] = Field(3, ge=1)
    slope: Annotated[float, Option(tune=True, part="-slope{:g}")] = Field(1.0, gt=0, lt=4)
    late: Annotated[bool, Option(part="-late")] = False


def test_names_settings_and_options_follow_from_the_class():
    assert Settings().name_parts() == "-3"
    changed = Settings(width=5, slope=0.25, late=True)
    assert changed.name_parts() == "-5-slope0.25-late"
    assert Settings.named("tune") == ("slope",)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"width": 0}, "here.width is 0; it must be 1 or more."),
        ({"slope": 4}, "here.slope is 4; it must be above 0 and below 4."),
        ({"slop": 1}, "here.slop is no setting here; allowed: width, slope, late."),
    ],
)
def test_a_setting_that_does_not_fit_is_told_in_a_sentence(fields, told):
    with pytest.raises(ValueError) as caught:
        Settings.checked(fields, "here.")
    assert str(caught.value) == told


def test_what_a_rule_is_handed_gives_the_settings_back():
    for search in registry.searches().values():
        settings = search.settings()
        assert registry.settings_of({"search": search.name} | settings.model_dump(mode="json")) == settings
    with pytest.raises(ValueError, match="nothing is no setting here"):
        registry.settings_of({"search": "beam", "nothing": 1})
    with pytest.raises(ValueError, match="beam is no setting here"):
        registry.settings_of({"search": "greedy", "beam": 2})


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Write a package into the working directory; `write(text)` returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    monkeypatch.delenv(registry.PLACES, raising=False)
    made = []

    def write(change: str = "", name: str = "other_package") -> str:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text(PLUGIN + change)
        made.append(name)
        return name

    yield write
    registry.use([])
    for name in made:
        sys.modules.pop(name, None)


def test_a_plug_in_is_declared_like_any_other_member(plugin):
    name = plugin()
    registry.use([name])
    assert registry.families()["other-family"].training_rule == "train_teacher"
    assert registry.searches_of(registry.families()["other-family"]) == ("other-search",)
    (loaded,) = registry.plugins()
    assert loaded.record() == {"name": "other", "module": name, "version": "1.2", "digest": loaded.digest}
    registry.use([])
    assert "other-family" not in registry.families()


def test_a_configuration_names_plug_ins(plugin):
    systems = {"mine": {"family": "other-family", "preset": "miniature", "training": {"max_steps": 5}}}
    decodes = [{"system": "mine", "search": "other-search"}]
    loaded = load_experiment("smoke", plugins=[plugin()], systems=systems, decodes=decodes)
    assert [decode.name for decode in loaded.decodes] == ["other-search"]
    # Another configuration knows nothing of it.
    with pytest.raises(ConfigError, match='unknown family "other-family"'):
        load_experiment("smoke", systems=systems, decodes=decodes)


def test_the_digest_is_that_of_the_packages_files(plugin, tmp_path):
    plugin()
    path = tmp_path / "other_package/__init__.py"
    before = registry.digest(path)
    (tmp_path / "other_package/more.py").write_text("")
    assert registry.digest(path) != before


METRIC = """
metric = spec.Metric(name="mine", title="mine", segments="workflow_src.evaluation.metrics.chrf.measure:segments", {})
PLUGIN = dataclasses.replace(PLUGIN, metrics=(metric,))
"""


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ('name="seed"', 'metric "seed": files have another key of that name; rename the metric.'),
        ('name="ter_ci"', 'metric "ter_ci": files have another key of that name; rename the metric.'),
        ('name="bleu"', 'metric "bleu" is declared by Continuum itself and by plug-in other; rename one of them.'),
        ('name="Mine"', 'metric "Mine": "Mine" cannot be a name; it must match [a-z][a-z0-9_+-]*.'),
        ('segments="here:there"', 'metric "mine": segments "here:there" cannot be found: there is no module here.'),
        ("segments=None, uncertainty=False", 'metric "mine" has neither segments nor score; name a function.'),
        (
            'segments=None, score="workflow_src.evaluation.metrics.chrf.measure:score"',
            'metric "mine" has no segments, which tests need; name their function, or set uncertainty and decides to '
            "False.",
        ),
        ("settings=dict", 'metric "mine": its settings are no class derived from Frozen.'),
        ("settings=FAMILY.model", 'metric "mine": a setting has no default; give every setting one.'),
    ],
)
def test_metrics_that_cannot_be_used_are_named(plugin, change, told):
    changed = (
        f"metric = dataclasses.replace(metric, {change})\nPLUGIN = dataclasses.replace(PLUGIN, metrics=(metric,))\n"
    )
    with pytest.raises(DeclarationError) as caught:
        registry.use([plugin(METRIC.format("") + changed)])
    assert str(caught.value) == told


def test_no_metric_can_have_the_name_of_another_key_of_its_files():
    assert {*Row.model_fields, "length_ratio"} == METRIC_TAKEN


def test_metrics_of_an_experiment_are_those_it_lists_and_the_main_one(plugin):
    name = plugin(METRIC.format(""))
    loaded = load_experiment("smoke", plugins=[name], metrics={"mine": None, "ter": {"case_sensitive": True}})
    assert [one.metric.name for one in loaded.metrics] == ["bleu", "ter", "mine"]
    assert loaded.metrics[1].settings.case_sensitive
    # By default those of the project alone, of which rules are told nothing.
    loaded = load_experiment("smoke", plugins=[name])
    assert "mine" not in [one.metric.name for one in loaded.metrics]
    assert "metrics" not in json.loads(Plan(loaded).settings_quality())
    assert loaded.metrics == measured(None) == load_experiment("smoke", metrics=[*measured_names()]).metrics


def measured_names() -> list[str]:
    return [metric.name for metric in registry.default_metrics()]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"metrics": ["bleu", "rouge"]}, 'unknown metric "rouge" in metrics; allowed: bleu, '),
        ({"metrics": [5]}, "setting metrics has the value [5]: it must be a list of names, such as [bleu, ter], or"),
        ({"metrics": ["ter", "ter"]}, "it has ter twice"),
        ({"metrics": {"ter": {"case": True}}}, 'unknown setting "case" in metrics.ter; allowed: '),
        ({"metrics": {"chrf": {"beta": 0}}}, "setting metrics.chrf.beta has the value 0: it must be 1 or more"),
        (
            {"metrics": ["ter"], "report": {"expected_convention": "tokenised"}},
            "report.expected_convention is tokenised, and metrics lists no bleu_tokenised; add bleu_tokenised, or say ",
        ),
        ({"decodes": [TUNED | {"tune_by": "ter"}]}, 'unknown metric "ter" in tune_by of decode '),
        (
            {"decodes": [{"system": "lvm", "search": "prior-mean", "tune_by": "chrf"}]},
            "decodes[0].tune_by chooses among",
        ),
    ],
)
def test_metrics_that_do_not_fit_are_told_in_a_sentence(settings, told):
    with pytest.raises(ConfigError) as caught:
        load_experiment("smoke", **settings)
    assert str(caught.value).startswith(told) or told in str(caught.value)


def test_a_metric_that_cannot_score_the_corpus_is_refused_where_it_is_asked_for():
    assert "validity" in [one.metric.name for one in load_experiment("multi30k").metrics]
    with pytest.raises(ConfigError, match="^metrics.validity is known of generated corpora only; remove it.$"):
        load_experiment("multi30k", metrics=["validity"])


def test_rules_hold_the_metrics_that_change_their_results():
    """One more metric scores and compares anew, and chooses anew where it decides."""
    plans = [
        Plan(load_experiment("smoke", metrics=metrics, decodes=[TUNED | {"tune_by": by}, TUNED | {"name": "by-bleu"}]))
        for metrics, by in ((["chrf", "ter"], "chrf"), (["chrf", "ter", "chrf++"], "chrf"), (["chrf", "ter"], "ter"))
    ]
    quality, significance, report = (
        [getattr(plan, f"settings_{rule}")() for plan in plans] for rule in ("quality", "significance", "report")
    )
    for settings in (quality, significance, report):
        assert settings[0] == settings[2] != settings[1]
    by_another, by_main = ([plan.settings_choose(plan.loaded.decodes[n]) for plan in plans] for n in (0, 1))
    assert by_another[0] == by_another[1] != by_another[2] and len(set(by_main)) == 1
    assert "metrics" not in json.loads(by_main[0]) and json.loads(by_another[2])["tune_by"] == "ter"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("PLUGIN = 3", 'plug-in "other_package" has no PLUGIN of type workflow_src.spec.Plugin; add it.'),
        ("import nothing_of_that_name", 'plug-in "other_package" cannot be imported: No module named'),
        (
            'PLUGIN = spec.Plugin("other", "1", searches=(SEARCH,))',
            'search "greedy" is declared by Continuum itself and by plug-in other; rename one of them.',
        ),
        (
            'PLUGIN = dataclasses.replace(PLUGIN, families=(dataclasses.replace(family, build="nowhere:x"),))',
            'family "other-family": build "nowhere:x" cannot be found: there is no module nowhere.',
        ),
        (
            "PLUGIN = dataclasses.replace(PLUGIN, families=(dataclasses.replace(family, "
            'loss="workflow_src.losses.common:nothing"),))',
            'loss "workflow_src.losses.common:nothing" cannot be found: workflow_src.losses.common defines no nothing.',
        ),
        (
            'role = {"model": spec.Role("telepathic")}\n'
            "PLUGIN = dataclasses.replace(PLUGIN, searches=(dataclasses.replace(search, needs=role),))",
            'search "other-search": role "model" asks for the trait "telepathic", which no family has',
        ),
        (
            "one = dataclasses.replace(search, traceable=True, series=None)\n"
            "PLUGIN = dataclasses.replace(PLUGIN, searches=(one,))",
            'search "other-search" is traceable and has no series to trace; name one of its settings.',
        ),
        (
            'PLUGIN = dataclasses.replace(PLUGIN, searches=(dataclasses.replace(search, needs={"x": spec.Role()}),))',
            'search "other-search" needs no role "model", which the system itself fills; add it.',
        ),
        (
            'PLUGIN = dataclasses.replace(PLUGIN, searches=(dataclasses.replace(search, families="lvm"),))',
            """search "other-search": families is 'lvm'; it must be a tuple of names.""",
        ),
        (
            "PLUGIN = dataclasses.replace(PLUGIN, searches=(dataclasses.replace(search, families=(family,)),))",
            'search "other-search": families is (',
        ),
        (
            'PLUGIN = dataclasses.replace(PLUGIN, searches=(dataclasses.replace(search, name="other/search"),))',
            'search "other/search": "other/search" cannot be a name; it must match [a-z0-9]',
        ),
        (
            'PLUGIN = dataclasses.replace(PLUGIN, families=(dataclasses.replace(family, name="Other"),))',
            'family "Other": "Other" cannot be a name; it must match [a-z0-9]',
        ),
        (
            "PLUGIN = dataclasses.replace(PLUGIN, families=(dataclasses.replace(family, traits={spec.MASKED}),))",
            'family "other-family" predicts masked words and does not say the trait "lengths": its searches begin with '
            'a length; add the trait "lengths" and a head of lengths.',
        ),
        (
            'PLUGIN = dataclasses.replace(PLUGIN, families=(dataclasses.replace(family, searches=("delta",)),))',
            'family "other-family" cannot be decoded by search "delta", whose role "model" asks for the trait',
        ),
        (
            ANALYSIS + "PLUGIN = change(name='mar-ginal')",
            'analysis "mar-ginal": "mar-ginal" cannot be a name; it must',
        ),
        (
            ANALYSIS + "PLUGIN = change(name='marginal')",
            'analysis "marginal" is declared by Continuum itself and by plug-in other; rename one of them.',
        ),
        (
            ANALYSIS + "PLUGIN = change()",
            '"estimate_marginal" cannot name its rule, which is that of analysis "marginal"; use small letters',
        ),
        (
            ANALYSIS + "PLUGIN = change(name='speed', rule=None)",
            'analysis "speed": "measure_speed" cannot name its rule, which is that of stage measure_speed; use small',
        ),
        (ANALYSIS + "PLUGIN = change(rule='a b')", 'analysis "other": "a b" cannot name its rule; use small letters'),
        (
            ANALYSIS + "PLUGIN = change(rule='r', settings=spec.Frozen)",
            'analysis "other": its settings are no class derived from AnalysisSettings.',
        ),
        (
            ANALYSIS + "class Open(spec.AnalysisSettings):\n    count: int\nPLUGIN = change(rule='r', settings=Open)",
            'analysis "other": a setting has no default; give every setting one.',
        ),
        (ANALYSIS + "PLUGIN = change(rule='r', split='train')", 'its split is "train"; it must be dev, test, or None.'),
        (
            ANALYSIS + "PLUGIN = change(rule='r', show='nowhere:x')",
            'analysis "other": show "nowhere:x" cannot be',
        ),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused_in_one_sentence(plugin, change, told):
    name = plugin(change)
    with pytest.raises(DeclarationError) as caught:
        registry.use([name])
    assert told in str(caught.value) and "\n" not in str(caught.value)
    # What was there before is there again.
    assert "other-family" not in registry.families() and registry.wanted() == ()


def test_a_plug_in_that_is_nowhere_is_told_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match='plug-in "nobody" is neither installed nor a package in .*; install it'):
        load_experiment("smoke", plugins=["nobody"])


def test_declarations_need_no_torch():
    code = "import sys; from workflow_src import registry; registry.members(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_roles_are_filled_by_the_system_itself_before_its_base():
    lvm, score = registry.families()["lvm"], registry.families()["score"]
    needed = {"model": Role("latent"), "refiner": Role("refiner"), "rescorer": Role("autoregressive", optional=True)}
    assert registry.fill(needed, [("own", score), ("base", lvm)], {}) == {"model": "base", "refiner": "own"}
    assert registry.fill({"model": Role()}, [("own", score), ("base", lvm)], {}) == {"model": "own"}
    with pytest.raises(ValueError, match='role "refiner" needs a network that refines the latents of a base, and'):
        registry.fill(needed, [("own", lvm)], {})


def test_a_setting_goes_with_one_that_names_a_system():
    class Weighed(registry.searches()["greedy"].settings):
        weight: Annotated[float, Option(tune=True, only_with="max_length_ratio")] = 1.0

    wrong = dataclasses.replace(registry.searches()["greedy"], name="wrong", settings=Weighed)
    with pytest.raises(DeclarationError, match='"wrong": setting "weight" goes with a setting that names no'):
        check(registry.families(), {**registry.searches(), "wrong": wrong}, registry.engines())

    class Counted(registry.searches()["greedy"].settings):
        tries: Annotated[int, Option()] = 0
        spread: Annotated[float, Option(only_with="tries")] = 1.0

    right = dataclasses.replace(wrong, settings=Counted)
    check(registry.families(), {**registry.searches(), "wrong": right}, registry.engines())
    Counted(tries=1, spread=2.0).check_used()
    with pytest.raises(ValueError, match="^spread is 2.0, and without tries nothing but the default, 1.0, is allowed"):
        Counted(spread=2.0).check_used()


def wrong_search(**fields):
    """What is said of a search whose settings have one field more."""
    settings = pydantic.create_model("Wrong", __base__=registry.searches()["greedy"].settings, **fields)
    wrong = dataclasses.replace(registry.searches()["greedy"], name="wrong", settings=settings)
    with pytest.raises(DeclarationError) as caught:
        check(registry.families(), {**registry.searches(), "wrong": wrong}, registry.engines())
    return str(caught.value)


def test_a_setting_is_not_named_as_what_every_decode_has():
    assert set(DECODE_FIELDS) == set(DecodeConfig.model_fields)
    told = wrong_search(batch=(int, 3))
    assert told == 'search "wrong": "batch" cannot be a setting, because every decode has one; rename it.'


def test_a_setting_is_not_named_as_what_the_command_or_an_argument_is():
    names = {name: why for taken, why in TAKEN for name in taken}
    options = {action.dest for action in command._parser(None, {})._actions} - set(command._settings())
    arguments = set(inspect.signature(Translator.translate).parameters) - {"fields"}
    assert options | arguments <= set(names)
    for name in ("threads", "chosen", "systems"):
        told = wrong_search(**{name: (int, 3)})
        assert told == f'search "wrong": "{name}" cannot be a setting, because {names[name]}; rename it.'


def test_whoever_learns_lengths_learns_them_with_a_weight():
    """A length head that learns nothing gives lengths all the same."""
    checked = []
    for family in registry.families().values():
        if family.objective is None or "length_weight" not in family.objective.model_fields:
            continue
        checked.append(family.name)
        try:
            objective = family.objective(length_weight=0)
        except pydantic.ValidationError as told:
            assert told.errors()[0]["type"] == "greater_than"
        else:
            assert "length_weight is 0" in family.conflict(family.model.model_construct(), objective)
    assert {"lvm", "nat", "cmlm", "lanmt", "inat", "tagger", "inference-network"} <= set(checked)


@pytest.mark.parametrize("part", ["-size{:q}", "-{}-{}", "-{0[x]}", "-{"])
def test_the_part_of_a_name_is_a_format_of_one_value(part):
    told = wrong_search(size=(Annotated[int, Option(part=part)], 3))
    assert told == f'search "wrong": setting "size" has the part "{part}", which is no format of one value.'


def test_the_name_of_an_engine_ends_where_its_compute_type_begins():
    engine = dataclasses.replace(registry.engines()["onnxruntime"], name="my-engine")
    with pytest.raises(DeclarationError, match='engine "my-engine": "my-engine" cannot be a name; it must match'):
        check(registry.families(), registry.searches(), {**registry.engines(), "my-engine": engine})


def test_an_installed_package_is_found_by_its_entry_point(plugin, tmp_path):
    """As pip leaves it: a package, and a folder beside it that says what it offers."""
    plugin()
    metadata = tmp_path / "other_package-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[{registry.GROUP}]\nother = other_package\n")
    code = (
        "from workflow_src import registry; (loaded,) = registry.plugins(); print(loaded.record()['version'], "
        "'other-family' in registry.families(), 'other-search' in registry.searches())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    for name in (registry.VARIABLE, registry.PLACES):
        environment.pop(name, None)
    # Nobody names it, and it is not in the working directory.
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "1.2 True True\n", done.stderr


def test_a_search_with_the_settings_of_another_is_refused():
    searches = registry.searches()
    twin = dataclasses.replace(searches["greedy"], name="twin")
    with pytest.raises(DeclarationError, match='has the settings class of search "greedy"; derive a class'):
        check(registry.families(), {**searches, "twin": twin}, registry.engines())


@pytest.mark.parametrize(
    ("exports", "export", "told"),
    [
        ("mine", None, "has only one of exports and export; declare both or none"),
        ("bundle", "workflow_src.engines.ctranslate2_spec:export", '"bundle" cannot name its exports'),
        ("two words", "workflow_src.engines.ctranslate2_spec:export", '"two words" cannot name its exports'),
        ("mine", "workflow_src.engines:nothing", 'export "workflow_src.engines:nothing" cannot be found'),
    ],
)
def test_an_engine_whose_export_cannot_have_a_rule_is_refused(exports, export, told):
    engines = registry.engines()
    first = registry.default_engine()
    wrong = dataclasses.replace(first, name="wrong", exports=exports, export=export)
    with pytest.raises(DeclarationError, match='engine "wrong".*' + told):
        check(registry.families(), registry.searches(), {**engines, "wrong": wrong})


def test_a_family_whose_rule_has_no_name_of_a_training_is_refused():
    families = registry.families()
    wrong = dataclasses.replace(next(iter(families.values())), name="wrong", rule="report")
    with pytest.raises(DeclarationError, match='family "wrong": its rule "report" is no name such as train_'):
        check({**families, "wrong": wrong}, registry.searches(), registry.engines())


def test_families_have_colours_of_their_own():
    colours = [family.look.colour for family in registry.families().values() if family.look.colour]
    assert len(set(colours)) == len(colours) > 5
