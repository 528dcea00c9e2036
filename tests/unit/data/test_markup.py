"""Texts inside markup: what is left out, what is taken, and what is refused."""

import pytest

from workflow_src.config.datasets import DatasetConfig
from workflow_src.data.corpus import RawCorpus
from workflow_src.data.markup import segments
from workflow_src.errors import ArtifactError


def pairs(tmp_path, german: str, english: str, languages=("de", "en"), same=False, **part) -> list[tuple[str, str]]:
    (tmp_path / "t.de").write_text(german)
    (tmp_path / "t.en").write_text(english)
    codes = sorted(languages)
    texts = dict(zip(codes, (f"{tmp_path}/t.de", f"{tmp_path}/t.{'de' if same else 'en'}"), strict=True))
    part = {"texts": texts} | part
    dataset = DatasetConfig(name="own", languages=codes, train=[part], dev=[part], test=[part])
    with RawCorpus(dataset, languages, lambda name: None) as corpus:
        return [(pair.first, pair.second) for pair in next(corpus.parts())[1]]


TAGS = [
    "<url>http://x.example/1</url>",
    '  <reviewer href="http://x">Ann B.</reviewer> ',
    "<doc id=\"1\" lang='de'>",
    "</doc></refset>",
    '<?xml version="1.0"?><!DOCTYPE mteval>',
    "<!-- a comment -->",
    "<br/>",
]
TEXT = [
    "<i>Hello</i>",
    "<em>Zwei</em> ist gut.",
    "<title>A</title> b",
    "<title>A",
    "<url>a</url> b <url>c</url> d",
    "<3 you",
    "a < b > c",
    "",
]


def test_lines_of_markup_are_left_out_and_text_with_tags_stays(tmp_path):
    text = "".join(f"{line}\n" for line in TAGS + TEXT)
    assert pairs(tmp_path, text, text, markup="ted") == [(line, line) for line in TEXT]


def test_ted_leaves_out_lines_that_are_markup_on_both_sides(tmp_path):
    german = "<url>x</url>\n<title>Rede</title>\nEins.\n<em>Zwei</em> ist gut.\nDrei.\nVier.\n"
    english = "<url>x</url>\n<title>Talk</title>\nOne.\nTwo is good.\nThree.\n<em>Four</em>.\n"
    assert pairs(tmp_path, german, english, markup="ted") == [
        ("Eins.", "One."),
        ("<em>Zwei</em> ist gut.", "Two is good."),
        ("Drei.", "Three."),
        ("Vier.", "<em>Four</em>."),
    ]


def test_ted_refuses_markup_on_one_side_even_where_the_counts_agree(tmp_path):
    with pytest.raises(ArtifactError, match=r"t.de and .*t.en .* line 2: .*markup in .*t.de and"):
        pairs(tmp_path, "Eins.\n<br>\nZwei.\nDrei.\n", "One.\nTwo.\n<br>\nThree.\n", markup="ted")
    with pytest.raises(ArtifactError, match=r" line 1: .*markup in .*t.en and text in .*t.de;"):
        pairs(tmp_path, "Eins.\n", "<br>\n", markup="ted")
    with pytest.raises(ArtifactError, match=r"t.de has 2 lines, but .*t.en has 1"):
        pairs(tmp_path, "Eins.\n<br>\n", "One.\n", markup="ted")


def test_segments_of_sgml_and_xml():
    text = (
        '<DOC>title <seg id="1">A &amp; B</seg><seg id=2>\ntwo\nlines </seg> <SEG id="3"></SEG><seg id="4"/>'
        "<seg>&lt;b&gt; 2 &lt; 3</seg>"
    )
    assert segments(text, "x", ("de", "en")) == [
        ((None, "1"), "A & B"),
        ((None, "2"), "two lines"),
        ((None, "3"), ""),
        ((None, "4"), ""),
        ((None, None), "<b> 2 < 3"),
    ]
    # No character has such a number.
    assert segments(f"<seg>&#{'1' * 5000};</seg>", "x", ("de", "en")) == [((None, None), "\ufffd")]


def sgm(kind: str, ids: list[int]) -> str:
    return f"<{kind}>" + "".join(f'<seg id="{n}">{kind} {n}</seg>\n' for n in ids) + f"</{kind}>"


def test_segments_have_to_agree_in_their_ids(tmp_path):
    assert pairs(tmp_path, sgm("srcset", [1, 2]), sgm("refset", [1, 2]), markup="sgm")[1] == ("srcset 2", "refset 2")
    with pytest.raises(ArtifactError, match=r' segment 2: .* segment is "2" in one and "3" in the other'):
        pairs(tmp_path, sgm("srcset", [1, 2, 4]), sgm("refset", [1, 3, 4]), markup="sgm")
    with pytest.raises(ArtifactError, match=r"t.de has several sets \(srcset, refset\)"):
        pairs(tmp_path, sgm("srcset", [1]) + sgm("refset", [1]), sgm("refset", [1]), markup="sgm")
    with pytest.raises(ArtifactError, match=r"t.en has several sets \(refset, refset\); .*one of them"):
        pairs(tmp_path, sgm("srcset", [1, 1]), sgm("refset", [1]) + sgm("refset", [1]), markup="sgm")
    with pytest.raises(ArtifactError, match=r"t.de .*<src> and <ref> .*; name a file"):
        pairs(tmp_path, sgm("srcset", [1]), "", markup="sgm", same=True)
    with pytest.raises(ArtifactError, match=r"t.de .* <seg> "):
        pairs(tmp_path, "Eins.\n", sgm("refset", [1]), markup="sgm")
    with pytest.raises(ArtifactError, match=r"t.de and .*t.en .* no references by translators"):
        pairs(tmp_path, sgm("srcset", [1]), sgm("refset", [1]), markup="sgm", translator="A")


def test_documents_have_to_agree_in_their_ids(tmp_path):
    """Ids of segments begin anew in every document."""
    one, other = (
        '<doc docid="{}"><seg id="1">{}</seg></doc>'.format(*pair) for pair in (("a", "Hund"), ("b", "Katze"))
    )
    assert len(pairs(tmp_path, f"<srcset>{one}{other}</srcset>", f"<refset>{one}{other}</refset>", markup="sgm")) == 2
    with pytest.raises(ArtifactError, match=r' segment 1: .* document is "a" in one and "b" in the other'):
        pairs(tmp_path, f"<srcset>{one}{other}</srcset>", f"<refset>{other}{one}</refset>", markup="sgm")


WMT = """<?xml version='1.0' encoding='utf-8'?>
<dataset id="news"><collection id="general">
<doc id="d1" origlang="de">
<src lang="de"><p><seg id="1">Eins &amp;\n zwei.</seg></p><p><seg id="2">Drei.</seg></p></src>
<ref lang="en-GB" translator="A"><p><seg id="1">One &amp; two.</seg><seg id="2">Three.</seg></p></ref>
<ref lang="en" translator="B"><p><seg id="1">1 &amp; 2.</seg><seg id="2">3.</seg></p></ref>
<hyp lang="en" system="X"><p><seg id="1">wrong</seg><seg id="2">wrong</seg></p></hyp>
</doc>
<doc id="d2"><src lang="de"><p><seg id="1">Vier.</seg></p></src>
<ref lang="en" translator="A"><p><seg id="1">Four.</seg></p></ref></doc>
</collection></dataset>
"""
BY_A = [("Eins & zwei.", "One & two."), ("Drei.", "Three."), ("Vier.", "Four.")]


def test_source_and_references_of_one_file(tmp_path):
    assert pairs(tmp_path, WMT, "", same=True, markup="sgm", translator="A") == BY_A
    turned = pairs(tmp_path, WMT, "", ("en", "de"), same=True, markup="sgm", translator="A")
    assert turned == [(b, a) for a, b in BY_A]
    # A language has codes of two and of three letters.
    assert pairs(tmp_path, WMT, "", ("deu", "eng"), same=True, markup="sgm", translator="A") == BY_A
    # Languages of one macrolanguage have texts of their own.
    sides = WMT.replace('lang="de"', 'lang="ar"').replace('lang="en', 'lang="arz')
    assert pairs(tmp_path, sides, "", ("ar", "arz"), same=True, markup="sgm", translator="A") == BY_A
    # With one translator there is nothing to choose.
    single = WMT.replace(' translator="A"', "").replace('<ref lang="en" translator="B">', '<ref lang="fr">')
    assert pairs(tmp_path, single, "", same=True, markup="sgm") == BY_A
    # The other text may be a file of its own.
    assert pairs(tmp_path, WMT, sgm("refset", [1, 2, 1]), markup="sgm")[2] == ("Vier.", "refset 1")
    assert pairs(tmp_path, sgm("srcset", [1, 2, 1]), WMT, markup="sgm", translator="A")[2] == ("srcset 1", "Four.")


@pytest.mark.parametrize(
    ("old", "new", "translator", "message"),
    [
        ("", "", None, "t.de has references in en by A, B; choose one as translator of the part"),
        ("", "", "C", "has references in en by A, B, and none by C; choose one"),
        ("", "", "B", 'document "d2" of .*t.de has no reference in en by translator "B"'),
        ('lang="en', 'lang="fr', None, "t.de has no source and no reference in en; it has de, fr"),
        ('"B"', '"A"', "A", '"d1" of .*t.de has 2 elements for the reference in en by translator "A"'),
        ('<seg id="2">Three.', '<seg id="3">Three.', "A", '"d1" of .* has different segments .*: 2, 3; correct'),
        ('<seg id="2">Three.', '<seg id="1">Three.', "A", '"d1" of .* has a segment "1" twice'),
        ("</collection>", "", "A", "t.de is not well-formed XML .*line"),
        ("Vier", "&nbsp;", "A", "t.de is not well-formed XML .*undefined entity"),
        ("<dataset", '<!DOCTYPE dataset [<!ENTITY a "b">]><dataset', "A", "t.de is refused: it declares entities"),
        ('<src lang="de"><p><seg id="1">V', '<src lang="en"><p><seg id="1">V', "A", "sources in several languages"),
    ],
)
def test_what_is_not_clear_in_one_file_is_refused(tmp_path, old, new, translator, message):
    with pytest.raises(ArtifactError, match=message) as failure:
        pairs(tmp_path, WMT.replace(old, new), "", same=True, markup="sgm", translator=translator)
    assert "\n" not in str(failure.value)


def test_entities_that_would_fill_the_memory_are_refused_at_once(tmp_path):
    layers = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha"}">' for n in range(20))
    laughs = f"<!DOCTYPE dataset [{layers}]><dataset><doc><src lang='de'><seg id='1'>&l19;</seg></src></doc></dataset>"
    with pytest.raises(ArtifactError, match=r"t.de is refused: .* entities"):
        pairs(tmp_path, laughs, "", same=True, markup="sgm")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('<doc>\n<seg id="1">eins\n<seg id="2">zwei</seg>\n</doc>', 2),
        ('<doc>\n<seg id="1">eins</seg>\n<seg id="2">zwei\n</doc>\n<doc><seg id="1">drei</seg></doc>', 3),
        ('<seg id="1">eins</seg>\n\n<seg id="2">zwei', 3),
        ("<seg id=1>\n" * 50_000, 1),
        ("<seg id=1></seg>\n" + "<seg " * 200_000 + ">", 2),
    ],
)
def test_a_segment_without_an_end_is_refused_and_not_joined_with_the_next(text, line):
    with pytest.raises(ArtifactError) as refused:
        segments(text, "test.sgm", ("de", "en"))
    assert (refused.value.path, refused.value.line) == ("test.sgm", line)
