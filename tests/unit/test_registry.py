"""Declarations: who is declared, what follows from a settings class, and what is refused in one sentence."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import pytest
from outside import working_in
from pydantic import Field
from refusals import refuses

from workflow_src import cli, registry
from workflow_src.config.experiment import DecodeConfig
from workflow_src.config.load import load_experiment
from workflow_src.config.metrics import measured
from workflow_src.config.plan import Plan
from workflow_src.config.resolved import Decode
from workflow_src.config.roles import fill
from workflow_src.declarations import (
    CONTENT_RESERVED,
    DECODE_FIELDS,
    METRIC_RESERVED,
    RESERVED,
    ROW_RESERVED,
    check,
    check_sections,
    code_of,
)
from workflow_src.errors import ConfigError, DeclarationError, InputError
from workflow_src.evaluation import content as contents
from workflow_src.evaluation.report import evidence, results
from workflow_src.evaluation.report.comparison import GAP
from workflow_src.serving import options as command_options
from workflow_src.serving.translator import Translator
from workflow_src.spec import UNKNOWN, Figure, FigureTable, Frozen, Key, Option, Role, SearchSettings, parse

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
    slope: Annotated[float, Option(tune=(0.5, 1.0), part="-slope{:g}")] = Field(1.0, gt=0, lt=4)
    late: Annotated[bool, Option(part="-late")] = False


def declared(**more):
    """All members by kind and name, and one `more` of a kind."""
    members = registry.members()
    by_kind = {kind: dict(getattr(members, field)) for kind, field in registry.KINDS.items()}
    for kind, member in more.items():
        by_kind[kind][member.name] = member
    return by_kind


def refusal_of(kind, name, **changes) -> str:
    """What is wrong with a member of the tree in which some fields are changed."""
    member = dataclasses.replace(getattr(registry.members(), registry.KINDS[kind])[name], **changes)
    with pytest.raises(DeclarationError) as refused:
        check(declared(**{kind: member}))
    assert refused.value.subject == f'{kind} "{name}"'
    return refused.value.problem


def greedy_settings(**fields) -> type[SearchSettings]:
    """Settings of greedy search with further fields."""
    return pydantic.create_model("Further", __base__=registry.searches()["greedy"].settings, **fields)


def wrong_setting(**fields) -> str:
    """What is wrong with a search whose settings have these fields too."""
    return refusal_of("search", "greedy", settings=greedy_settings(**fields))


def test_names_settings_and_options_follow_from_the_class():
    assert Settings().name_parts() == "-3"
    changed = Settings(width=5, slope=0.25, late=True)
    assert changed.name_parts() == "-5-slope0.25-late"
    assert Settings.named("tune") == ("slope",)


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"width": 0}, {"setting": "here.width", "value": 0}),
        ({"slope": 4}, {"setting": "here.slope", "value": 4}),
        ({"slop": 1}, {"setting": "here.slop", "nearest": "slope"}),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(settings, fields):
    with refuses(InputError, **fields):
        parse(Settings, settings, "here")


@pytest.fixture
def plugin(tmp_path):
    """Write a package into the working directory; `write(text)` returns its name."""

    def write(change: str = "", name: str = "other_package") -> str:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text(PLUGIN + change)
        return name

    with working_in(tmp_path):
        yield write


def test_a_plug_in_is_declared_like_any_other_member(plugin):
    name = plugin()
    registry.use([name])
    assert registry.families()["other-family"].training_rule == "train_teacher"
    assert registry.searches_of(registry.families()["other-family"]) == ("other-search",)
    (loaded,) = registry.plugins()
    assert loaded.record() == {"name": "other", "module": name, "version": "1.2", "digest": loaded.digest}
    registry.use([])
    assert "other-family" not in registry.families()


@pytest.mark.parametrize(
    "select",
    [
        "lambda settings, loaded: None",
        "lambda settings, loaded: loaded.nothing",
        "lambda settings, loaded: spec.Selection(('nobody',))",
    ],
)
def test_an_analysis_that_selects_nothing_that_can_be_used_is_refused(plugin, select):
    change = f"PLUGIN = change(rule='r', settings=Mine, select={select})"
    name = plugin(f"{ANALYSIS}class Mine(spec.AnalysisSettings):\n    pass\n{change}")
    with pytest.raises(DeclarationError) as refused:
        Plan(load_experiment("smoke", plugins=[name])).analyses["other"]
    assert refused.value.subject == 'analysis "other" of plug-in other' and "select" in refused.value.problem


@pytest.mark.parametrize(("name", "use"), [("searches", ""), ("rows", ", spec.Use.LIMIT")])
def test_an_analysis_whose_selection_hides_a_setting_is_refused(plugin, name, use):
    """Else the job would have the selection in place of the user's value."""
    fields = f"{name}: Annotated[int, None{use}] = 3"
    select = f"lambda settings, loaded: spec.Selection(entries={{{name!r}: []}})"
    change = f"PLUGIN = change(rule='r', settings=Mine, select={select})"
    written = f"from typing import Annotated\nclass Mine(spec.AnalysisSettings):\n    {fields}\n"
    loaded = load_experiment("smoke", plugins=[plugin(ANALYSIS + written + change)])
    with pytest.raises(DeclarationError) as refused:
        Plan(loaded).analyses["other"]
    assert refused.value.subject == 'analysis "other" of plug-in other' and f'"{name}"' in refused.value.problem


GREEDY = {"system": "teacher", "search": "greedy"}
MINE = {"mine": {"family": "other-family", "preset": "miniature", "training": {"max_steps": 5}}}


@pytest.mark.parametrize(
    ("declared", "subject", "settings"),
    [
        (
            "engines=(spec.Engine(name='mine', title='Mine', open='some.module:open', serves=FUNCTION),)",
            'engine "mine"',
            {"decodes": [GREEDY | {"engine": "mine"}]},
        ),
        (
            "metrics=(spec.Metric(name='mine', title='mine', segments='some.module:run', conflict=FUNCTION),)",
            'metric "mine"',
            {"metrics": ["mine"]},
        ),
        (
            "filters=(spec.Filter(name='mine', title='Mine', settings=spec.Frozen, check=len, conflict=FUNCTION),)",
            'filter "mine"',
            {"recipe": {"clean": {"mine": {}}}},
        ),
        ("families=(dataclasses.replace(family, conflict=FUNCTION),)", 'family "other-family"', {"systems": MINE}),
        ("families=(dataclasses.replace(family, refuses=FUNCTION),)", 'family "other-family"', {"systems": MINE}),
        ("families=(dataclasses.replace(family, continues=FUNCTION),)", 'family "other-family"', {"systems": MINE}),
    ],
)
@pytest.mark.parametrize("function", ["lambda: None", "lambda *_: True"])
def test_a_declared_function_that_gives_no_reason_is_refused(plugin, function, declared, subject, settings):
    name = plugin(f"PLUGIN = dataclasses.replace(PLUGIN, {declared})".replace("FUNCTION", function))
    decode = {"system": "mine", "search": "other-search"} if "systems" in settings else GREEDY
    with refuses(DeclarationError, subject=f"{subject} of plug-in other"):
        load_experiment("smoke", plugins=[name], **{"decodes": [decode]} | settings)


def test_a_configuration_names_plug_ins(plugin):
    systems = {"mine": {"family": "other-family", "preset": "miniature", "training": {"max_steps": 5}}}
    decodes = [{"system": "mine", "search": "other-search"}]
    loaded = load_experiment("smoke", plugins=[plugin()], systems=systems, decodes=decodes)
    assert [decode.name for decode in loaded.decodes] == ["other-search"]
    # Another configuration knows nothing of it.
    with pytest.raises(ConfigError, match=r"systems.mine.family is 'other-family'"):
        load_experiment("smoke", systems=systems, decodes=decodes)


def test_the_digest_is_that_of_the_packages_files(plugin, tmp_path):
    plugin()
    path = tmp_path / "other_package/__init__.py"
    before = registry.digest(path)
    for hidden in (".more.py.swp", ".ruff_cache/0", "__pycache__/more.pyc"):
        (tmp_path / "other_package" / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / "other_package" / hidden).write_text("")
    assert registry.digest(path) == before
    (tmp_path / "other_package/more.py").write_text("")
    assert registry.digest(path) != before


METRIC = """
segments = "workflow_src.evaluation.metrics.sacre.measure:chrf_segments"
metric = spec.Metric(name="mine", title="mine", segments=segments, {})
PLUGIN = dataclasses.replace(PLUGIN, metrics=(metric,))
"""
KEYS_OF_FILES = ("latency_ms", "ter_ci", "mine_signature", "against_fastest", "as_published")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *((f'name="{name}"', (f'metric "{name}"', "another key of files")) for name in KEYS_OF_FILES),
        ('title="TER"', ('title "TER"', 'metric "ter"')),
        ('convention=spec.Convention("tokenised", "x", "y")', ('"tokenised"', 'metric "bleu_tokenised"')),
        ("better='less'", ("Metric.better is 'less'", "higher, lower")),
        ("bounds=(1, 0)", ('metric "mine"', "bounds (1, 0)")),
        ("title=''", ("Metric.title is ''",)),
        ('name="bleu"', ('metric "bleu"', "rename one of them")),
        ('name="Mine"', ("Metric.name is 'Mine'", "[a-z][a-z0-9_+-]*")),
        ("segments='mine'", ("Metric.segments is 'mine'",)),
        ("segments=None, uncertainty=False", ('metric "mine"', "neither segments nor score")),
        ('segments=None, score="workflow_src.evaluation.metrics.sacre.measure:chrf"', ("no segments", "tests need")),
        ("settings=dict", ("Metric.settings is", "Frozen")),
        ("settings=FAMILY.model", ('metric "mine"', "without a default")),
    ],
)
def test_metrics_that_cannot_be_used_are_named(plugin, change, words):
    changed = f"metric = dataclasses.replace(metric, {change})\n"
    changed += "PLUGIN = dataclasses.replace(PLUGIN, metrics=(metric,))\n"
    with refuses(DeclarationError, mentions=words):
        registry.use([plugin(METRIC.format("") + changed)])


def test_the_main_metric_has_tests_and_is_the_projects_own(plugin):
    registry.use([plugin(METRIC.format("") + METRIC.format("").replace("segments=", "order=-1, segments="))])
    assert list(registry.metrics())[:2] == ["bleu", "mine"] and registry.main_metric().uncertainty


def test_no_metric_can_have_the_name_of_another_key_of_its_files():
    assert {*evidence.FIGURES, results.FROM_CONTROL, GAP, "mean_steps"} <= METRIC_RESERVED


def test_metrics_of_an_experiment_are_those_it_lists_and_the_main_one(plugin):
    name = plugin(METRIC.format(""))
    loaded = load_experiment("smoke", plugins=[name], metrics={"mine": None, "ter": {"case_sensitive": True}})
    assert [one.metric.name for one in loaded.metrics] == ["bleu", "ter", "mine"]
    assert loaded.metrics[1].settings.case_sensitive
    # By default those of the project alone.
    loaded = load_experiment("smoke", plugins=[name])
    assert "mine" not in [one.metric.name for one in loaded.metrics]
    assert json.loads(Plan(loaded).settings_quality())["metrics"].keys() == {*measured_names()}
    assert loaded.metrics == measured(None) == load_experiment("smoke", metrics=[*measured_names()]).metrics


@pytest.mark.parametrize(
    ("listed", "fields"),
    [
        ({"bleu": {}, "rouge": {}}, {"setting": "settings.metrics.rouge", "problem": "no metric"}),
        ({}, {"setting": "settings.metrics", "problem": "bleu is missing"}),
        ({"ter": {}}, {"setting": "settings.metrics", "problem": "bleu is missing"}),
        ({"bleu": {}, "ter": {"case": 1}}, {"setting": "settings.metrics.ter.case", "problem": UNKNOWN}),
    ],
)
def test_metrics_of_a_rule_that_cannot_be_measured_are_refused(listed, fields):
    with refuses(**fields):
        measured(listed)


def measured_names() -> list[str]:
    return [metric.name for metric in registry.default_metrics()]


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"metrics": ["bleu", "rouge"]}, {"setting": "metrics.rouge", "problem": "no metric"}),
        ({"metrics": [5]}, {"setting": "metrics", "value": [5]}),
        ({"metrics": ["ter", "ter"]}, {"setting": "metrics", "allowed": "each once"}),
        ({"metrics": {"ter": {"case": True}}}, {"setting": "metrics.ter.case", "problem": UNKNOWN}),
        ({"metrics": {"chrf": {"beta": 0}}}, {"setting": "metrics.chrf.beta", "value": 0}),
        (
            {"metrics": ["ter"], "report": {"expected_convention": "tokenised"}},
            {"setting": "report.expected_convention", "problem": "metrics lists no bleu_tokenised"},
        ),
        ({"decodes": [TUNED | {"tune_by": "ter"}]}, {"setting": "decodes[0].tune_by", "value": "ter"}),
        (
            {"decodes": [{"system": "lvm", "search": "prior-mean", "tune_by": "chrf"}]},
            {"setting": "decodes[0].tune_by", "problem": "tune lists no settings"},
        ),
    ],
)
def test_metrics_that_do_not_fit_are_refused(settings, fields):
    with refuses(**fields):
        load_experiment("smoke", **settings)


def test_a_metric_that_cannot_score_the_corpus_is_refused_where_it_is_asked_for():
    assert "validity" in [one.metric.name for one in load_experiment("multi30k").metrics]
    with refuses(setting="metrics.validity", mentions=("generated corpora",)):
        load_experiment("multi30k", metrics=["validity"])


def test_rules_hold_the_metrics_that_change_their_results():
    """One more metric scores and compares anew, and chooses anew where it decides."""
    plans = [
        Plan(load_experiment("smoke", metrics=metrics, decodes=[TUNED | {"tune_by": by}, TUNED | {"name": "by-bleu"}]))
        for metrics, by in ((["chrf", "ter"], "chrf"), (["chrf", "ter", "chrf++"], "chrf"), (["chrf", "ter"], "ter"))
    ]
    quality, report = ([getattr(plan, f"settings_{rule}")() for plan in plans] for rule in ("quality", "report"))
    significance = [plan.settings_significance("test") for plan in plans]
    assert quality[0] == quality[2] != quality[1]
    # These name files of decodes, and what decided.
    assert len(set(significance)) == len(set(report)) == 3
    by_another, by_main = ([plan.settings_choose(plan.loaded.decodes[n]) for plan in plans] for n in (0, 1))
    assert by_another[0] == by_another[1] != by_another[2] and len(set(by_main)) == 1
    assert "metrics" not in json.loads(by_main[0]) and json.loads(by_another[2])["decode"]["tune_by"] == "ter"


def families(changes: str) -> str:
    """The end of a plug-in whose family differs in these fields."""
    return f"PLUGIN = dataclasses.replace(PLUGIN, families=(dataclasses.replace(family, {changes}),))"


def searches(changes: str) -> str:
    """The end of a plug-in whose search differs in these fields."""
    return f"PLUGIN = dataclasses.replace(PLUGIN, searches=(dataclasses.replace(search, {changes}),))"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("PLUGIN = 3", ('plug-in "other_package"', "no PLUGIN of type workflow_src.spec.Plugin")),
        ("import nothing_of_that_name", ('plug-in "other_package"', "No module named 'nothing_of_that_name'")),
        ('PLUGIN = spec.Plugin("other", "1", searches=(SEARCH,))', ('search "greedy"', "Continuum", "plug-in other")),
        ('PLUGIN = spec.Plugin("", "1")', ('plug-in "other_package"', "Plugin[0] is ''")),
        ('PLUGIN = spec.Plugin("other", version="")', ('plug-in "other_package"', "Plugin.version is ''")),
        (searches('needs={"model": spec.Role("telepathic")}'), ('search "other-search"', '"model"', '"telepathic"')),
        (searches("traceable=True, series=None"), ('search "other-search"', "traceable", "no series")),
        (searches("even_steps=True, series=None"), ('search "other-search"', "even steps", "no series")),
        (searches('needs={"model": spec.Role(agrees=("dim",))}'), ("Role.agrees", UNKNOWN)),
        (searches('needs={"x": spec.Role()}'), ('search "other-search"', 'no role "model"')),
        (searches('families="lvm"'), ("Search.families is 'lvm'",)),
        (searches("families=(family,)"), ("Search.families[0] is",)),
        (searches('name="other/search"'), ("Search.name is 'other/search'",)),
        (families('name="Other"'), ("Family.name is 'Other'",)),
        (families('look=spec.Look("red")'), ("Look[0] is 'red'", "#0072b2")),
        (families('look=spec.Look("#d55e00", dark="#12345")'), ("Look.dark is '#12345'", "#0072b2")),
        (searches('look=spec.Look(marker="O")'), ("Look.marker is 'O'", "h, o, p, s, v")),
        (families("training_cost=len"), ("Family.training_cost", UNKNOWN)),
        (families("weights=len"), ('family "other-family"', "declares weights")),
        (searches("cost=len"), ("Search.cost", UNKNOWN)),
        (families("traits={spec.MASKED}"), ('family "other-family"', "masked words", 'the trait "lengths"')),
        (families('searches=("delta",)'), ('family "other-family"', '"delta"', '"model"', '"latent"')),
        (ANALYSIS + "PLUGIN = change(name='mar-ginal')", ("Analysis.name is 'mar-ginal'",)),
        (ANALYSIS + "PLUGIN = change(name='marginal')", ('analysis "marginal"', "rename one of them")),
        (ANALYSIS + "PLUGIN = change()", ('rule "estimate_marginal"', 'analysis "marginal"')),
        (ANALYSIS + "PLUGIN = change(name='speed', rule=None)", ('rule "measure_speed"', "stage measure_speed")),
        (ANALYSIS + "PLUGIN = change(rule='a b')", ("Analysis.rule is 'a b'",)),
        (ANALYSIS + "PLUGIN = change(rule='r', settings=spec.Frozen)", ("Analysis.settings is", "AnalysisSettings")),
        (
            ANALYSIS + "class Open(spec.AnalysisSettings):\n    count: int\nPLUGIN = change(rule='r', settings=Open)",
            ('analysis "other"', "without a default"),
        ),
        (ANALYSIS + "PLUGIN = change(rule='r', split='train')", ("Analysis.split is 'train'", "dev, test")),
    ],
)
def test_a_declaration_that_cannot_be_used_is_refused_in_one_sentence(plugin, change, words):
    name = plugin(change)
    with refuses(DeclarationError, mentions=words):
        registry.use([name])
    # What was there before is there again.
    assert "other-family" not in registry.families() and registry.used_modules() == ()


def write_inner(folder: Path, init: str, code: str) -> None:
    """A module `code` in the package `inner` of the plug-in."""
    inner = folder / "other_package" / "inner"
    inner.mkdir(parents=True)
    (inner / "__init__.py").write_text(init)
    (inner / "code.py").write_text(code)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (families('build="nowhere:x"'), ('family "other-family"', 'build "nowhere:x"', "No module named 'nowhere'")),
        (
            families('loss="workflow_src.losses.common:no_such_loss"'),
            ('family "other-family"', "workflow_src.losses.common", "no_such_loss"),
        ),
        (searches('module="workflow_src.searches.greedy.search:Nothing"'), ('search "other-search"', "Nothing")),
        (
            searches('needs={"model": spec.Role(program="nowhere:x")}'),
            ('search "other-search"', 'the program of model "nowhere:x"'),
        ),
        (families('loss="workflow_src.spec:MODEL"'), ('family "other-family"', 'the loss "workflow_src.spec:MODEL"')),
        (searches('module="other_package:Settings"'), ('search "other-search"', '"other_package:Settings"')),
        (
            searches('module="workflow_src.decoding.search:open_search"'),
            ('search "other-search"', '"workflow_src.decoding.search:open_search"'),
        ),
        (searches("refines=True"), ('search "other-search"', "refines=True", "workflow_src.searches.greedy.search")),
        (searches("blocks=True"), ('search "other-search"', "blocks=True", "workflow_src.searches.greedy.search")),
        (ANALYSIS + "PLUGIN = change(rule='r', show='nowhere:x')", ('analysis "other"', 'the show "nowhere:x"')),
    ],
)
def test_a_plug_in_that_names_code_which_is_not_there_is_refused_before_jobs_run(plugin, change, words):
    registry.use([plugin(change)])
    with refuses(DeclarationError, mentions=words):
        registry.import_plugins()


def test_check_names_code_of_a_plug_in_that_is_not_there(plugin):
    name = plugin(families('loss="nowhere:x"'))
    with pytest.raises(SystemExit) as stop:
        cli.main(["check", "smoke", "--config", f"plugins=[{name}]"])
    assert str(stop.value.code).startswith("error: ") and '"nowhere:x"' in str(stop.value.code)


def test_code_of_a_plug_in_is_left_to_jobs_where_only_they_have_pytorch(plugin, monkeypatch):
    registry.use([plugin(families('loss="nowhere:x"'))])
    with monkeypatch.context() as planning:
        planning.setitem(sys.modules, "torch", None)
        registry.import_plugins()
    with pytest.raises(DeclarationError):
        registry.import_plugins()


@pytest.mark.parametrize(
    ("init", "code", "words"),
    [
        ("", "def run(): pass", ()),
        ("1 / 0", "run = 1", ("division by zero",)),
        ("", "\n\nrun = (", ("code.py", "line 3")),
    ],
)
def test_code_of_a_plug_in_is_imported_when_it_is_asked_for(plugin, tmp_path, init, code, words):
    write_inner(tmp_path, init, code)
    registry.use([plugin(families('loss="other_package.inner.code:run"'))])
    assert "other_package.inner.code" not in sys.modules
    if not words:
        registry.import_plugins()
        return
    words = ('family "other-family"', 'the loss "other_package.inner.code:run"', "cannot be imported", *words)
    with refuses(DeclarationError, mentions=words):
        registry.import_plugins()


@pytest.mark.parametrize("kind", ["model", "objective"])
def test_no_setting_has_the_name_of_the_key_beside_settings_of_jobs(plugin, kind):
    section = f"type('Section', (FAMILY.{kind},), {{'__annotations__': {{'defaults': int}}, 'defaults': 1}})"
    with refuses(DeclarationError, mentions=('family "other-family"', '"defaults"')):
        registry.use([plugin(families(f"{kind}={section}"))])


def test_a_plug_in_that_is_nowhere_is_reported_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match='plug-in "nobody" is neither installed'):
        load_experiment("smoke", plugins=["nobody"])


def test_a_plug_in_is_found_after_a_change_of_folder_and_by_jobs_too(plugin, tmp_path, monkeypatch):
    first, second = plugin(), plugin('PLUGIN = spec.Plugin("second", "1")', "second_package")
    registry.use([first])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / second).rename(elsewhere / second)
    monkeypatch.chdir(elsewhere)
    registry.use([first, second])
    assert [loaded.module for loaded in registry.plugins()] == [first, second]
    code = "from workflow_src import registry; print(*(loaded.module for loaded in registry.plugins()))"
    job = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert job.stdout.split() == [first, second]


def test_plug_ins_have_names_of_their_own(plugin):
    """Bundles record them by name."""
    first, second = plugin(), plugin('PLUGIN = spec.Plugin("other", "2")', "second_package")
    with refuses(DeclarationError, subject='plug-in "second_package"', mentions=('"other"', 'plug-in "other_package"')):
        registry.use([first, second])


def test_a_package_that_an_installed_module_hides_is_named(plugin, tmp_path, monkeypatch):
    name = plugin()
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / f"{name}.py").touch()
    monkeypatch.syspath_prepend(installed)
    with refuses(
        DeclarationError,
        subject=f'plug-in "{name}"',
        mentions=(str(installed / f"{name}.py"), f"rename {tmp_path / name},"),
    ):
        registry.use([name])


def test_roles_are_filled_by_the_system_itself_before_its_base():
    lvm, score = registry.families()["lvm"], registry.families()["score"]
    needed = {"model": Role("latent"), "refiner": Role("refiner"), "rescorer": Role("autoregressive", optional=True)}
    assert fill(needed, [("own", score), ("base", lvm)], {}) == {"model": "base", "refiner": "own"}
    assert fill({"model": Role()}, [("own", score), ("base", lvm)], {}) == {"model": "own"}
    with pytest.raises(InputError, match=r"^refiner: needs a network"):
        fill(needed, [("own", lvm)], {})


def test_a_setting_goes_with_one_that_names_a_system():
    weight = Annotated[float, Option(tune=(0.5, 1.0), only_with="max_length_ratio")]
    assert 'the setting "weight" only with max_length_ratio' in wrong_setting(weight=(weight, 1.0))
    spread = Annotated[float, Option(only_with="tries")]
    Counted = greedy_settings(tries=(int, 0), spread=(spread, 1.0))
    check(declared(search=dataclasses.replace(registry.searches()["greedy"], settings=Counted)))
    Counted(tries=1, spread=2.0).check_used()
    with pytest.raises(InputError, match=r"^spread is 2.0: without tries; allowed: 1.0"):
        Counted(spread=2.0).check_used()


def test_a_setting_that_is_in_every_name_is_in_the_label_too():
    """Else rows that differ in it alone look alike."""
    always = Annotated[int, Option(part="-{}", always=True)]
    assert '"tries" in every decode\'s name and in no label' in wrong_setting(tries=(always, 3))
    # Whatever the kind of its values, and where the default is the largest.
    for kind, default in ((Literal["near", "far"], "near"), (Annotated[float, Field(ge=0, le=1)], 1.0), (bool, False)):
        option = Annotated[kind, Option(part="-{}", always=True)]
        assert "in no label" in wrong_setting(tries=(option, default))
    settings = greedy_settings(tries=(always, 3))
    greedy = dataclasses.replace(registry.searches()["greedy"], name="right", settings=settings)
    check(declared(search=dataclasses.replace(greedy, label=lambda chosen: f"greedy, {chosen.tries} tries")))
    check(declared(search=dataclasses.replace(greedy, details=lambda chosen: [f"{chosen.tries} tries"])))
    check(declared(search=dataclasses.replace(greedy, series="tries")))


def test_a_setting_is_not_named_as_what_every_decode_has():
    assert set(DECODE_FIELDS) == set(DecodeConfig.model_fields)
    assert wrong_setting(batch=(int, 3)) == 'has the setting "batch", and every decode has one'
    reserved = {name for names, _ in RESERVED for name in names}
    assert set(Decode.model_fields) <= reserved
    assert "values" in wrong_setting(values=(int, 3))


def test_a_setting_is_not_named_as_what_the_command_or_an_argument_is():
    names = {name: why for reserved, why in RESERVED for name in reserved}
    options = {action.dest for action in command_options._parser(None, {})._actions} - set(command_options._settings())
    methods = (Translator.translate, Translator.request)
    arguments = {name for method in methods for name in inspect.signature(method).parameters} - {"options"}
    assert options | arguments <= set(names)
    for name in ("threads", "chosen", "systems"):
        assert names[name] in wrong_setting(**{name: (int, 3)})


def test_whoever_learns_lengths_learns_them_with_a_weight():
    """A length head that learns nothing gives lengths all the same."""
    checked = []
    for family in registry.families().values():
        if family.objective is None or "length_weight" not in family.objective.model_fields:
            continue
        checked.append(family.name)
        try:
            objective = family.objective(length_weight=0)
        except pydantic.ValidationError as failure:
            assert failure.errors()[0]["type"] == "greater_than"
        else:
            assert "length_weight is 0" in family.conflict(family.model.model_construct(), objective)
    assert {"lvm", "nat", "cmlm", "lanmt", "inat", "tagger", "inference-network"} <= set(checked)


@pytest.mark.parametrize(
    ("part", "kind", "default", "tune"),
    [
        *((part, int, 3, ()) for part in ("-size{:q}", "-{}-{}", "-{0[x]}", "-{", "/size{}", "-size {}")),
        ("-size{:d}", float, 1.5, ()),
        # Only a value that dev may choose does not fit.
        ("-size{:d}", float | None, None, (0.5,)),
        ("-size{}", str, "a", ("a", "b/c")),
        (lambda value: None, int, 3, ()),
        (lambda value: {3: "-three"}[value], int, 3, (4,)),
    ],
)
def test_the_part_of_a_name_fits_every_value_and_names_of_files(part, kind, default, tune):
    problem = wrong_setting(size=(Annotated[kind, Option(part=part, tune=tune)], default))
    assert problem.startswith('has the setting "size", whose part of names does not fit ')


@pytest.mark.parametrize("label", [lambda chosen: chosen.sise, lambda chosen: {3: "three"}[chosen.size]])
def test_every_value_of_a_setting_in_every_name_has_a_label(label):
    size = Annotated[int, Option(part="-{}", always=True)]
    problem = refusal_of("search", "greedy", settings=greedy_settings(size=(size, 3)), label=label)
    assert problem.startswith("has no label where size is ")


def test_a_value_that_is_no_part_of_a_name_is_refused_in_its_decode(plugin):
    setting = 'tone: Annotated[str, spec.Option(part="-{}")] = "plain"'
    change = f"from typing import Annotated\nclass Toned(spec.SearchSettings):\n    {setting}\n"
    change += "search = dataclasses.replace(search, settings=Toned)\n"
    change += "PLUGIN = dataclasses.replace(PLUGIN, searches=(search,))\n"
    systems = {"mine": {"family": "other-family", "preset": "miniature", "training": {"max_steps": 5}}}
    decodes = [{"system": "mine", "search": "other-search", "tone": "loud"}]
    more = {"plugins": [plugin(change)], "systems": systems}
    loaded = load_experiment("smoke", decodes=decodes, **more)
    assert [decode.name for decode in loaded.decodes] == ["other-search-loud"]
    with refuses(setting="decodes[0].tone", value="../loud"):
        load_experiment("smoke", decodes=[decodes[0] | {"tone": "../loud"}], **more)


def test_the_name_of_an_engine_ends_where_its_compute_type_begins():
    with pytest.raises(pydantic.ValidationError, match="my-engine"):
        dataclasses.replace(registry.engines()["onnxruntime"], name="my-engine")


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
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert process.stdout == "1.2 True True\n", process.stderr


ELSEWHERE = {"files": lambda _settings: {}, "build": None, "presets": None, "loss": None, "validation": None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"build": None}, "no build"),
        ({"loss": None}, "no loss"),
        ({"validation": None}, "no validation"),
        ({"fit": "some.module:fit"}, "fitted at once"),
        ({"model": Frozen}, "no model setting dim"),
        ({"positions": len, "model": registry.families()["transformer"].model}, "no model setting layers"),
        ({"searches": ()}, "names no search"),
        ({"searches": ("nothing",)}, 'the search "nothing"'),
        ({"engine": "eager"}, "only one of files and engine"),
        (ELSEWHERE, "only one of files and engine"),
        (ELSEWHERE | {"engine": "nothing", "weights": len}, 'the engine "nothing"'),
        (ELSEWHERE | {"engine": "eager"}, "no weights"),
        ({"weights": len}, "declares weights"),
        (ELSEWHERE | {"engine": "eager", "build": "some.module:build"}, "files from elsewhere"),
        ({"needs": {"judge": Role("telepathic")}}, '"judge" of the trait "telepathic"'),
        ({"needs": {"model": Role()}}, 'the role "model"'),
        ({"symbols": ("mask", "mask")}, "the symbols ('mask', 'mask')"),
    ],
)
def test_a_family_that_cannot_be_used_is_refused(changes, words):
    assert words in refusal_of("family", "lvm", **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"series": "nothing"}, 'the series "nothing"'),
        # Its settings are in every label, so that labels are looked at too.
        ({"settings": Settings, "series": "nothing"}, 'the series "nothing"'),
        ({"baseline": "nothing"}, 'the search "nothing"'),
        ({"control": "nothing"}, 'the search "nothing"'),
        ({"families": ("nothing",)}, 'the family "nothing"'),
        ({"families": ("lvm",)}, 'the role "model" of the search needs the trait "autoregressive"'),
        ({"needs": {"model": Role(), "judge": Role("telepathic", optional=True)}}, '"judge" of the trait "telepathic"'),
    ],
)
def test_a_search_that_cannot_be_used_is_refused(changes, words):
    assert words in refusal_of("search", "greedy", **changes)


FIGURES = (Figure("words", "words"),)


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ([FigureTable(FIGURES, line="All {} of {split}")], "{}"),
        ([FigureTable(FIGURES, line="All {0} of {split}")], "{0}"),
        ([FigureTable(FIGURES, line="100 % }")], "100 % }"),
        ([FigureTable(FIGURES, line="{ of {split}")], "{ of"),
        ([FigureTable(FIGURES, line="{count.real}")], "{count.real}"),
        ([FigureTable(FIGURES, line="", notes={"Words": "{count:q}"})], "{count:q}"),
        ([FigureTable(FIGURES, line="", label="{count!q}")], "{count!q}"),
        ([FigureTable(FIGURES, line="", keys=(Key("of", "of {}"),))], "of {}"),
        ([FigureTable(FIGURES, line="", over=Key("bar", "bar", "bars of {}"))], "bars of {}"),
        ([FigureTable((Figure("words", "{}"),), line="")], "{}"),
        ([FigureTable((Figure("words", panel="{}"),), line="")], "{}"),
        *(([FigureTable(FIGURES, line="", key=key)], f'"{key}"') for key in sorted(CONTENT_RESERVED)),
        *(([FigureTable((Figure(key),), line="")], f'"{key}"') for key in sorted(ROW_RESERVED)),
        ([FigureTable((Figure("words", error="label"),), line="")], '"label"'),
        ([FigureTable((Figure("latency_ms", column="ms"),), line="")], '"latency_ms"'),
        ([FigureTable(FIGURES, line=""), FigureTable((Figure("more"),), line="")], '"rows"'),
    ],
)
def test_an_analysis_whose_file_could_not_be_shown_is_refused(tables, words):
    assert words in refusal_of("analysis", "tokens", tables=tuple(tables))


def test_texts_of_analyses_show_numbers_and_words():
    line = "{split:>5}: {count:,} or {count:d}, {share:.2}, {{}}"
    table = FigureTable((Figure("latency_ms"),), line=line, keys=(Key("system", "{scope:s}"),))
    check(declared(analysis=dataclasses.replace(registry.analyses()["tokens"], tables=(table,))))


def test_no_analysis_can_have_a_key_of_all_files():
    properties = {name for name, value in vars(contents.Content).items() if isinstance(value, property)}
    assert {*contents.Content.model_fields, *properties, "format", "provenance"} == CONTENT_RESERVED
    assert set(contents.Row.model_fields) == ROW_RESERVED


def test_a_setting_fills_a_role_of_its_search_and_has_usual_values():
    assert '"judge"' in wrong_setting(size=(Annotated[str | None, Option(role="judge")], None))
    with pytest.raises(pydantic.ValidationError, match="tune"):
        Option(tune=True)


def test_a_search_with_the_settings_of_another_is_refused():
    searches = registry.searches()
    twin = dataclasses.replace(searches["greedy"], name="twin")
    with refuses(DeclarationError, subject='search "twin"', mentions=("settings class", 'search "greedy"')):
        check(declared(search=twin))


@pytest.mark.parametrize(
    ("exports", "export", "words"),
    [
        ("mine", None, ('engine "wrong"', "only one of exports and export")),
        ("bundle", "workflow_src.engines.ctranslate2_spec:export", ('engine "wrong"', '"bundle"')),
        ("two words", "workflow_src.engines.ctranslate2_spec:export", ("Engine.exports is 'two words'",)),
        # The rule that makes it would have the name of another.
        ("ctranslate2", "workflow_src.engines.ctranslate2_spec:export", ('engine "wrong"', 'exports "ctranslate2"')),
    ],
)
def test_an_engine_whose_export_cannot_have_a_rule_is_refused(plugin, exports, export, words):
    engine = f"dataclasses.replace(ENGINES[0], name='wrong', exports={exports!r}, export={export!r})"
    change = f"from workflow_src.engines import ENGINES\nPLUGIN = dataclasses.replace(PLUGIN, engines=({engine},))"
    with refuses(DeclarationError, mentions=words):
        registry.use([plugin(change)])


def test_an_engine_of_unknown_devices_is_refused(plugin):
    engine = "dataclasses.replace(ENGINES[0], name='wrong', devices=('gpu',))"
    change = f"from workflow_src.engines import ENGINES\nPLUGIN = dataclasses.replace(PLUGIN, engines=({engine},))"
    with pytest.raises(DeclarationError, match=r"'gpu'.*allowed.*cuda"):
        registry.use([plugin(change)])


def test_everything_that_members_name_can_be_imported_and_has_defaults():
    """Members of the project are not looked up where a plan is made."""
    names = set()
    for members in declared().values():
        for member in members.values():
            check_sections(member.name, member)
            names |= set(code_of(member).values())
    assert len(names) > 60
    for name in sorted(names):
        assert callable(registry.import_object(name)), name


def test_the_rule_of_a_family_has_the_name_of_a_training():
    families = registry.families()
    with pytest.raises(pydantic.ValidationError, match="report"):
        dataclasses.replace(families["lvm"], rule="report")
    assert dataclasses.replace(families["lvm"], name="my-new.lvm", rule=None).training_rule == "train_my_new_lvm"


def test_families_have_colours_of_their_own():
    colours = [family.look.colour for family in registry.families().values() if family.look.colour]
    assert len(set(colours)) == len(colours) > 5


@pytest.mark.parametrize("name", registry.searches())
def test_every_setting_that_may_be_none_is_none_by_that_word(name):
    """So that commands can repeat a row whatever its settings are."""
    kind = registry.searches()[name].settings
    fields = kind.model_json_schema()["properties"]
    for field in [field for field, schema in fields.items() if {"type": "null"} in schema.get("anyOf", ())]:
        assert getattr(kind(**{field: "none"}), field) is None
