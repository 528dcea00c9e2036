"""No text of a corpus or a configuration is markup: in figures, page, Markdown and CSV it reads as itself."""

import csv
import io
import json
import xml.etree.ElementTree as ET

import analysed
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from reports import Page
from stage_words import start_stage

from workflow_src.evaluation import charts
from workflow_src.stages import report

# The font of the files lacks most of all letters; the page has those of the reader.
pytestmark = pytest.mark.filterwarnings("ignore:Glyph")
NAMES = {"a_b_": "transformer", "lvm": "lvm", "x-y-": "lvm"}
# Formulas (two of them damaged), tags, entities, attributes, Markdown, and what pages replace in figures.
WORDS = '_$$ \\frac{ $x^2$ **a** [d](e) ~~f~~ id="c" url(#d) $$ $ \\$ {}% <nasty> &amp; | `x` _y_ **z** ]]> --> \x01'


def shown(text):
    """As it reads on a page: blanks are one, and what XML cannot hold is replaced."""
    return " ".join(text.replace("\x01", "\N{REPLACEMENT CHARACTER}").split())


def test_a_report_shows_every_text_as_it_is(report_inputs, tmp_path):
    title, description, notes = (f"{words} {WORDS}" for words in ("Title", "# Description", "1. Notes"))
    words = report_inputs(NAMES, description=description, title=title, notes=notes, significance=True)
    traces = tmp_path / "traces.json"
    traces.write_text(traces.read_text().replace("big", json.dumps(WORDS)[1:-1]))
    # Subwords of a map, and a system that another figure shows.
    mapped = analysed.raw("latent_space", pieces={"7": "$$", "8": "_", "9": WORDS}, source=WORDS)
    mapped["texts"] = dict.fromkeys(mapped["texts"], WORDS)
    ordered = analysed.raw("reordering")
    ordered["example"] |= {"pieces": ["$$", "_", WORDS], "target_pieces": [["$x^$", "\\$"], [WORDS]]}
    components = analysed.raw("components")
    for one, name in zip(components["rows"], NAMES, strict=False):
        one["system"] = name
    paths = [tmp_path / f"{content['analysis']}.json" for content in (mapped, ordered, components)]
    for path, content in zip(paths, (mapped, ordered, components), strict=True):
        path.write_text(json.dumps(content))
    start_stage(report, [*words, "--analyses", *map(str, paths)])
    folder = tmp_path / "report"

    page = Page((folder / "index.html").read_text(encoding="utf-8"))
    assert page.open == [] and "nasty" not in page.tags and "onload" not in page.attributes
    written, drawn = (shown(" ".join(parts)) for parts in (page.text, page.drawn))
    for text in (*NAMES, title, description, notes, WORDS):
        assert shown(text) in written
    for text in (*NAMES, WORDS, "$$", "$x^$", r"\$", "_"):
        assert shown(text) in drawn
    assert sum(shown(part) == shown(next(iter(NAMES))) for part in page.drawn) >= 2

    for path in (folder / "figures").glob("*.svg"):
        ET.parse(path)
    html = MarkdownIt("commonmark").enable("table").render((folder / "results.md").read_text(encoding="utf-8"))
    read = Page(html)
    table = {"table", "thead", "tbody", "tr", "th", "td"}
    assert read.tags.keys() <= table | {"h1", "h2", "h3", "h4", "p", "img", "ul", "li", "strong", "pre", "code"}
    for text in (*NAMES, title, description, notes):
        assert shown(text) in shown(" ".join(read.text))
    rows = csv.DictReader(io.StringIO((folder / "rows.csv").read_text(encoding="utf-8")))
    assert {row["system"] for row in rows} == set(NAMES)


@example("$$")
@example("_")
@example('id="a" #6f6f77 url(#b) </script><script>alert(1)</script>')
@example("\x00\x0b\ufffe")
@example("datum.x + 'y' {expr: 1}")
@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_can_be_drawn(tmp_path, text):
    """As the name of a series, of a row, and as a title: in the file, in the page, and for the program of the page."""
    rows = [{"series": text, "name": text, "number": text, "x": x, "y": 1.0 * x} for x in (1, 2)]
    chart = charts.panels([charts.Panel(text, rows, charts.Axis("x"))], [charts.Series(text, "#0072b2")])
    element = charts.save(chart, tmp_path, "one")
    svg = element.partition('<div class="live">')[0]
    kept = charts.NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
    for drawn in ((tmp_path / "one.svg").read_text(encoding="utf-8"), svg):
        ET.fromstring(drawn)
        assert shown(kept) in shown(" ".join("".join(part.itertext()) for part in ET.fromstring(drawn).iter()))
    assert element.count("</script") == element.count("<script") == 1
    spec = json.loads(element.partition('application/json">')[2].removesuffix("</script>"))
    assert [row["name"] for row in spec["data"]["values"]] == [kept, kept] and spec["title"] == kept
