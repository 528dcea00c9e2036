"""README and docs: links and anchors lead somewhere, pages can be reached."""

from __future__ import annotations

import itertools
import re
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml
from conftest import PROJECT

from workflow_src import registry
from workflow_src.config import Plan, datasets, experiment, load, preparation, relations, runtime
from workflow_src.config.files import CONFIG_FOLDER, experiment_file, experiment_names, read_yaml
from workflow_src.config.load import check_own_name
from workflow_src.spec import Frozen

CONFIGURATION = [PROJECT / "config" / "README.md", PROJECT / "config" / "experiments" / "README.md"]
PROJECT_PAGES = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*PROJECT_PAGES, *CONFIGURATION, *sorted((PROJECT / "docs").glob("**/*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> list[str]:
    """Lines of a page without blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S).splitlines()


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    titles = [line.lstrip("#").strip().lower() for line in prose(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_of_code_begin_and_end_on_lines_of_their_own(page):
    fences = [line for line in page.read_text(encoding="utf-8").splitlines() if "```" in line]
    assert len(fences) % 2 == 0
    assert all(re.fullmatch(r" *```\w*" if number % 2 == 0 else r" *```", line) for number, line in enumerate(fences))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    for target in (link for line in prose(page) for link in LINK.findall(line)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def blocks(page: Path, language: str = "") -> list[str]:
    """The contents of a page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", CONFIGURATION, ids=lambda page: page.parent.name)
def test_configurations_of_the_pages_about_them_are_valid(page):
    """Settings on command lines, as Snakemake reads them, and whole experiments."""
    machine = read_yaml(CONFIG_FOLDER / "config.yaml")
    commands = [shlex.split(line) for block in blocks(page) for line in block.splitlines() if " --config " in line]
    assert commands
    for command in commands:
        words = command[command.index("--config") + 1 :]
        settings = {name: yaml.safe_load(value) for name, _, value in (word.partition("=") for word in words)}
        assert Plan(load(machine | settings)).experiment == settings["experiment"]
    for configuration in (yaml.safe_load(block) for block in blocks(page, "yaml")):
        if "experiment" in configuration:
            check_own_name(machine | configuration)
            assert Plan(load(machine | configuration)).experiment == configuration["experiment"]


def test_every_experiment_is_listed_and_papers_with_what_they_cost():
    rows = [line for line in prose(CONFIGURATION[1]) if line.startswith("| `")]
    listed = {name: row for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert set(experiment_names()) <= set(listed)
    for name in experiment_names():
        file = experiment_file(name)
        if file.parent.name == "papers":
            low, high = re.search(r"about (\d+) to (\d+) GPU-hours", file.read_text(encoding="utf-8")).groups()
            assert listed[name].rstrip(" |").endswith(f"| {low} to {high}"), name


def test_experiments_of_results_are_shipped():
    """So that `continuum check` knows the names in tables of results, and a command trains their systems."""
    board = (PROJECT / "docs/results/leaderboard.csv").read_text(encoding="utf-8").splitlines()
    names = {row.partition(",")[0] for row in board[1:]}
    assert len(names) > 5 and names <= set(experiment_names())
    for page in (PROJECT / "README.md", PROJECT / "docs/results/README.md"):
        shown = {cell for line in prose(page) for cell in map(str.strip, line.split("|")) if cell.endswith("-seeds")}
        assert shown <= set(experiment_names()), page


def test_every_page_can_be_reached_from_the_readme():
    reached, new = set(), [PROJECT / "README.md"]
    while new:
        page = new.pop()
        reached.add(page)
        links = {target.partition("#")[0] for line in prose(page) for target in LINK.findall(line)}
        pages = {(page.parent / link).resolve() for link in links if link.endswith(".md") and "://" not in link}
        new += pages - reached - set(new)
    assert set(PAGES) <= reached


def drawn() -> tuple[set[str], set[tuple[str, str]], set[str]]:
    """Nodes, edges and words of docs/workflow.svg."""
    tree = ElementTree.parse(PROJECT / "docs/workflow.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    groups = [(group.get("class"), group.find(f"{svg}title").text) for group in tree.iter(f"{svg}g")]
    edges = {tuple(title.split("->")) for kind, title in groups if kind == "edge"}
    return {title for kind, title in groups if kind == "node"}, edges, {text.text for text in tree.iter(f"{svg}text")}


def test_the_picture_of_the_workflow_is_drawn_from_its_source_and_shows_every_rule():
    """After a change of docs/workflow.dot: make picture."""
    source = re.sub(r"//.*", "", (PROJECT / "docs/workflow.dot").read_text(encoding="utf-8"))
    labels = {line for label in re.findall(r'label="([^"]*)"', source) for line in label.split(r"\n")}
    without_attributes = re.sub(r'\[[^\]]*\]|"[^"]*"|\w+=|(sub|di)graph \w+|\b(graph|node|edge) ', "", source)
    # Chains such as "a -> {b c} -> d", without attributes.
    chains = re.findall(r"[\w{][\w ]*}?(?: -> (?:{[\w ]+}|\w+))+", source)
    chain_sides = [[side.strip("{} ").split() for side in chain.split("->")] for chain in chains]
    edges = {edge for chain in chain_sides for pair in itertools.pairwise(chain) for edge in itertools.product(*pair)}
    nodes, links, words = drawn()
    assert len(edges) > 20 and links == edges
    assert words == labels | (nodes & words) and nodes == set(re.findall(r"\w+", without_attributes))
    texts = [path.read_text() for path in (PROJECT / "rules").glob("*.smk")]
    rules = {name for text in texts for name in re.findall(r"^use rule \w+ as (\w+) with:", text, re.M)}
    rules |= {family.training_rule for family in registry.families().values() if not family.imported}
    rules |= {engine.export_rule for engine in registry.engines().values() if engine.exports}
    rules |= {analysis.rule_name for analysis in registry.analyses().values()}
    assert len(rules) > 20 and rules <= words


def settings() -> dict[str, type[Frozen]]:
    """Classes of all settings that a configuration may have, by the place that a message names."""
    classes = {f"families.{name}": family.model for name, family in registry.families().items()}
    classes |= {f"families.{name}.objective": family.objective for name, family in registry.families().items()}
    classes |= {f"searches.{name}": search.settings for name, search in registry.searches().items()}
    classes |= {f"analyses.{name}": analysis.settings for name, analysis in registry.analyses().items()}
    classes |= {f"metrics.{name}": metric.settings for name, metric in registry.metrics().items()}
    classes |= {f"recipe.clean.{name}": filter.settings for name, filter in registry.filters().items()}
    classes |= {f"generator.{name}": generator.settings for name, generator in registry.generators().items()}
    for module in (datasets, experiment, preparation, relations, runtime):
        kinds = (kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Frozen))
        classes |= {kind.__name__: kind for kind in kinds if kind is not Frozen}
    return classes


def test_the_usual_values_that_dev_chooses_from_are_those_of_the_searches():
    text = (PROJECT / "docs/methods.md").read_text(encoding="utf-8")
    section = text.split("## Settings chosen on dev")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)`(?: of (.*?))? \| ([\d., ]+) \|$", section, re.MULTILINE)
    described = {}
    for setting, of, values in rows:
        owners = re.findall("`(.*?)`", of) or [
            n for n, s in registry.searches().items() if setting in s.settings.model_fields
        ]
        described |= {(name, setting): tuple(map(float, values.split(", "))) for name in owners}
    declared = {
        (n, s): search.settings.option(s).tune
        for n, search in registry.searches().items()
        for s in search.settings.named("tune")
    }
    assert described == declared and declared


def test_every_setting_is_described():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert len(settings()) > 25
    lacking = [
        f"{place}: {name}"
        for place, kind in settings().items()
        for name in kind.model_fields
        if not re.search(rf"\b{name}\b", text)
    ]
    assert not lacking
