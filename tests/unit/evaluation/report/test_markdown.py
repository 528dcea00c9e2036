"""Text in Markdown reads as itself: a parser of Markdown gives back what was put in."""

import re
from html import unescape

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from workflow_src.evaluation.document import GroupRow, Table
from workflow_src.evaluation.report.markdown import bold, markdown_table, paragraph, plain, table

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# Whatever means something to Markdown, and a few letters between.
texts = st.text(st.sampled_from("\\`*_{}[]()#+-.!|<>~$&;:=\"'/ \n\tax1é▁"), max_size=14)
NASTY = [
    *("<b>x</b>", "**x**", "_x_ y", "`x`", "[a](b)", "![a](b)", "[a]: /b", "&lt;", "&#36;", "~~x~~", "a|b", "\\|"),
    *("# x", "1. x", "1) x", "- x", "> x", "---", "===", "a\nb", "<!-- x -->", "http://x.org/_a_", "\\", "x\\"),
]


def squeezed(text):
    return " ".join(text.split())


def cells(html):
    """Texts of a table's cells, row by row; raises if there are tags in any."""
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    texts_of_rows = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in rows]
    assert sum(map(len, texts_of_rows)) == len(re.findall(r"<t[hd][ >]", html))
    return [[squeezed(unescape(cell)) for cell in row] for row in texts_of_rows]


def with_examples(test):
    for text in NASTY:
        test = example(text)(test)
    return test


@with_examples
@given(texts)
def test_a_paragraph_reads_as_its_text(text):
    html = PARSER.render(paragraph(text))
    if squeezed(text):
        assert re.fullmatch(r"<p>([^<]*)</p>\n", html), html
        assert squeezed(unescape(html[3:-5])) == squeezed(text)


@with_examples
@given(texts)
def test_text_in_headings_and_lists_reads_as_itself(text):
    for begin, end in (("# a ", "h1"), ("- a: ", "li")):
        html = PARSER.render(begin + plain(text) + " z")
        (inside,) = re.findall(rf"<{end}>([^<]*)</{end}>", html)
        assert squeezed(unescape(inside)) == squeezed(f"{begin[2:]}{text} z")


@given(st.lists(st.lists(texts, min_size=3, max_size=3), min_size=1, max_size=3))
def test_cells_read_as_their_text(rows):
    heads, *lines = rows
    html = PARSER.render(markdown_table(heads, lines))
    assert cells(html) == [[squeezed(cell) for cell in row] for row in rows]


@with_examples
@given(texts)
def test_what_is_bold_is_so_as_a_whole(text):
    html = PARSER.render(table(Table(["a", "b"], [GroupRow(text)])))
    if squeezed(text):
        (inside,) = re.findall(r"<td[^>]*><strong>([^<]*)</strong></td>", html)
        assert squeezed(unescape(inside)) == squeezed(text)
    assert plain(bold("x")) == "**x**"


def test_common_cells_stay_legible():
    for text in ("47.6 [46.0, 49.3]", "4.42 ± 1.22", "+0.25", "1.88×", "lm_weight 0.3", "p < 0.0031", "a & b", "(x)"):
        assert plain(text) == text
