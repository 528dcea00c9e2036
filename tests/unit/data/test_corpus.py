"""Parts, markup and tables; every shipped dataset on miniature archives of the layout that its definition expects."""

import csv
import gzip
import io
import itertools
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workflow_src.config.datasets import DatasetConfig
from workflow_src.config.files import CONFIG_FOLDER, read_yaml
from workflow_src.config.parts import TextPart, file_and_members
from workflow_src.config.preparation import NormalisationConfig
from workflow_src.data.corpus import RawCorpus
from workflow_src.data.download import places
from workflow_src.errors import ArtifactError, ConfigError, DeclarationError, InputError
from workflow_src.spec import parse


def dataset(name: str) -> DatasetConfig:
    return parse(DatasetConfig, read_yaml(CONFIG_FOLDER / "datasets" / f"{name}.yaml"), name)


def own(**more) -> DatasetConfig:
    return DatasetConfig.model_validate({"name": "own", "languages": ["de", "en"]} | more)


def collected(settings: DatasetConfig, languages, files=None, folder=None) -> dict[str, list[tuple[str, str]]]:
    with RawCorpus(settings, languages, lambda name: (files or {})[name], folder) as corpus:
        return {name: [(pair.first, pair.second) for pair in pairs] for name, pairs in corpus.parts()}


def tagged(lines: list[str]) -> str:
    head = "<url>http://x</url>\n<keywords>talks</keywords>\n<speaker>A</speaker>\n<title>T</title>\n"
    return head + "".join(f" {line} \n" for line in lines) + "<reviewer></reviewer>\n<translator>B</translator>\n"


def sgm(lines: list[str]) -> str:
    body = "\n".join(f'<seg id="{n}"> {line} </seg>' for n, line in enumerate(lines, 1))
    return f'<srcset setid="x" srclang="any">\n<doc docid="1"><title>T</title>\n<p>\n{body}\n</p></doc></srcset>\n'


def plain(lines):
    return "".join(line + "\n" for line in lines)


# The shipped definitions

MARKUP = {"none": plain, "ted": tagged, "sgm": sgm}


def sentences(split: str, number: int, language: str) -> list[str]:
    return [f"{split} {number} {language} {line}" for line in range(3)]


# Rows of tables as their publishers write them, by the starts of their names.
ROWS = {
    "train/train": "{score} ||| A-1 ||| 1 ||| {ja} ||| {en}",
    "dev/dev": "A-1 ||| 1 ||| {ja} ||| {en}",
    "test/test": "A-1 ||| 1 ||| {ja} ||| {en}",
    "en-ja.bicleaner05": "web\t{score}\t{en}\t{ja}",
    "news-commentary": "{en}\t{ja}",
    "wikititles": "{ja}\t{en}",
    "WikiMatrix": "{score}\t{en}\t{ja}\ten\tja",
    "raw.tar.gz": "{en}\t{ja}",
    "pairs!deu.txt": "{en}\t{de}",
}


def contents(settings: DatasetConfig) -> dict[str, str]:
    """The texts of a definition, as its parts name them, with the sentences that they should have."""
    texts = {}
    for split in settings.raw_splits:
        for number, part in enumerate(settings.parts[split]):
            sides = {code: sentences(split, number, code) for code in settings.languages_of(part)}
            if isinstance(part, TextPart):
                for code, (name,) in part.texts.items():
                    assert code in re.split(r"[.-]", name), name
                    texts[name] = MARKUP[part.markup](sides[code])
                continue
            (row,) = [row for name, row in ROWS.items() if part.table.startswith(name)]
            lines = [{code: side[line] for code, side in sides.items()} for line in range(3)]
            texts[part.table] = plain(
                [row.format(score=0.2 + 0.4 * number, **line) for number, line in enumerate(lines)]
            )
    return texts


def archive(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as file:
            for name, content in members.items():
                file.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"top/{name}")
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    return path


def miniature(settings: DatasetConfig, folder: Path) -> dict[str, Path]:
    """Files of the layout that a definition expects, with a few sentences, by the names that it gives them."""
    files: dict[str, dict[tuple[str, ...], bytes]] = {}
    for text, content in contents(settings).items():
        name, *members = file_and_members(text)
        files.setdefault(name, {})[tuple(members)] = content.encode()
    paths = {}
    for name, members in files.items():
        path = folder / (places(settings.files[name])[0] if name in settings.files else name)
        inner: dict[str, dict[str, bytes]] = {}
        for (first, *more), content in ((key, value) for key, value in members.items() if key):
            inner.setdefault(first, {})["!".join(more)] = content
        path.parent.mkdir(parents=True, exist_ok=True)
        if not inner:
            packed = gzip.compress(members[()]) if path.name.endswith(".gz") else members[()]
            path.write_bytes(packed)
        else:
            packed = {
                first: content[""] if "" in content else archive(folder / "inner.tgz", content).read_bytes()
                for first, content in inner.items()
            }
            archive(path, packed)
        paths[name] = path
    return paths


SHIPPED = sorted(path.stem for path in (CONFIG_FOLDER / "datasets").glob("*.yaml"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_definition_is_read_in_both_directions_and_says_whose_it_is(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    settings = dataset(name)
    assert settings.name == name and settings.licence != "unknown"
    parse(NormalisationConfig, settings.normalisation, "normalisation")
    if settings.generated is not None:
        return
    files = miniature(settings, tmp_path)
    assert set(settings.files) <= set(files)
    for first, second in itertools.permutations(settings.languages, 2):
        expected = {}
        for split in settings.raw_splits:
            sides = (
                zip(sentences(split, number, first), sentences(split, number, second), strict=True)
                for number in range(len(settings.parts[split]))
            )
            expected[split] = list(itertools.chain.from_iterable(sides))
        if name == "wmt20-ja-en":
            # The first part has scores, of which 0.2 is too low.
            expected["train"].pop(0)
        assert collected(settings, (first, second), files, str(tmp_path)) == expected


def test_a_licensed_corpus_without_its_folder_or_a_file_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"^recipe.folder: dataset aspec .*Apply for ASPEC"):
        collected(dataset("aspec"), ("ja", "en"))
    with pytest.raises(ConfigError, match=r"^recipe.folder is .*nowhere.*Download the"):
        collected(dataset("wmt20-ja-en"), ("ja", "en"), folder=str(tmp_path / "nowhere"))
    miniature(dataset("aspec"), tmp_path)
    (tmp_path / "train/train-2.txt").unlink()
    with pytest.raises(ArtifactError, match=r"^train/train-2.txt of dataset aspec is missing .*Apply for"):
        collected(dataset("aspec"), ("ja", "en"), folder=str(tmp_path))


# The user's own files


def test_several_references_of_a_source_stand_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = {"x.de": ["eins", "zwei"], "a.en": ["one", "two"], "b.en": ["1", ""], "c.en": ["I", "II"]}
    for name, text in lines.items():
        Path(name).write_text("".join(f"{line}\n" for line in text))
        Path(f"{name}.sgm").write_text(sgm(text))
    for ending, markup in (("", "none"), (".sgm", "sgm")):
        names = [f"{name}{ending}" for name in ("a.en", "b.en", "c.en")]
        part = {"texts": {"de": f"x.de{ending}", "en": names}, "markup": markup}
        settings = own(train=[{"texts": {"de": "x.de", "en": "a.en"}}], dev=[part], test={"t": [part, part]})
        with RawCorpus(settings, ("de", "en"), Path) as corpus:
            pairs = {name: [(pair.first, pair.second, pair.more) for pair in group] for name, group in corpus.parts()}
        once = [("eins", "one", ("1", "I")), ("zwei", "two", ("", "II"))]
        assert pairs["dev"] == once and pairs["t"] == 2 * once
        assert pairs["train"] == [("eins", "one", ()), ("zwei", "two", ())]
    Path("b.en").write_text("1\n")
    part = {"texts": {"de": "x.de", "en": ["a.en", "b.en"]}}
    with pytest.raises(ArtifactError, match=r"x.de has 2 lines, but b.en has 1"):
        collected(own(train=[{"texts": {"de": "x.de", "en": "a.en"}}], dev=[part], test=[part]), ("de", "en"))


def test_own_texts_tables_and_archives_follow_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.de").write_text("\ufeffeins \r\nzwei\r\n", encoding="utf-8")
    Path("a.en.gz").write_bytes(gzip.compress(b"one\ntwo"))
    Path("b.tsv").write_text("x\tthree\tdrei\nx\tfour\tvier\n")
    with zipfile.ZipFile("c.zip", "w") as archive:
        archive.writestr("c/c.de", "fünf\u2028noch fünf\n")
        archive.writestr("c/c.en", "five\n")
    part = {"texts": {"de": "a.de", "en": "a.en.gz"}}
    table = {"table": "b.tsv", "columns": {"en": 1, "de": 2}}
    packed = {"texts": {"de": "c.zip!c.de", "en": "c.zip!c.en"}}
    settings = own(train=[part, table, packed], dev=[part], test=[part])
    splits = collected(settings, ("de", "en"))
    first = [("eins", "one"), ("zwei", "two")]
    assert splits["train"] == [*first, ("drei", "three"), ("vier", "four"), ("fünf\u2028noch fünf", "five")]
    assert splits["dev"] == splits["test"] == first
    assert settings.own_files(("de", "en")) == ["a.de", "a.en.gz", "b.tsv", "c.zip"]


def test_a_name_may_have_the_sign_before_members(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a!!.de").write_text("eins\n")
    with zipfile.ZipFile("b!.zip", "w") as archive:
        archive.writestr("in!side.en", "one\n")
    part = {"texts": {"de": "a!!!!.de", "en": "b!!.zip!in!!side.en"}}
    settings = own(train=[part], dev=[part], test=[part])
    assert collected(settings, ("de", "en"))["train"] == [("eins", "one")]
    assert settings.own_files(("de", "en")) == ["a!!.de", "b!.zip"]
    part = {"texts": {"de": "b!.zip!in!!side.en", "en": "a!!!!.de"}}
    with pytest.raises(ArtifactError, match=r"^b does not exist.* as !!"):
        collected(own(train=[part], dev=[part], test=[part]), ("de", "en"))


def test_a_path_in_the_home_folder_may_be_written_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    part = {"texts": {"de": "~/a.de", "en": ["~/a.en"]}}
    assert own(train=[part], dev=[part], test=[part]).own_files(("de", "en")) == [
        f"{tmp_path}/a.de",
        f"{tmp_path}/a.en",
    ]


def failing(tmp_path, german: bytes, english: bytes, **part) -> str:
    (tmp_path / "x.de").write_bytes(german)
    (tmp_path / "x.en").write_bytes(english)
    text_part = part or {"texts": {"de": f"{tmp_path}/x.de", "en": f"{tmp_path}/x.en"}}
    settings = own(train=[text_part], dev=[text_part], test=[text_part])
    with pytest.raises(InputError) as failure:
        collected(settings, ("de", "en"))
    assert "\n" not in str(failure.value)
    return str(failure.value)


def test_line_counts_that_differ_name_both_files_and_counts(tmp_path):
    assert f"{tmp_path}/x.de has 3 lines, but {tmp_path}/x.en has 2" in failing(tmp_path, b"a\nb\nc\n", b"a\nb\n")
    assert f"{tmp_path}/x.de has 1 lines, but {tmp_path}/x.en has 4" in failing(tmp_path, b"a\n", b"a\nb\nc\nd")


def test_invalid_utf8_names_file_line_and_byte(tmp_path):
    message = failing(tmp_path, b"gut\nsch\xf6n\n", b"good\nfine\n")
    assert f"{tmp_path}/x.de, line 2, " in message and "UTF-8" in message and "byte 8 of the text is 0xf6" in message
    message = failing(tmp_path, b"gut\n\x7fELF\0\0\xff\x01\n", b"good\nfine\n")
    assert f"{tmp_path}/x.de, line 2, has bytes " in message


def test_empty_and_missing_texts_are_named(tmp_path):
    assert f"{tmp_path}/x.en is empty" in failing(tmp_path, b"a\n", b"")
    assert re.match("no.de .*exist", failing(tmp_path, b"", b"", texts={"de": "no.de", "en": "no.en"}))


def test_tables_that_do_not_fit_are_named(tmp_path):
    table = {"table": f"{tmp_path}/x.de", "columns": {"de": 0, "en": 1}}
    assert "x.de has 1 column in line 1, but 2 are needed" in failing(tmp_path, b"a\nc\n", b"", **table)
    # A tab inside of a sentence would make another pair of it.
    for odd in (b"c", b"c\td\te", b"\tc\td"):
        message = failing(tmp_path, b"a\tb\n" + odd + b"\n", b"", **table)
        assert f"x.de, line 2, has {odd.count(9) + 1} column" in message
    scored = table | {"score_column": 2, "minimum_score": 0.5}
    assert "has 'high' in column 2 of line 1" in failing(tmp_path, b"a\tb\thigh\n", b"", **scored)
    none = failing(tmp_path, b"a\tb\t0.1\nc\td\tnan\n", b"", **scored)
    assert "x.de has no row with the score 0.5 " in none and "lower minimum_score" in none


def csv_pairs(tmp_path, content: str, **part) -> list[tuple[str, str]]:
    (tmp_path / "x.csv").write_bytes(content.encode())
    table = {"table": f"{tmp_path}/x.csv", "columns": {"de": 0, "en": 1}, "separator": ","} | part
    return collected(own(train=[table], dev=[table], test=[table]), ("de", "en"))["train"]


CELL = st.text(st.sampled_from('ab ,;|"\n\tü'), max_size=8)


@given(rows=st.lists(st.tuples(CELL, CELL), min_size=1, max_size=6), separator=st.sampled_from(",;|"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_table_that_pythons_csv_module_writes_is_read_as_it_was(tmp_path, rows, separator):
    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(rows)
    as_lines = [tuple(" ".join(cell.splitlines()).strip() for cell in row) for row in rows]
    assert csv_pairs(tmp_path, text.getvalue(), separator=separator) == as_lines


def test_quoted_tables(tmp_path):
    text = 'de,en,score\r\n"Ja, gut.","Yes, ""good"".",1\r\n\r\n"zwei\nZeilen",two lines,0.4\r\n5" Rohr,5" pipe,2\r\n'
    pairs = [("Ja, gut.", 'Yes, "good".'), ("zwei Zeilen", "two lines"), ('5" Rohr', '5" pipe')]
    assert csv_pairs(tmp_path, text, header=True) == pairs
    scored = {"score_column": 2, "minimum_score": 0.5}
    assert csv_pairs(tmp_path, text, header=True, **scored) == [pairs[0], pairs[2]]
    assert csv_pairs(tmp_path, text, **scored) == [pairs[0], pairs[2]]
    with pytest.raises(ArtifactError, match=r"has 'grade' in column 2 of line 1, .* set header: true"):
        csv_pairs(tmp_path, text.replace("de,en,score", "hier,there,grade"), **scored)
    # Tabs and longer separators leave quotes alone, and so does any if the part says so.
    assert csv_pairs(tmp_path, '"a\tb"\n', separator="\t") == [('"a', 'b"')]
    assert csv_pairs(tmp_path, '"a\tb"\t"c"\n', separator="\t", quoted=True) == [("a\tb", "c")]
    assert csv_pairs(tmp_path, '"a" ||| "b"\n', separator="|||") == [('"a"', '"b"')]
    assert csv_pairs(tmp_path, '"a" b,c\n', quoted=False) == [('"a" b', "c")]
    # Writers of CSV may set a space behind a separator.
    assert csv_pairs(tmp_path, '"a", "b, c"\n') == [("a", "b, c")]


def test_a_table_whose_tabs_separate_quoted_cells_gets_a_warning(tmp_path, caplog):
    assert csv_pairs(tmp_path, 'Ja.\tYes, "good".\n', separator="\t") == [("Ja.", 'Yes, "good".')]
    assert not caplog.records
    csv_pairs(tmp_path, 'Ja.\t"Yes, ""good""."\n', separator="\t")
    assert "set quoted: true" in caplog.text


def test_a_column_is_that_of_one_language(tmp_path):
    with pytest.raises(ValueError, match=r"columns.*a column for each language"):
        csv_pairs(tmp_path, "a,b\n", columns={"de": 1, "en": 1})


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('a,b\n"c" d,e\n', 2, "expected after"),
        ('a,b\n"c,d\ne,f\n', 3, "unexpected end"),
        ('a,b\n"c,d\ne",f\ng,h\n', None, ""),
        ('a,b\n"c,d\ne,f\n"g",h\n', 4, "expected after"),
        ('a,b\nc,d\n"e,f\ng"\n', 4, "1 column, .* 2"),
        ("a,b\nc,d,e\n", 2, "3 columns"),
    ],
)
def test_quotes_that_do_not_fit_are_refused_with_their_line(tmp_path, text, line, reason):
    if line is None:
        assert csv_pairs(tmp_path, text) == [("a", "b"), ("c,d e", "f"), ("g", "h")]
        return
    with pytest.raises(ArtifactError, match=rf"x.csv.* line {line}\b.*{reason}.*quoted: false"):
        csv_pairs(tmp_path, text)


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize(
    "head", ["de{}en", "German{}ENGLISH", "source{}target", "src{} trg", "Deutsch{}en-GB", "Source{}Translation"]
)
def test_blank_lines_and_names_of_columns_are_no_pairs_and_counted(tmp_path, separator, head):
    text = f"{head}\n\neins{{}}one\n  \nzwei{{}}two\n\n\nde{{}}en\n".replace("{}", separator)
    (tmp_path / "table").write_text(text, encoding="utf-8")
    part = {"table": f"{tmp_path}/table", "columns": {"de": 0, "en": 1}, "separator": separator}
    with RawCorpus(own(train=[part], dev=[part], test=[part]), ("de", "en"), Path) as corpus:
        pairs = [(pair[0], pair[1], pair.number) for pair in corpus.parts_of("train")]
    assert pairs == [("eins", "one", 3), ("zwei", "two", 5), ("de", "en", 8)]
    assert corpus.dropped["train"] == {"blank_line": 4, "header": 1}
    # A first row of text is a pair.
    (tmp_path / "table").write_text(f"Quelle{separator}source\n", encoding="utf-8")
    assert collected(own(train=[part], dev=[part], test=[part]), ("de", "en"))["train"] == [("Quelle", "source")]


def test_a_long_cell_is_read_and_one_without_end_is_refused_as_long(tmp_path):
    long = "Wort " * 40_000
    assert csv_pairs(tmp_path, f"eins,one\n{long},word\n")[1] == (long.strip(), "word")
    with pytest.raises(ArtifactError, match=r"x.csv, line .*characters.*never closed"):
        csv_pairs(tmp_path, f'eins,one\n"{long * 90},word\n')


@pytest.mark.parametrize(
    "change, message",
    [
        ({"split": {"method": "every-nth", "every": 3}}, "needs parts under test"),
        (
            {"split": {"method": "connected-groups", "dev": 5, "test": 5, "key_language": "fr"}},
            "split.key_language is 'fr'; allowed: de, en",
        ),
        ({}, "split: missing"),
        ({"train": [{"texts": {"de": "a", "en": "a"}}]}, "a text for each language"),
        ({"train": [{"texts": {"de": "a", "en": "b"}, "translator": "A"}]}, "translator is 'A'"),
        ({"train": ["a.txt"]}, "train.0. is 'a.txt'; allowed: a section"),
        ({"train": [{"table": "a", "columns": {"de": 0}, "quoted": True, "separator": "||"}]}, "separator is"),
    ],
)
def test_definitions_that_cannot_work_are_refused(change, message):
    definition = {"name": "own", "languages": ["de", "en"], "train": [{"texts": {"de": "a", "en": "b"}}]}
    with pytest.raises(ConfigError, match=message):
        parse(DatasetConfig, definition | change)


# Places


@pytest.mark.parametrize("markup", ["none", "ted"])
def test_pairs_know_their_lines_and_drops_are_counted(tmp_path, monkeypatch, markup):
    monkeypatch.chdir(tmp_path)
    head = "<title>T</title>\n" if markup == "ted" else ""
    Path("a.de").write_text(f"{head}eins\nzwei\n")
    Path("a.en").write_text(f"{head}one\ntwo\n")
    Path("b.tsv").write_text("x\tdrei\tthree\t0.1\nx\tvier\tfour\t0.9\nx\tfünf\tfive\tnan\nx\tsechs\tsix\t0.5\n")
    texts = {"texts": {"de": "a.de", "en": "a.en"}, "markup": markup}
    table = {"table": "b.tsv", "columns": {"de": 1, "en": 2}, "score_column": 3, "minimum_score": 0.5}
    settings = own(train=[texts], dev=[texts, table], test=[table])
    with RawCorpus(settings, ("de", "en"), lambda name: name) as corpus:
        places = {name: [(pair.names, pair.number) for pair in pairs] for name, pairs in corpus.parts()}
        dropped = {name: dict(counts) for name, counts in corpus.dropped.items()}
    first, sides, both = 2 if markup == "ted" else 1, ("a.de", "a.en"), ("b.tsv", "b.tsv")
    assert places["dev"] == [(sides, first), (sides, first + 1), (both, 2), (both, 4)]
    tags = {"markup": 1} if markup == "ted" else {}
    assert dropped == {"train": tags, "dev": tags | {"minimum_score": 2}, "test": {"minimum_score": 2}}


def generated(corpus, languages, monkeypatch) -> dict[str, list[tuple[str, str]]]:
    """The pairs of a dataset whose generator gives `corpus`."""
    monkeypatch.setattr("workflow_src.data.toy.grammar.generate", lambda settings: corpus)
    return collected(own(kind="generated", generator={"name": "toy"}), languages)


def test_generated_texts_are_stripped_lines_of_the_languages_asked_for(monkeypatch):
    corpus = {split: [(" eins\n", "one two"), ["zwei\x85drei", ""]] for split in ("train", "dev", "test")}
    pairs = generated(corpus, ("en", "de"), monkeypatch)
    assert pairs == {split: [("one two", "eins"), ("", "zwei\x85drei")] for split in corpus}


NO_PAIRS_OF_LINES = (("eins\nzwei", "one"), ("eins", "one\r\ntwo"), ("a", "b", "c"), "ab", (1, 2), None, {"de": "a"})


@pytest.mark.parametrize(
    "corpus",
    [
        None,
        [("eins", "one")],
        {"train": None, "dev": [("zwei", "two")], "test": [("drei", "three")]},
        *(
            {"train": [("eins", "one"), pair], "dev": [("zwei", "two")], "test": [("drei", "three")]}
            for pair in NO_PAIRS_OF_LINES
        ),
    ],
)
@pytest.mark.parametrize("languages", [("de", "en"), ("en", "de")])
def test_a_generator_that_gives_no_pairs_of_lines_is_named(corpus, languages, monkeypatch):
    with pytest.raises(DeclarationError) as refused:
        generated(corpus, languages, monkeypatch)
    assert refused.value.subject == 'generator "toy"'
