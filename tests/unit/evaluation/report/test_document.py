"""A document says the same as a page and as Markdown, and no text of it is markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import markupsafe
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from workflow_src.evaluation.document import (
    Beside,
    Caption,
    Cell,
    Code,
    Command,
    Document,
    Example,
    Fold,
    GroupRow,
    Heading,
    Line,
    Paragraph,
    Picture,
    Points,
    Section,
    Strong,
    Table,
)
from workflow_src.evaluation.report.html import page
from workflow_src.evaluation.report.markdown import markdown

PARSER = MarkdownIt("commonmark").enable("table")
# Words of letters, and some with what means something to HTML or Markdown.
words = st.sampled_from("alpha beta gamma <b>x</b> a&b 1. *y* c|d $z$ #e -f".split())
texts = st.lists(words, min_size=1, max_size=3).map(" ".join)
captions = st.builds(Caption, texts, st.dictionaries(st.sampled_from(["Note", "Other"]), st.one_of(texts, st.just(""))))
languages = st.sampled_from(["", "ar"])
cells = st.one_of(
    texts,
    st.builds(Cell, texts, st.one_of(texts, st.just("")), strong=st.booleans(), language=languages),
    st.builds(Cell, texts, code=st.just(True)),
)
runs = st.lists(st.one_of(texts, st.builds(Strong, texts)), min_size=1, max_size=3).map(tuple)
lines = st.one_of(st.builds(Line, texts, texts, source=st.booleans()), st.builds(Line, texts, st.just(""), runs))


@st.composite
def tables(draw) -> Table:
    width = draw(st.integers(2, 3))
    row = st.lists(cells, min_size=width, max_size=width).map(tuple)
    rows = draw(st.lists(st.one_of(row, st.builds(GroupRow, texts)), min_size=1, max_size=3))
    heads = draw(st.lists(texts, min_size=width, max_size=width))
    return Table(heads, rows, draw(captions), draw(st.booleans()), look=draw(st.sampled_from(["plain", "main"])))


leaves = st.one_of(
    st.builds(Heading, texts),
    st.builds(Paragraph.of, texts, st.builds(Code, st.just(" code")), st.builds(Strong, texts)),
    st.builds(Points, st.lists(texts, min_size=1, max_size=2).map(tuple)),
    st.builds(Command, st.just("continuum translate < in.txt")),
    tables(),
    st.builds(Picture, st.just("one"), st.none(), captions, texts, st.one_of(texts, st.just(""))),
    st.builds(Example, st.lists(lines, min_size=1, max_size=3).map(tuple)),
)
blocks = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Fold, texts, st.lists(inner, min_size=1, max_size=2)),
        st.builds(Beside, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=4,
)
documents = st.builds(
    Document,
    texts,
    st.lists(st.builds(Section, texts, st.lists(blocks, min_size=1, max_size=3)), min_size=1, max_size=2),
    about=st.lists(texts, max_size=1),
    summary=st.lists(leaves.filter(lambda block: not isinstance(block, Picture)), max_size=1),
)


class Words(HTMLParser):
    """The words that a reader sees, without styles, numbers of sections, and what only one of both writes."""

    HIDDEN = ("style", "title", "svg")

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img", "br"):
            self.open.append("hidden" if ("class", "n") in attributes else tag)

    def handle_endtag(self, tag):
        if tag not in ("meta", "img", "br"):
            self.open.pop()

    def handle_data(self, data):
        if not {*self.HIDDEN, "hidden"} & set(self.open):
            self.words += data.replace(":", " ").split()


def readable(text: str) -> list[str]:
    return sorted(Words(text.replace("<summary>How to read</summary>", "")).words)


@given(documents)
@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_a_page_and_markdown_say_the_same(document):
    html = page(document, {"one": markupsafe.Markup("<svg></svg>")})
    assert readable(html) == readable(PARSER.render(markdown(document)))


def test_tables_and_pictures_are_counted_in_their_order():
    def table(numbered: bool) -> Table:
        return Table(["a", "b"], [["c", "d"]], Caption("Caption."), numbered)

    picture = Picture("one", None, Caption("Caption."), "label")
    titled = Picture("one", None, Caption("Caption."), "label", title="Title")
    below = Fold("more", [table(True), picture])
    sections = [Section("one", [table(True), table(False), titled]), Section("two", [below, table(True), picture])]
    document = Document("title", sections)
    for text in (page(document, {"one": markupsafe.Markup("<svg></svg>")}), markdown(document)):
        assert re.findall(r"(Table|Figure) (\d+)\.", text) == [
            ("Table", "1"),
            ("Table", "2"),
            ("Figure", "1"),
            ("Table", "3"),
            ("Figure", "2"),
        ]
    assert [picture.title for picture in document.pictures()] == ["Title", "", ""]


def test_the_best_rows_and_groups_stand_out():
    rows = [GroupRow("group"), ["a", Cell("1.0", "± 2", strong=True)], ["b", "3"]]
    document = Document("title", [Section("one", [Table(["", "x"], rows, look="main")])])
    html, text = page(document), " ".join(markdown(document).split())
    assert html.count("<tbody>") == 1 and "<b>1.0</b><small>± 2</small>" in html and "<b>3</b>" not in html
    assert "| **group** | |" in text and "| a | **1.0** ± 2 |" in text and "| b | 3 |" in text


def test_examples_stand_apart_and_marks_stand_out():
    lines = (Line("source", "a b", source=True), Line("x", "c d e", ("c", Strong("d"), "e")), Line("y", "f"))
    document = Document("title", [Section("one", [Example(lines), Example(lines)])], languages=("ar", "en"))
    html, rendered = page(document), PARSER.render(markdown(document))
    assert html.count('<dd class="source" lang="ar" dir="auto">a b</dd>') == 2
    assert html.count('<dd lang="en" dir="auto">c <mark>d</mark> e</dd>') == 2
    assert rendered.count("<p>source: a b</p>\n<ul>\n<li>x: c <strong>d</strong> e</li>\n<li>y: f</li>\n</ul>") == 2


def test_sentences_in_tables_have_their_direction():
    html = page(Document("title", [Section("one", [Table(["a"], [[Cell("b", language="ar")]])])]))
    assert '<td lang="ar" dir="auto">b</td>' in html


def test_commands_in_tables_are_code_that_can_be_copied():
    document = Document("title", [Section("one", [Table(["a", "b"], [["c", Cell("cat *_x_", code=True)]])])])
    assert "<code>cat *_x_</code>" in page(document) and "| `cat *_x_` |" in " ".join(markdown(document).split())


def test_a_page_links_its_sections_and_files():
    document = Document("title", [Section("one", [Heading("x")], "here")], files={"csv": "figures.csv"})
    html = page(document)
    assert '<a href="#here">one</a> · <a href="figures.csv">csv</a>' in html and '<section id="here">' in html
    assert "<nav>" not in page(Document("title", [Section("one", [Heading("x")])]))
