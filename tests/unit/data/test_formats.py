"""What a file is when it is not a text in UTF-8."""

import io
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow_src.data.formats import other_format
from workflow_src.data.lines import read_lines
from workflow_src.data.unpack import Archives, zstd
from workflow_src.errors import ArtifactError, InputError

TMX = '<?xml version="1.0" encoding="{}"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<!-- made by x -->\n<tmx version="1.4">'


def office(member: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("[Content_Types].xml", "<x/>")
        archive.writestr(member, "<x/>")
    return buffer.getvalue()


FORMATS = [
    ("a.xlsx", office("xl/workbook.xml"), "an Excel workbook", "save it as CSV"),
    ("a.docx", office("word/document.xml"), "a Word document", "plain text with one sentence a line"),
    ("a.pdf", b"%PDF-1.7\n%\xe2\xe3", "a PDF document", "plain text"),
    ("a.parquet", b"PAR1\x15\x04", "a Parquet table", "tab-separated"),
    ("a.rar", b"Rar!\x1a\x07\1\0", "a RAR archive", "unpack it"),
    ("a.lz4", b"\x04\x22\x4d\x18dd", "compressed with LZ4", "unpack it"),
    ("a.tmx", TMX.format("UTF-8").encode(), r"a translation memory \(TMX\)", "as tmx in a part"),
    ("a.tmx", TMX.format("UTF-16").encode("utf-16"), r"a translation memory \(TMX\)", "as tmx in a part"),
    ("a.xlf", b"\xef\xbb\xbf<xliff version='1.2'>", "an XLIFF file", "line-aligned texts"),
    ("a.txt", b"<?xml version='1.0'?>\n<!DOCTYPE html PUBLIC>\n<html>", "a web page", "save the file itself"),
    ("a.txt", b"<html lang='en'>\n<head>\n<meta charset='utf-8'>", "a web page", "save the file itself"),
    ("a.gz", b"<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code></Error>", "a server's error", "save the file"),
    ("a.de", b"404: Not Found", "a server's error", "save the file itself"),
    ("a.de", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "a Git LFS pointer", "lfs pull"),
    ("a.de", b"/annex/objects/SHA256E-s12--ab.de\n", "a git-annex pointer", "git annex get"),
    ("a.jsonl", b'{"translation": {"de": "Ja."}}\n', "JSON", "as records in a part"),
    ("a.txt", "Grüße\n".encode("utf-16"), "text in UTF-16, not in UTF-8", "iconv -f UTF-16 -t UTF-8"),
    ("a.txt", "Hello\n".encode("utf-32"), "text in UTF-32", "iconv"),
    ("a.txt", "Hello, world.\n".encode("utf-16-le"), "text in UTF-16-LE", "iconv -f UTF-16-LE"),
    ("a.txt", "Hello, world.\n".encode("utf-16-be"), "text in UTF-16-BE", "iconv -f UTF-16-BE"),
    ("a.ja", "今日は雨です。\n".encode("iso2022_jp"), "text in ISO-2022-JP", "iconv -f ISO-2022-JP"),
]


@pytest.mark.parametrize(("name", "content", "kind", "advice"), FORMATS)
def test_other_formats_are_named_with_what_to_do(tmp_path, name, content, kind, advice):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=rf"{name} is {kind}.*{advice}") as failure, Archives() as archives:
        with archives.open(path):
            pass
    assert "\n" not in str(failure.value) and "damaged" not in str(failure.value)
    if not name.endswith(".jsonl"):
        # A user's text for `continuum translate` is refused in the same words.
        with pytest.raises(ArtifactError) as own:
            list(read_lines(path, own=True))
        assert str(own.value) == str(failure.value)


@pytest.mark.parametrize("name", ["a.de", "a.csv", "a.jsonl"])
def test_lines_that_end_in_a_carriage_return_are_refused_and_not_joined(tmp_path, name):
    """As spreadsheets of old Macintosh computers write them. A single one at the end of a text is no line end."""
    assert "end in CR alone" in other_format(b"eins\rzwei\r", tmp_path / name).problem
    # Compressed bytes may hold any.
    assert other_format(b"\x1f\x8b\x08\x00\r\r", name) is None
    assert other_format(b"eins\r", name) is None and other_format(b"eins\r\nzwei\r\n", name) is None


def test_archives_of_other_kinds_are_named_and_not_called_damaged(tmp_path):
    path = tmp_path / "a.7z"
    path.write_bytes(b"7z\xbc\xaf\x27\x1c\0\4")
    with pytest.raises(ArtifactError, match=r"a.7z is a 7-Zip archive"):
        with Archives() as archives, archives.open(path, "text.de"):
            pass


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60))
def test_texts_in_utf8_are_no_other_format(text):
    text = text.replace("\r", "\r\n").replace("\x1b$", "$")
    if not text.startswith(("%PDF-", "{\\rtf", "PAR1", "ARROW1", "LZIP", "%!PS-Adobe")):
        assert other_format(text.encode(), "text.de") is None


def test_comments_before_the_root_are_passed_in_one_go():
    """A pattern that tries every way to divide them would take minutes."""
    comments = b"<?xml version='1.0'?>\n" + b"<!-- x -->\n" * 60
    assert other_format(comments + b"<mteval>", "text.xml") is None
    assert other_format(comments + b"<tmx version='1.4'>", "text.tmx").problem.startswith(
        "is a translation memory (TMX)"
    )


def test_text_with_tags_or_braces_is_text():
    for text in (
        "404: Not Found is what it says.\n",
        "<html><head>Kopf</head></html>\n",
        "<html><head/><body><p>Open</p></body></html>\n",
        '{"a": 1}\n',
        "<tmxx>\n",
        "BZh91 is a postcode\n",
    ):
        assert other_format(text.encode(), "text.de") is None


def test_what_lines_cannot_be_read_of_is_named_too(tmp_path):
    path = tmp_path / "input.xlsx"
    path.write_bytes(office("xl/workbook.xml") + b"\xff")
    with pytest.raises(InputError, match=r"input.xlsx is an Excel workbook"):
        list(read_lines(path))
    path = tmp_path / "input.de.xz"
    path.write_bytes(b"\xfd7zXZ\0\xff")
    with pytest.raises(InputError, match=r"input.de.xz is compressed with xz; unpack it"):
        list(read_lines(path))


def test_frames_to_skip_are_part_of_a_text_in_zstandard(tmp_path):
    first, second = (zstd.compress(line) for line in (b"Der Hund.\n", b"Die Katze.\n"))
    # As pzstd writes them: before each frame one of 4 bytes, which holds the size of the next.
    skipped = [b"\x50\x2a\x4d\x18\x04\0\0\0" + len(frame).to_bytes(4, "little") for frame in (first, second)]
    path = tmp_path / "text.de.zst"
    path.write_bytes(skipped[0] + first + skipped[1] + second)
    with Archives() as archives, archives.open(path) as stream:
        assert list(stream) == [b"Der Hund.\n", b"Die Katze.\n"]
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo("text.de")
        member.size = 6
        archive.addfile(member, io.BytesIO(b"hallo\n"))
    frame = zstd.compress(tar.getvalue())
    path = tmp_path / "texts.tar.zst"
    path.write_bytes(b"\x5f\x2a\x4d\x18\x01\0\0\0x" + frame)
    with Archives() as archives, archives.open(path, "text.de") as stream:
        assert stream.read() == b"hallo\n"
