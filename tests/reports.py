"""Manifests and rows of reports, for tests of tables, figures and pages."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from html.parser import HTMLParser
from types import SimpleNamespace

from workflow_src.config import Plan, load
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.quality.significance import PairedDifference
from workflow_src.evaluation.report import tables
from workflow_src.evaluation.report.csv_tables import as_table
from workflow_src.evaluation.report.evidence import Evidence
from workflow_src.evaluation.report.results import COLUMNS, FROM_CONTROL, Record, Results
from workflow_src.evaluation.speed.measured import MeasuredProtocol, Measurement, Speed, StepCosts, TimedRow
from workflow_src.registry import default_metrics, metrics, used_modules
from workflow_src.serving import bundle

SYSTEMS = {
    "teacher": {"family": "transformer", "preset": "tiny", "data": "raw", "base": None},
    "lvm": {"family": "lvm", "preset": "tiny", "data": "distilled-by-teacher", "base": None},
    "score": {"family": "score", "preset": "tiny", "data": "distilled-by-teacher", "base": "lvm"},
    "lvm-raw": {"family": "lvm", "preset": "tiny", "data": "raw", "base": None},
    "ctc": {"family": "nat", "preset": "tiny", "data": "raw", "base": None},
    "student": {"family": "transformer", "preset": "tiny", "data": "raw", "base": None},
}
INAT = {"family": "inat", "preset": "tiny", "data": "raw", "base": None}
NETWORK = {"family": "lvm", "model": {}, "weights": "lvm.safetensors", "sha256": "0" * 64, "role": "model"}
NETWORK |= {"sizes": {"source": 10, "target": 10, "joint": True}}
INT8 = {"engine": "ctranslate2-int8"}


def bundle_description(search: str, normalisation: NormalisationConfig | None = None) -> dict:
    """The fields of `bundle.json` that reports read, of a system with one search."""
    return {
        "format": bundle.FORMAT,
        "system": "lvm",
        "models": {"lvm": NETWORK},
        "searches": [search],
        "defaults": {"search": search},
        "normalisation": (normalisation or NormalisationConfig()).model_dump(mode="json"),
        "languages": {"source": "de", "target": "en"},
        "provenance": {"files": {}},
    }


class Page(HTMLParser):
    """What a page is made of: its tags and attributes, what it loads, its text and that of its figures, its tables."""

    VOID = {"meta", "br", "path", "use", "rect", "link"}

    def __init__(self, page: str):
        super().__init__()
        # Tags that are not closed, with their classes.
        self.open = []
        self.tags, self.attributes, self.loads = Counter(), set(), []
        self.text, self.drawn = [], []
        # Classes of the elements around each table, its own, and its rows of cells: [tag, classes, text].
        self.tables = []
        self.feed(page)
        self.close()

    @property
    def rows(self) -> list[list[str]]:
        """Texts of the rows of all tables; blanks are one."""
        return [[" ".join(text.split()) for _, _, text in row] for _, _, rows in self.tables for row in rows]

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        classes = set((values.get("class") or "").split())
        self.tags[tag] += 1
        self.attributes |= values.keys()
        self.loads += [values[name] for name in ("src", "href", "xlink:href", "srcset", "data") if name in values]
        if tag == "table":
            self.tables.append((set().union(*(outer for _, outer in self.open)), classes, []))
        elif tag == "tr":
            self.tables[-1][2].append([])
        elif tag in ("td", "th"):
            self.tables[-1][2][-1].append([tag, classes, ""])
        if tag not in self.VOID:
            self.open.append((tag, classes))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop()[0] == tag, f"</{tag}> closes another tag"

    def handle_data(self, data):
        tags = {tag for tag, _ in self.open}
        (self.drawn if "svg" in tags else self.text).append(data)
        # Without the number of a row, which pictures refer to.
        if {"td", "th"} & tags and not ("small" in tags and data.startswith("#")):
            self.tables[-1][2][-1][-1][2] += data + " "


def assert_tables_fit(page: str) -> None:
    """Whatever the width of a window, no table leaves the page, and no words push figures out of the frame.

    Every table scrolls within a frame of its own, and of all cells only those without words never wrap.
    """
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", page[page.index("<style>") : page.index("</style>")])
    styles = [(selector.strip(), body) for selectors, body in rules for selector in selectors.split(",")]
    assert {selector for selector, body in styles if "nowrap" in body} == {".main td", ".plain td.num"}
    assert any(selector == ".scroll" and "overflow-x: auto" in body for selector, body in styles)
    tables = Page(page).tables
    assert tables and all("scroll" in around for around, _, _ in tables)
    for _, own, rows in tables:
        cells = itertools.chain.from_iterable(rows)
        fixed = [text for tag, classes, text in cells if tag == "td" and ("main" in own or "num" in classes)]
        assert not [text for text in fixed if re.search(r"[^\W\d_]{2}", text)]


def squeezed(markdown: str) -> str:
    """Markdown without the padding of its tables' cells."""
    return re.sub(" +", " ", markdown)


def stepped(search: str, steps: int, **settings) -> dict:
    return {"search": search, "steps": steps, **settings}


DECODES = {
    ("teacher", "greedy"): {"search": "greedy"},
    ("teacher", "greedy-ctranslate2-int8"): {"search": "greedy", **INT8},
    ("teacher", "beam-4"): {"search": "beam", "beam": 4},
    ("teacher", "beam-4-ctranslate2-int8"): {"search": "beam", "beam": 4, **INT8},
    **{(system, "prior-mean"): {"search": "prior-mean"} for system in ("lvm", "lvm-raw")},
    **{(f"{system}", f"delta-{n}"): stepped("delta", n) for system in ("lvm", "lvm-raw") for n in (1, 2, 4)},
    **{("score", f"score-{n}"): stepped("score", n) for n in (1, 2, 4)},
}


RECIPE = {"name": "toy", "dataset": "toy", "source": "de", "target": "en"}


def dataset(**test: int) -> dict:
    """A dataset of files with test sets; `test` has the number of references of each."""

    def part(split: str, references: int = 1) -> list[dict]:
        further = [f"{split}.en", *(f"{split}-{number}.en" for number in range(2, 1 + references))]
        return [{"texts": {"de": f"{split}.de", "en": further if references > 1 else further[0]}}]

    sets = {split: part(split, references) for split, references in test.items()}
    described = {"licence": "the authors' <own>", "citation": "Doe 2020"}
    return {
        "name": "toy",
        "languages": ["de", "en"],
        "train": part("train"),
        "dev": part("dev"),
        "test": sets,
    } | described


def configuration(decodes, systems=SYSTEMS, picked=(), splits=("test",), **sections) -> dict:
    """A whole configuration; `picked` are the choices on dev by (system, name), whose settings `tune` lists."""
    picked, listed = dict(picked), []
    for (system, name), settings in decodes.items():
        tune = (
            {setting: [choice[setting] for choice in picked[system, name]] for setting in picked[system, name][0]}
            if (system, name) in picked
            else {}
        )
        kept = {setting: value for setting, value in settings.items() if setting not in tune}
        tune = {setting: list(dict.fromkeys(values)) for setting, values in tune.items()}
        listed.append(
            {"system": system, "name": name, "splits": list(splits), **kept} | ({"tune": tune} if tune else {})
        )
    trained = {name: {"training": {"max_steps": 1}} | system for name, system in systems.items()}
    plugins = list(used_modules())
    return {"experiment": "e", "recipe": RECIPE, "systems": trained, "decodes": listed, "plugins": plugins, **sections}


def manifest(decodes=DECODES, systems=SYSTEMS, picked=(), seeds=(1,), splits=("test",), **report) -> Manifest:
    """A manifest; `picked` maps (system, name) to the choices on dev by seed."""
    sections = {"seeds": list(seeds), "report": report}
    plan = Plan(load(configuration(decodes, systems, picked, splits, **sections)))
    choices = dict(picked)
    chosen: dict = {
        plan.chosen(decode, seed): choices[decode.system, decode.name][number]
        for decode in plan.loaded.decodes
        if decode.tune
        for number, seed in enumerate(seeds)
    }
    return Manifest.of(plan, chosen.__getitem__)


# What describes a row of rows.csv unless a test says otherwise.
DESCRIBED = {"preset": "tiny", "data": "raw", "trained_on": "raw", "engine": "eager", "means_repetitions": False}
JSON = ("settings", "chosen", "latency_rounds", "disturbed_rounds")


def row(system: str, name: str, bleu: float, seed: int = 1, removed: str = "none", **fields) -> dict:
    """A row with its figures in one variant: columns of rows.csv; figures by name, `NAME_ci`, `NAME_p` and `NAME_n`;
    `p` is that of BLEU, and `split` that of the figures."""
    family = (SYSTEMS | {"inat": INAT})[system]["family"]
    content = DESCRIBED | {"system": system, "decode": name, "family": family, "seed": seed, "variant": removed}
    content |= {"search": name.partition("-")[0], "label": name, "autoregressive": family == "transformer"}
    content |= {"bleu": bleu, "bleu_ci": (bleu - 1, bleu + 1), "chrf": bleu + 20} | fields
    return content | {name: json.dumps(content[name]) for name in JSON if not isinstance(content.get(name, ""), str)}


FIGURES = ("mean_steps", "latency_ms", "latency_std", "sentences_per_second", "speedup", FROM_CONTROL)
FIGURES += ("energy_per_sentence", "energy_per_token")


def figures_of(row: dict) -> list[dict]:
    """The lines of figures.csv of a row."""
    names = [*dict.fromkeys((*metrics(), *row.get("metrics", ()), *FIGURES))]
    common = {"split": row.get("split", "test")} | {name: row[name] for name in ("system", "decode", "seed")}
    lines = []
    for name in names:
        if row.get(name) is not None:
            low, high = row.get(f"{name}_ci") or (None, None)
            p = row.get("p" if name == "bleu" else f"{name}_p")
            variant = "" if name in FIGURES[:5] else row["variant"]
            lines.append(common | {"figure": name, "variant": variant, "value": row[name], "low": low, "high": high})
            lines[-1] |= {"p": p, "against": "teacher/beam-4" if p is not None else "", "n": row.get(f"{name}_n")}
    return lines


RECORD = {"source": "de", "target": "en", "splits": ["test"], "signatures": {"test": {}}, "provenance": {}}
RECORD |= {"remove_repetitions": None}
RECORD |= {"experiment": "e", "dataset": "toy", "reference": ["teacher", "beam-4"]}


def results(rows, **record) -> Results:
    """Results of rows, one for each variant of a row of rows.csv; `record` are fields of provenance.json."""
    described = {(row["system"], row["decode"], row["seed"]): row for row in rows}
    content = RECORD | {"metrics": [metric.name for metric in default_metrics()]} | record
    lines = {
        tuple(line[name] for name in ("split", "system", "decode", "seed", "variant", "figure")): line
        for row in rows
        for line in figures_of(row)
    }
    tables_of = {"rows.csv": list(described.values()), "figures.csv": list(lines.values())}
    return Results(*(as_table(entries, COLUMNS[name]) for name, entries in tables_of.items()), Record(**content))


def flat(results: Results, split: str = "test") -> list[SimpleNamespace]:
    """Rows of a split, one for each variant, with the columns of rows.csv and a figure an attribute, None where it is
    unknown; `NAME_low`, `NAME_p` and the like are those of its line."""
    figures = results.figures[results.figures["split"] == split]
    names = [*metrics(), *FIGURES]
    absent = dict.fromkeys([*names, *(f"{name}{end}" for name in names for end in ("_p", "_low", "_high"))])
    flat_rows = []
    for row in results.rows.to_dict("records"):
        key = [row[name] for name in ("system", "decode", "seed")]
        of_row = figures[(figures[["system", "decode", "seed"]] == key).all(axis=1)]
        for variant in [name for name in dict.fromkeys(of_row["variant"]) if name]:
            known = {}
            for line in of_row[of_row["variant"].isin(["", variant])].to_dict("records"):
                known[line["figure"]] = line["value"]
                ends = {f"{line['figure']}_{end}": line[end] for end in ("p", "low", "high")}
                known |= {name: value for name, value in ends.items() if not math.isnan(value)}
            flat_rows.append(SimpleNamespace(**row, variant=variant, **absent | known))
    return flat_rows


def groups(rows, manifest, removed, evidence=None, split="test"):
    """The groups of a table of rows."""
    return tables.groups(results(rows), split, manifest, removed, evidence)


def evidence(rows, unfinished=(), error=0.05, margin=0.5) -> Evidence:
    """Evidence about rows: differences of their figures, with the standard `error` in points, for every pair with an
    autoregressive row of its seed; in validity where rows have it."""
    pairs = {}
    for row in rows:
        for rival in rows:
            if rival["autoregressive"] and rival["seed"] == row["seed"] and rival["decode"] != row["decode"]:
                key = tuple((each["system"], each["decode"], each["seed"]) for each in (row, rival))
                pairs[key] = {"bleu": PairedDifference(row["bleu"] - rival["bleu"], error, 0.0)}
                validity = row.get("validity"), rival.get("validity")
                if None not in validity:
                    pairs[key]["validity"] = PairedDifference(validity[0] - validity[1], error / 100, 0.0)
    return Evidence.of(results(rows).figures, pairs, margin, unfinished, default_metrics())


PROTOCOL = {"sentences": 200, "warmup": 10, "repeats": 5, "threads": 1, "baseline": None}
PROTOCOL |= {"name": "cpu-1-thread", "engines": {}, "not_timed": []}
PROTOCOL |= {"device": "cpu", "device_name": None, "precision": "float32", "other_load_cores": [0.1]}
PROTOCOL |= {"redone_rounds": 0, "disturbed_above_cores": 0.25}


NO_COSTS = StepCosts(failure=None, costs=(), ratios=())


def timed(system: str, name: str, milliseconds: float, **fields) -> TimedRow:
    """A row of speed.json."""
    figures = {"latency_ms": milliseconds, "latency_mean": milliseconds, "latency_std": 0.0, "speedup": None}
    figures |= {"latency_rounds": [milliseconds], "subword_share": None, "by_length": [], "failed_batch": None}
    throughput = {"sentences_per_second": 1000 / milliseconds, "batch": 64}
    return TimedRow.model_validate({"system": system, "name": name} | figures | throughput | fields)


def measurement(*rows: TimedRow, **protocol) -> Measurement:
    """Figures of rows under one protocol."""
    return Measurement(rows=rows, protocol=MeasuredProtocol.model_validate(PROTOCOL | protocol), step_costs=NO_COSTS)


def speed(*rows: TimedRow, protocols: tuple[Measurement, ...] = (), costs=None, **protocol) -> Speed:
    """The content of speed.json."""
    of_steps = StepCosts.model_validate({"failure": None} | costs) if costs else NO_COSTS
    conditions = MeasuredProtocol.model_validate(PROTOCOL | protocol)
    own = Measurement(rows=rows, protocol=conditions, step_costs=of_steps)
    return Speed(protocols=protocols or (own,), provenance={})
