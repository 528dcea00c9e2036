"""Records, translation memories and tables with a header: pairs, their lines, what is counted, and users' mistakes."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workflow_src.config.datasets import DatasetConfig
from workflow_src.data.corpus import RawCorpus, RawPair, count_training_pairs
from workflow_src.data.unpack import zstd
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.spec import parse

PAIRS = [("eins", "one"), ("zwei", "two")]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, which the paths of parts start from."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own(*parts, languages=("de", "en")) -> DatasetConfig:
    content = {"name": "own", "languages": list(languages), "train": list(parts), "dev": list(parts)}
    return parse(DatasetConfig, content | {"test": list(parts)})


def read(*parts, languages=("de", "en"), of=("de", "en")) -> tuple[list[RawPair], RawCorpus]:
    with RawCorpus(own(*parts, languages=languages), of, Path) as corpus:
        return list(corpus.parts_of("train")), corpus


def texts(pairs) -> list[tuple[str, str]]:
    return [(pair.first, pair.second) for pair in pairs]


def refused(*parts, **more) -> str:
    with pytest.raises(ArtifactError) as failure:
        read(*parts, **more)
    assert "\n" not in str(failure.value)
    return str(failure.value)


def lines(name: str, *records) -> None:
    content = (record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records)
    Path(name).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")


def records(name: str = "x.jsonl", de: str = "de", en: str = "en", **more) -> dict:
    return {"records": name, "columns": {"de": de, "en": en}} | more


def unit(*segments: tuple[str, str], tuid: str = "u") -> str:
    body = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in segments)
    return f'<tu tuid="{tuid}">{body}</tu>'


def memory(*units: str, head: str = "", root: str = '<tmx version="1.4">') -> str:
    start = f"<?xml version='1.0' encoding='UTF-8'?>{head}\n{root}<header srclang='en'/>\n<body>\n"
    return start + "\n".join(units) + "\n</body></tmx>\n"


def packed(name: str, content: bytes) -> str:
    """Writes `content` in the form that the name has; returns it as a part names it."""
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd.compress}
    file, _, member = name.partition("!")
    if member:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(f"inside/{member}", content)
    else:
        Path(name).write_bytes(pack.get(name.rpartition(".")[2], bytes)(content))
    return name


# Wherever texts may stand

FORMS = ["{}", "{}.gz", "{}.bz2", "{}.xz", "{}.zst", "all.zip!{}"]


@pytest.mark.parametrize("form", FORMS)
def test_all_kinds_are_read_plain_and_packed_in_both_directions_and_counted(form):
    rows = [{"t": {"de": de, "en": en}} for de, en in PAIRS]
    jsonl = packed(form.format("x.json"), "".join(json.dumps(row) + "\n" for row in rows).encode())
    units = [unit(("de", de), ("en", en)) for de, en in PAIRS]
    tmx = packed(form.format("x.tmx").replace("all", "other"), memory(*units).encode())
    parts = [records(jsonl, "t.de", "t.en"), {"tmx": tmx}]
    pairs, corpus = read(*parts)
    assert texts(pairs) == PAIRS + PAIRS and not any(corpus.dropped.values())
    places = [(jsonl, 1), (jsonl, 2), (tmx, 4), (tmx, 5)]
    assert [(pair.names, pair.number) for pair in pairs] == [((name, name), line) for name, line in places]
    assert texts(read(*parts, of=("en", "de"))[0]) == 2 * [(en, de) for de, en in PAIRS]
    assert texts(read(*parts, of=("en",))[0]) == 2 * [(en, en) for _, en in PAIRS]
    assert own(*parts).own_files(("de", "en")) == [jsonl.partition("!")[0], tmx.partition("!")[0]]
    counted = None if "!" in form else 4
    assert count_training_pairs(own(*parts), ("de", "en")) == counted


def test_settings_of_one_kind_do_not_fit_another():
    for part, setting in (
        ({"records": "a", "columns": {"de": 0, "en": "en"}}, "columns.de"),
        (records(header=True), "header"),
        (records(minimum_score=1), "minimum_score"),
        ({"tmx": "a", "columns": {"de": "de"}}, "columns"),
        ({"tmx": "a", "records": "b"}, "tmx"),
        ({"tmx": "a", "variants": {"fr": "fr-CA"}}, "variants"),
        ({"table": "a", "columns": {"de": "german", "en": 1}}, "columns.de"),
        ({"table": "a", "columns": {"de": 0, "en": 1}, "score_column": "score"}, "score_column"),
    ):
        with pytest.raises(ConfigError) as failure:
            own(part)
        assert failure.value.setting == f"train[0].{setting}"
    for misspelt, name in (("tmxx", "tmx"), ("record", "records"), ("tabel", "table"), ("text", "texts")):
        with pytest.raises(ConfigError) as failure:
            own({misspelt: "a"})
        assert failure.value.nearest == name


# Records


def test_a_dot_leads_into_an_object_unless_the_name_has_it():
    lines("x.jsonl", {"a": {"b": {"de": "eins"}}, "a.b": {"en": "one"}}, {"a": {"b.de": "zwei", "b": {"en": "two"}}})
    assert texts(read(records(de="a.b.de", en="a.b.en"))[0]) == PAIRS


JSON_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(pairs=st.lists(st.tuples(JSON_TEXT, JSON_TEXT), min_size=1, max_size=5), escaped=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_records_that_pythons_json_writes_are_read_with_line_breaks_as_spaces(pairs, escaped):
    content = "".join(json.dumps({"de": de, "en": en}, ensure_ascii=escaped) + "\n" for de, en in pairs)
    Path("x.jsonl").write_text(content, encoding="utf-8", newline="")
    rows, _ = read(records())
    assert texts(rows) == [tuple(" ".join(side.splitlines()).strip() for side in pair) for pair in pairs]


def test_records_without_a_text_are_left_out_and_counted_and_lines_keep_their_numbers():
    lines("x.jsonl", {"de": "eins", "en": "one"}, "", {"de": None, "en": "no"}, " ", {"de": "zwei", "en": "two"})
    pairs, corpus = read(records())
    assert texts(pairs) == PAIRS and [pair.number for pair in pairs] == [1, 5]
    assert corpus.dropped["train"] == {"blank_line": 2, "untranslated": 1} and not corpus.inline_elements
    assert texts(read(records(), of=("en",))[0]) == [("one", "one"), ("no", "no"), ("two", "two")]


def test_null_in_place_of_an_object_is_null_in_place_of_its_texts():
    full = [{"a": {"b": {"de": "eins", "en": "one"}}}, {"a": None, "a.b": {"de": "zwei", "en": "two"}}]
    lines("x.jsonl", {"a": None}, full[0], {"a": {"b": None}}, full[1])
    pairs, corpus = read(records(de="a.b.de", en="a.b.en"))
    assert texts(pairs) == PAIRS and corpus.dropped["train"] == {"untranslated": 2}


def test_scores_of_records():
    scores = [0.2, "0.9", None, 1]
    lines("x.jsonl", *({"de": f"d{n}", "en": f"e{n}", "m": {"s": score}} for n, score in enumerate(scores)))
    pairs, _ = read(records(score_column="m.s"))
    assert [pair.score for pair in pairs] == [0.2, 0.9, None, 1.0]
    pairs, corpus = read(records(score_column="m.s", minimum_score=0.5))
    assert [pair.number for pair in pairs] == [2, 4] and corpus.dropped["train"] == {"minimum_score": 2}
    for bad in ("high", True, [1], 10**400):
        lines("x.jsonl", {"de": "a", "en": "b", "s": bad})
        assert "x.jsonl" in (message := refused(records(score_column="s"))) and "line 1" in message
        assert "score_column" in message


@pytest.mark.parametrize(
    ("line", "key_facts"),
    [
        ("{", ["line 2", "not JSON", "jq"]),
        ("[" * 100_000, ["line 2", "jq"]),
        ('["a", "b"]', ["line 2", "['a', 'b']", "jq"]),
        ('{"de": "a"}', ["line 2", '"en"', "it has de"]),
        ("{}", ["line 2", '"de"', "empty"]),
        ('{"de": "a", "en": 3}', ["line 2", "has 3", '"en"', "text"]),
        ('{"de": {"x": "a", "y": {"z": "b"}}, "en": "b"}', ["line 2", "de.x, de.y.z"]),
        (r'{"de": "a", "en": "\ud83d"}', ["line 2", "ud83d", '"en"']),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_number(line, key_facts):
    lines("x.jsonl", {"de": "eins", "en": "one"}, line)
    message = refused(records())
    assert message.startswith("x.jsonl, ") and [fact for fact in key_facts if fact not in message] == []
    assert count_training_pairs(own(records()), ("de", "en")) is None


def test_a_misspelt_field_is_corrected():
    lines("x.jsonl", {"translation": {"german": "eins", "english": "one"}})
    message = refused(records(de="translation.germn", en="translation.english"))
    assert message.endswith('did you mean "translation.german"?')


def test_records_of_which_nothing_is_left():
    for content in ("", "\n\n", '{"de": null, "en": "a"}\n'):
        Path("x.jsonl").write_text(content)
        assert refused(records()).startswith("x.jsonl ")


# Translation memories


def test_a_language_has_variants_and_the_code_alone_comes_first():
    Path("x.tmx").write_text(
        memory(
            unit(("en-GB", "one"), ("de-AT", "eins")),
            unit(("deu", "zwei"), ("EN_us", "two")),
            unit(("en", "three"), ("de-CH", "nicht"), ("de", "drei"), ("de", "auch nicht")),
            unit(("en", "four"), ("den", "other language"), ("", "none")),
            unit(("en-US", "first"), ("en-GB", "second"), ("de", "fünf")),
        )
    )
    pairs, corpus = read({"tmx": "x.tmx"})
    assert texts(pairs) == [*PAIRS, ("drei", "three"), ("fünf", "first")]
    assert [pair.number for pair in pairs] == [4, 5, 6, 8]
    assert corpus.dropped["train"] == {"untranslated": 1, "other_segment": 3}
    pairs, corpus = read({"tmx": "x.tmx", "variants": {"de": "de_ch"}})
    assert texts(pairs) == [("nicht", "three")] and corpus.dropped["train"] == {"untranslated": 4}
    assert texts(read({"tmx": "x.tmx", "variants": {"de": "de-ch"}}, of=("en",))[0])[3] == ("four", "four")


def test_languages_of_one_macrolanguage_have_segments_of_their_own():
    units = [
        unit(("ar-EG", "standard"), ("arz", "Egyptian"), ("en", "English")),
        unit(("arz", "other Egyptian"), ("ara", "other")),
        unit(("arz", "alone"), ("en", "English")),
    ]
    Path("x.tmx").write_text(memory(*units))
    languages = ("ar", "arz", "en")
    both = [("standard", "Egyptian"), ("other", "other Egyptian")]
    assert texts(read({"tmx": "x.tmx"}, languages=languages, of=("ar", "arz"))[0]) == both
    assert texts(read({"tmx": "x.tmx"}, languages=languages, of=("arz", "ar"))[0]) == [pair[::-1] for pair in both]
    # Beside another language, a part of a macrolanguage stands for it.
    assert texts(read({"tmx": "x.tmx"}, languages=languages, of=("ar", "en"))[0])[1] == ("alone", "English")


def test_a_segment_with_text_comes_before_an_empty_one_and_keeps_its_own_spaces():
    Path("x.tmx").write_text(
        memory(unit(("en", "one\n  more"), ("de", ""), ("de-AT", "eins\u00a0!\u3000"))), encoding="utf-8"
    )
    pairs, corpus = read({"tmx": "x.tmx"})
    assert texts(pairs) == [("eins\u00a0!\u3000", "one more")] and corpus.dropped["train"] == {"other_segment": 1}


def test_inline_elements_are_left_out_with_their_code_and_counted():
    Path("x.tmx").write_text(
        memory(
            unit(
                (
                    "en",
                    "Press <ph x='1'>%1<sub>no</sub></ph> to\n <bpt i='1'>&lt;b></bpt>go<ept i='1'>&lt;/b></ept> on.",
                ),
                ("de", "<hi><hi>Weiter</hi> mit</hi> <!-- no --><it pos='begin'>x</it>dem &amp;&#228;"),
            ),
            unit(("en", "A <![CDATA[<b>]]> &lt;i>"), ("de", "<ut>q</ut>")),
            # A line break between words, and a note before a comma; bold letters of a word.
            unit(("en", "One.<ph>{br}</ph>Two<ph>1</ph>, <bpt i='1'>b</bpt>t<ept i='1'>b</ept>hree"), ("de", "Eins")),
            # A hyphen that may be, and characters of a language without spaces.
            unit(("en", "(<ph/>Top sur<ph/>face"), ("de", "中<ph/>文")),
        )
    )
    pairs, corpus = read({"tmx": "x.tmx"})
    assert texts(pairs) == [
        ("Weiter mit dem &ä", "Press to go on."),
        ("", "A <b> <i>"),
        ("Eins", "One. Two, three"),
        ("中文", "(Top surface"),
    ]
    assert corpus.inline_elements == {"train": 14} and not corpus.dropped["train"]


def test_forms_of_tmx():
    """TMX 1.1 has `lang`, 2.0 a namespace; UTF-16 is common, and so is a DTD that is not there."""
    old = "<?xml version='1.0' encoding='UTF-16'?><!DOCTYPE tmx SYSTEM 'tmx11.dtd'><tmx version='1.1'><body><tu>"
    old += "<tuv lang='DE'><seg>Grüße</seg></tuv><tuv lang='EN-US'><seg>greetings</seg></tuv></tu></body></tmx>"
    new = memory(unit(("de", "neu"), ("en", "new")), root="<tmx xmlns='http://www.lisa.org/tmx20' version='2.0'>")
    for content in (old.encode("utf-16"), b"\xef\xbb\xbf" + new.encode()):
        Path("x.tmx").write_bytes(content)
        assert texts(read({"tmx": "x.tmx"})[0]) in ([("Grüße", "greetings")], [("neu", "new")])


SECRET = unit(("de", "&x;"), ("en", "b"))


@pytest.mark.parametrize(
    ("content", "key_facts"),
    [
        ("", ["empty"]),
        ("eins\tone\n", ["line 1", "XML"]),
        (memory(unit(("de", "a"), ("en", "b")))[:-20], ["line 4", "XML"]),
        (memory(), ["<tu>"]),
        ("<?xml version='1.0'?><mteval/>", ["<tu>"]),
        (memory(unit(("fr", "a"), ("en-US", "b"))), ["de and en", "fr, en-us"]),
        (memory(SECRET, head="<!DOCTYPE tmx [<!ENTITY x 'inside'>]>"), ["line 4", "&x;"]),
        (memory(SECRET, head="<!DOCTYPE tmx [<!ENTITY x SYSTEM 'secret'>]>"), ["line 4", "&x;"]),
        (memory(SECRET, head="<!DOCTYPE tmx SYSTEM 'secret.dtd'>"), ["line 4", "&x;"]),
        (memory(SECRET), ["line 4", "XML", "'x'"]),
        (memory(*3000 * [unit(("de", "a"), ("en", "b"))], SECRET), ["line 3004", "XML", "'x'"]),
        ("<xliff version='1.2'/>", ["XLIFF"]),
    ],
)
def test_a_memory_that_cannot_be_used_is_refused(content, key_facts):
    Path("secret").write_text("the text of another file")
    Path("secret.dtd").write_text("<!ENTITY x 'the text of another file'>")
    Path("x.tmx").write_text(content)
    message = refused({"tmx": "x.tmx"})
    assert message.startswith("x.tmx") and [fact for fact in key_facts if fact not in message] == []


def test_entities_that_grow_are_refused_before_they_fill_the_memory():
    names = "abcdefghij"
    grown = "".join(f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in itertools.pairwise(names))
    for body in (unit(("de", "&j;"), ("en", "b")), unit(("de", "a"), ("en", "b"), tuid="&j;")):
        Path("x.tmx").write_text(memory(body, head=f"<!DOCTYPE tmx [<!ENTITY a 'ha'>{grown}]>"))
        assert refused({"tmx": "x.tmx"}).startswith("x.tmx, line ")


def test_a_cut_compressed_memory_is_called_damaged():
    content = memory(*(unit(("de", f"Satz {n * n}"), ("en", f"sentence {n}")) for n in range(500))).encode()
    Path("x.tmx.gz").write_bytes(gzip.compress(content)[:2000])
    assert "x.tmx.gz is truncated or damaged" in refused({"tmx": "x.tmx.gz"})


# Peak memory, in KiB, of a process that reads a memory of so many units.
MEASURED = r"""
import re
from workflow_src.data.translation_memory import units
from collections import Counter
with open("x.tmx", "rb") as stream:
    count = sum(1 for _ in units(stream, "x.tmx", ("de", "en"), {}, Counter()))
with open("/proc/self/status") as status:
    print(count, re.search(r"VmHWM:\s+(\d+)", status.read())[1])
"""


def test_memory_does_not_grow_with_the_file_and_lines_beyond_65535_are_named():
    peaks = []
    for count in (1_000, 18_000):
        body = [
            unit(("de", f"Satz {n} " + "wort " * 40), ("en", f"sentence\n\n{n}"), tuid=str(n)) for n in range(count)
        ]
        # Of every other unit, segments have lines of their own.
        body[::2] = [text.replace("<tuv", "\n  <tuv") for text in body[::2]]
        Path("x.tmx").write_text(memory(*body))
        done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
        units_read, peak = map(int, done.stdout.split())
        assert units_read == count
        peaks.append(peak)
    # The larger file has 5 MB, of which a tree takes several times as much.
    assert peaks[1] - peaks[0] < 3_000
    pairs, _ = read({"tmx": "x.tmx"})
    begins = itertools.accumulate((1 + text.count("\n") for text in body), initial=4)
    assert [pair.number for pair in pairs] == list(begins)[:-1]


# Tables with a header


@pytest.mark.parametrize("separator", ["\t", ","])
def test_columns_by_name_or_number(separator):
    rows = ["id|german |english|score", "", "1|eins|one|0.9", "2|zwei|two|0.1"]
    Path("x").write_text("\n".join(rows).replace("|", separator))
    part = {"table": "x", "separator": separator, "header": True}
    for columns in ({"de": "german", "en": "english"}, {"de": 1, "en": "english"}, {"de": 1, "en": 2}):
        pairs, corpus = read(part | {"columns": columns})
        assert texts(pairs) == PAIRS and [pair.number for pair in pairs] == [3, 4]
        assert corpus.dropped["train"] == {"blank_line": 1}
        assert [p.score for p in read(part | {"columns": columns, "score_column": "score"})[0]] == [0.9, 0.1]


def test_separators_of_lines_stay_in_the_cells_of_a_table_without_quotes():
    Path("x").write_text("eins\u2028und\tone\x0band\n")
    assert texts(read({"table": "x", "columns": {"de": 0, "en": 1}})[0]) == [("eins\u2028und", "one\x0band")]


def test_a_header_without_the_name_is_refused():
    Path("x").write_text("german\tenglish\tenglish\neins\tone\tuno\n")
    part = {"table": "x", "header": True}
    message = refused(part | {"columns": {"de": "germann", "en": 1}})
    assert "x, line 1" in message and "german, english" in message and 'did you mean "german"?' in message
    assert "several" in refused(part | {"columns": {"de": "german", "en": "english"}})
    assert "3 columns in line 1, but 5 are needed" in refused(part | {"columns": {"de": 0, "en": 4}})
    Path("x").write_text("german\tenglish\n")
    assert "no row" in refused(part | {"columns": {"de": "german", "en": "english"}})
