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

from workflow_src.config.datasets import DatasetConfig, NormalisationConfig, TablePart
from workflow_src.config.files import CONFIG_FOLDER, read_yaml
from workflow_src.data.corpus import RawCorpus
from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.spec import parse

TRAIN = [(f"deutsch {n}", f"english {n}") for n in range(1, 101)]


def dataset(name: str) -> DatasetConfig:
    return parse(DatasetConfig, read_yaml(CONFIG_FOLDER / "datasets" / f"{name}.yaml"), name)


def own(**more) -> DatasetConfig:
    return DatasetConfig.model_validate({"name": "own", "languages": ["de", "en"]} | more)


def collected(settings: DatasetConfig, languages, files=None, folder=None) -> dict[str, list[tuple[str, str]]]:
    with RawCorpus(settings, languages, lambda name: (files or {})[name], folder) as corpus:
        return {name: [(pair.first, pair.second) for pair in pairs] for name, pairs in corpus.parts()}


def tar(path: Path, members: dict[str, str | bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            content = content if isinstance(content, bytes) else content.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def tagged(lines: list[str], language: str) -> str:
    head = f"<url>http://x</url>\n<keywords>talks, {language}</keywords>\n<speaker>A</speaker>\n<title>T</title>\n"
    return head + "".join(f" {line} \n" for line in lines) + "<reviewer></reviewer>\n<translator>B</translator>\n"


def sgm(lines: list[str], kind: str = "srcset") -> str:
    body = "\n".join(f'<seg id="{n}"> {line} </seg>' for n, line in enumerate(lines, 1))
    return f'<{kind} setid="x" srclang="any">\n<doc docid="1"><title>Title</title>\n<p>\n{body}\n</p></doc></{kind}>\n'


def sides(pairs, first="de", second="en"):
    return {first: [a for a, _ in pairs], second: [b for _, b in pairs]}


def plain(lines):
    return "".join(line + "\n" for line in lines)


def numbered(name: str, count: int = 3):
    return [(f"{name} quelle {n}", f"{name} target {n}") for n in range(count)]


# The shipped definitions


def test_iwslt16_reads_an_archive_inside_an_archive(tmp_path):
    members = {f"de-en/train.tags.de-en.{code}": tagged(text, code) for code, text in sides(TRAIN).items()}
    for year in ("dev2010", "tst2013", "tst2014"):
        for code, text in sides(numbered(year)).items():
            members[f"de-en/IWSLT16.TED.{year}.de-en.{code}.xml"] = "<?xml version='1.0'?>\n" + sgm(text, "mteval")
    inner = tar(tmp_path / "inner.tgz", members).read_bytes()
    outer = tar(
        tmp_path / "2016-01.tgz", {"2016-01/texts/de/en/de-en.tgz": inner, "2016-01/texts/fr/en/fr-en.tgz": b"x"}
    )
    splits = collected(dataset("iwslt16"), ("de", "en"), {"talks": outer})
    assert splits == {"train": TRAIN, "dev": numbered("tst2013"), "test": numbered("tst2014")}
    turned = collected(dataset("iwslt16"), ("en", "de"), {"talks": outer})
    assert turned["dev"] == [(b, a) for a, b in numbered("tst2013")]


def test_iwslt14_has_five_sets_for_test(tmp_path):
    members = {f"de-en/train.tags.de-en.{code}": tagged(text, code) for code, text in sides(TRAIN).items()}
    names = ["TED.dev2010", "TED.tst2010", "TED.tst2011", "TED.tst2012", "TEDX.dev2012"]
    for name in names:
        for code, text in sides(numbered(name)).items():
            members[f"de-en/IWSLT14.{name}.de-en.{code}.xml"] = sgm(text)
    splits = collected(dataset("iwslt14"), ("de", "en"), {"talks": tar(tmp_path / "de-en.tgz", members)})
    assert splits["train"] == TRAIN and "dev" not in splits
    assert splits["test"] == [pair for name in names for pair in numbered(name)]


def test_wmt14_joins_three_corpora(tmp_path):
    layouts = {
        "europarl": "training/europarl-v7.{}.{}",
        "commoncrawl": "commoncrawl.{}.{}",
        "news-commentary": "training/news-commentary-v9.{}.{}",
    }
    files = {}
    for key, layout in layouts.items():
        members = {layout.format("de-en", code): plain(text) for code, text in sides(numbered(key), "en", "de").items()}
        members[layout.format("cs-en", "cs")] = "jiný\n"
        files[key] = tar(tmp_path / f"{key}.tgz", members)
    dev, test = sides(numbered("dev"), "en", "de"), sides(numbered("test"), "en", "de")
    files["dev"] = tar(
        tmp_path / "dev.tgz",
        {
            "dev/newstest2013-src.en.sgm": sgm(dev["en"]),
            "dev/newstest2013-ref.de.sgm": sgm(dev["de"], "refset"),
            "dev/newstest2013-src.de.sgm": sgm(["other"]),
            "dev/newstest2013-ref.en.sgm": sgm(["other"]),
        },
    )
    files["test"] = tar(
        tmp_path / "test-full.tgz",
        {
            "test-full/newstest2014-deen-src.en.sgm": sgm(test["en"]),
            "test-full/newstest2014-deen-ref.de.sgm": sgm(test["de"]),
        },
    )
    splits = collected(dataset("wmt14"), ("en", "de"), files)
    assert splits["train"] == [pair for key in layouts for pair in numbered(key)]
    assert (splits["dev"], splits["test"]) == (numbered("dev"), numbered("test"))


def test_wmt16_reads_tar_and_zip(tmp_path):
    europarl = sides(numbered("europarl"), "ro", "en")
    files = {"europarl": tar(tmp_path / "ro-en.tgz", {f"europarl-v8.ro-en.{c}": plain(t) for c, t in europarl.items()})}
    files["setimes"] = tmp_path / "en-ro.txt.zip"
    with zipfile.ZipFile(files["setimes"], "w") as archive:
        archive.writestr("README", "about")
        for code, text in sides(numbered("setimes"), "ro", "en").items():
            archive.writestr(f"SETIMES.en-ro.{code}", plain(text))
    for split, year in (("dev", "newsdev2016"), ("test", "newstest2016")):
        text = sides(numbered(split), "ro", "en")
        members = {
            f"{split}/{year}-roen-src.ro.sgm": sgm(text["ro"]),
            f"{split}/{year}-roen-ref.en.sgm": sgm(text["en"]),
        }
        files[split] = tar(tmp_path / f"{split}.tgz", members)
    splits = collected(dataset("wmt16"), ("ro", "en"), files)
    assert splits["train"] == numbered("europarl") + numbered("setimes")
    assert (splits["dev"], splits["test"]) == (numbered("dev"), numbered("test"))


def aspec(folder: Path) -> None:
    for part in ("train-1", "train-2", "train-3"):
        (folder / "train").mkdir(exist_ok=True)
        rows = [f"0.9 ||| A-{n} ||| {n} ||| {ja} ||| {en}" for n, (ja, en) in enumerate(numbered(part))]
        (folder / "train" / f"{part}.txt").write_text(plain(rows))
    for split in ("dev", "test"):
        (folder / split).mkdir()
        rows = [f"A-{n} ||| {n} ||| {ja} ||| {en}" for n, (ja, en) in enumerate(numbered(split))]
        (folder / split / f"{split}.txt").write_text(plain(rows))


def test_aspec_reads_the_users_folder(tmp_path):
    aspec(tmp_path)
    splits = collected(dataset("aspec"), ("ja", "en"), folder=str(tmp_path))
    assert splits["train"] == numbered("train-1") + numbered("train-2") + numbered("train-3")
    assert (splits["dev"], splits["test"]) == (numbered("dev"), numbered("test"))
    (tmp_path / "train/train-2.txt").unlink()
    with pytest.raises(ArtifactError, match=r"^train/train-2.txt of dataset aspec is missing .*Apply for"):
        collected(dataset("aspec"), ("ja", "en"), folder=str(tmp_path))


def test_a_licensed_corpus_without_its_folder_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"^recipe.folder: dataset aspec .*Apply for ASPEC"):
        collected(dataset("aspec"), ("ja", "en"))
    with pytest.raises(ConfigError, match=r"^recipe.folder is .*nowhere.*Download the"):
        collected(dataset("wmt20-ja-en"), ("ja", "en"), folder=str(tmp_path / "nowhere"))


def test_wmt20_filters_by_score_and_joins_the_parts_of_a_folder(tmp_path):
    rows = [f"web\t{score}\t{en}\t{ja}" for score, (ja, en) in zip((0.9, 0.3, 0.6), numbered("crawl"), strict=True)]
    (tmp_path / "en-ja.bicleaner05.txt").write_text(plain(rows))
    tables = {
        "news-commentary-v15.en-ja": "{en}\t{ja}",
        "wikititles-v2.ja-en": "{ja}\t{en}",
        "WikiMatrix.v1.en-ja.langid": "1.1\t{en}\t{ja}\ten\tja",
    }
    for name, row in tables.items():
        text = plain([row.format(ja=ja, en=en) for ja, en in numbered(name)])
        (tmp_path / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    tar(tmp_path / "raw.tar.gz", {"raw/raw": plain([f"{en}\t{ja}" for ja, en in numbered("jesc")])})
    kyoto = sides(numbered("kftt"), "ja", "en")
    tar(
        tmp_path / "kftt-data-1.0.tar.gz",
        {f"kftt-data-1.0/data/orig/kyoto-train.{c}": plain(t) for c, t in kyoto.items()},
    )
    files = {}
    for split, stem in (("dev", "dev/newsdev2020"), ("test", "sgm/newstest2020")):
        text = sides(numbered(split), "ja", "en")
        members = {f"{stem}-jaen-src.ja.sgm": sgm(text["ja"]), f"{stem}-jaen-ref.en.sgm": sgm(text["en"])}
        files[split] = tar(tmp_path / f"{split}.tgz", members)
    splits = collected(dataset("wmt20-ja-en"), ("ja", "en"), files, str(tmp_path))
    crawl = numbered("crawl")
    assert splits["train"] == [crawl[0], crawl[2]] + [p for n in [*tables, "jesc", "kftt"] for p in numbered(n)]
    assert (splits["dev"], splits["test"]) == (numbered("dev"), numbered("test"))


def test_multi30k_has_three_languages_in_any_direction(tmp_path):
    files = {}
    for split in ("train", "dev", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"):
        for code in ("de", "en", "fr"):
            files[f"{split}.{code}"] = tmp_path / f"{split}.{code}.gz"
            files[f"{split}.{code}"].write_bytes(gzip.compress(f"{split} {code} 1\n{split} {code} 2\n".encode()))
    splits = collected(dataset("multi30k"), ("fr", "de"), files)
    assert list(splits) == ["train", "dev", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco"]
    for name in list(splits)[2:]:
        assert splits[name] == [(f"{name} fr 1", f"{name} de 1"), (f"{name} fr 2", f"{name} de 2")]
    with pytest.raises(ConfigError, match="language of dataset multi30k is 'ro'; allowed: de, en, fr"):
        collected(dataset("multi30k"), ("ro", "en"), files)


@pytest.mark.parametrize("path", sorted((CONFIG_FOLDER / "datasets").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_definition_is_valid_and_says_whose_it_is(path):
    settings = dataset(path.stem)
    assert settings.name == path.stem
    assert settings.licence != "unknown"
    parse(NormalisationConfig, settings.normalisation, "normalisation")
    used = {
        text.split("!")[0]
        for part in itertools.chain(*settings.parts.values())
        for text in ([part.table] if isinstance(part, TablePart) else itertools.chain(*part.texts.values()))
    }
    assert set(settings.files) <= used


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
    settings = own(
        train=[
            part,
            {"table": "b.tsv", "columns": {"en": 1, "de": 2}},
            {"texts": {"de": "c.zip!c.de", "en": "c.zip!c.en"}},
        ],
        dev=[part],
        test=[part],
    )
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


def test_empty_texts_are_named(tmp_path):
    assert f"{tmp_path}/x.en is empty" in failing(tmp_path, b"a\n", b"")


def test_tables_that_do_not_fit_are_named(tmp_path):
    table = {"table": f"{tmp_path}/x.de", "columns": {"de": 0, "en": 1}}
    assert "x.de has 1 columns in line 1, but 2 are needed" in failing(tmp_path, b"a\nc\n", b"", **table)
    # A tab inside of a sentence would make another pair of it.
    for odd in (b"c", b"c\td\te", b"\tc\td"):
        message = failing(tmp_path, b"a\tb\n" + odd + b"\n", b"", **table)
        assert f"x.de, line 2, has {odd.count(9) + 1} columns" in message
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


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('a,b\n"c" d,e\n', 2, "expected after"),
        ('a,b\n"c,d\ne,f\n', 3, "unexpected end"),
        ('a,b\n"c,d\ne",f\ng,h\n', None, ""),
        ('a,b\n"c,d\ne,f\n"g",h\n', 4, "expected after"),
        ('a,b\nc,d\n"e,f\ng"\n', 4, "1 columns, .* 2"),
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
@pytest.mark.parametrize("head", ["de{}en", "German{}ENGLISH", "source{}target", "src{} trg"])
def test_blank_lines_and_names_of_columns_are_no_pairs_and_counted(tmp_path, separator, head):
    text = f"{head}\n\neins{{}}one\n  \nzwei{{}}two\n\n\nde{{}}en\n".replace("{}", separator)
    (tmp_path / "table").write_text(text, encoding="utf-8")
    part = {"table": f"{tmp_path}/table", "columns": {"de": 0, "en": 1}, "separator": separator}
    with RawCorpus(own(train=[part], dev=[part], test=[part]), ("de", "en"), Path) as corpus:
        pairs = [(pair[0], pair[1], pair.number) for pair in corpus.parts_of("train")]
    assert pairs == [("eins", "one", 3), ("zwei", "two", 5), ("de", "en", 8)]
    assert corpus.dropped["train"] == {"blank_line": 4, "header": 1}


def test_a_first_row_of_text_is_a_pair(tmp_path):
    for row in ("German\tspoken", "Quelle\tsource", "de\tfrom"):
        (tmp_path / "table").write_text(row + "\n", encoding="utf-8")
        part = {"table": f"{tmp_path}/table", "columns": {"de": 0, "en": 1}}
        assert collected(own(train=[part], dev=[part], test=[part]), ("de", "en"))["train"] == [tuple(row.split("\t"))]


def test_a_long_cell_is_read_and_one_without_end_is_refused_as_long(tmp_path):
    long = "Wort " * 40_000
    assert csv_pairs(tmp_path, f"eins,one\n{long},word\n")[1] == (long.strip(), "word")
    with pytest.raises(ArtifactError, match=r"x.csv, line .*characters.*never closed"):
        csv_pairs(tmp_path, f'eins,one\n"{long * 90},word\n')


def test_missing_files_and_languages_are_named(tmp_path):
    assert re.match("no.de .*exist", failing(tmp_path, b"", b"", texts={"de": "no.de", "en": "no.en"}))
    assert "language of train[0] is 'en'; allowed: de" in failing(tmp_path, b"", b"", texts={"de": "x"})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"split": {"method": "every-nth"}}, "split.every: missing"),
        ({"split": {"method": "every-nth", "every": 3}}, "needs parts under test"),
        ({"split": {"method": "every-nth", "every": 3, "dev": 5}}, "split.dev: no such setting"),
        ({"split": {"method": "by-hand"}}, "split.method is 'by-hand'; allowed: connected-groups, every-nth"),
        ({"split": {"method": "connected-groups", "dev": 5}}, "split.test: missing"),
        (
            {"split": {"method": "connected-groups", "dev": 5, "test": 5, "key_language": "fr"}},
            "split.key_language is 'fr'; allowed: de, en",
        ),
        ({}, "split: missing"),
        ({"train": [{"texts": {"de": "a", "en": "a"}}]}, "a text for each language"),
        ({"train": [{"texts": {"de": "a", "en": "b"}, "translator": "A"}]}, "translator is 'A'"),
        (
            {"train": [{"texts": {"de": "a", "en": "b"}, "header": True}]},
            "train.0..header is True: a part with texts has",
        ),
        ({"train": [{"texts": {"de": "a", "en": "b"}, "table": "c"}]}, "train.0..table is 'c': texts is set too"),
        ({"train": [{"tabel": "a", "columns": {"de": 0}}]}, "did you mean .table"),
        ({"train": [{"table": "a"}]}, "train.0..columns: missing"),
        ({"train": [{"table": "a", "columns": {}}]}, "train.0..columns"),
        ({"train": [{}]}, "train.0..texts: missing"),
        ({"train": ["a.txt"]}, "train.0. is 'a.txt'; allowed: a section"),
        (
            {"train": [{"table": "a", "columns": {"de": 0}, "markup": "ted"}]},
            "train.0..markup is 'ted': a part with table has",
        ),
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
    first = 2 if markup == "ted" else 1
    assert places["dev"] == [
        (("a.de", "a.en"), first),
        (("a.de", "a.en"), first + 1),
        (("b.tsv", "b.tsv"), 2),
        (("b.tsv", "b.tsv"), 4),
    ]
    tags = {"markup": 1} if markup == "ted" else {}
    assert dropped == {"train": tags, "dev": tags | {"minimum_score": 2}, "test": {"minimum_score": 2}}
