"""Formats other than UTF-8 text, by the first bytes of a file or its name, with the remedy for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from workflow_src.errors import ArtifactError

ZIP = b"PK\x03\x04"
TAR_MAGIC_AT = 257
# Compressions that can be undone: name -> first bytes. bzip2 says "BZh" and a digit, and then begins a block or ends.
COMPRESSIONS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
    # A frame of data, or one to skip, as pzstd writes before each.
    "Zstandard": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
}
# What a reader expects: lines of text, JSON lines, or a translation memory.
Contents = Literal["text", "JSON", "TMX"]
# Bytes that suffice to recognise a format.
START = 4096

_TABLE = "write its columns as a tab-separated text and read that as a table"
_DOCUMENT = "save it as plain text with one sentence a line"
_UNPACK = "unpack it and give the text"
_FETCH = "get the file itself, as with `git lfs pull` or `git annex get`"
_AGAIN = "open its address in a browser, and save the file itself"
_LANGUAGES = "write its languages as line-aligned texts or as a tab-separated table"
_MEMORY = "give it as tmx in a part of a dataset"
_RECORDS = "give it as records in a part of a dataset, with a JSON object on each line"
# First bytes -> the format, and the remedy.
_SIGNATURES = (
    (b"%PDF-", "a PDF document", _DOCUMENT),
    (b"{\\rtf", "a document in Rich Text Format", _DOCUMENT),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a file of Microsoft Office (.xls, .doc)", "save it as plain or CSV text"),
    (b"PAR1", "a Parquet table", _TABLE),
    (b"ARROW1", "an Arrow table", _TABLE),
    (b"Obj\x01", "an Avro table", _TABLE),
    (b"\x89HDF\r\n", "an HDF5 file", _TABLE),
    (b"\x93NUMPY", "a NumPy array", _TABLE),
    (b"SQLite format 3\0", "an SQLite database", _TABLE),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (b"\x04\x22\x4d\x18", "compressed with LZ4", _UNPACK),
    (b"\xff\x06\0\0sNaPpY", "compressed with Snappy", _UNPACK),
    (b"LZIP", "compressed with lzip", _UNPACK),
    (b"\x1f\x9d", "compressed with compress (.Z)", _UNPACK),
    (b"PK\x05\x06", "an empty zip archive", "pack or copy it again"),
    (b"%!PS-Adobe", "a PostScript document", _DOCUMENT),
    (b"version https://git-lfs.github.com/spec/", "a Git LFS pointer in place of a file", _FETCH),
    (b"/annex/objects/", "a git-annex pointer in place of a file", _FETCH),
)
# Zip archives that are documents, by their last suffix.
_DOCUMENTS = {
    "xlsx": ("an Excel workbook", "save it as CSV or tab-separated text and read that as a table"),
    "xlsm": ("an Excel workbook", "save it as CSV or tab-separated text and read that as a table"),
    "ods": ("an OpenDocument spreadsheet", "save it as CSV or tab-separated text and read that as a table"),
    "docx": ("a Word document", _DOCUMENT),
    "odt": ("an OpenDocument text", _DOCUMENT),
    "pptx": ("a PowerPoint presentation", _DOCUMENT),
    "epub": ("an electronic book (EPUB)", _DOCUMENT),
}
# How ISO-2022-JP, which has bytes of ASCII alone, begins Japanese characters.
_SHIFT_TO_JAPANESE = re.compile(rb"\x1b\$[@B]")
# Texts that are not lines of sentences.
_JSON = re.compile(r"\.(json|jsonl|ndjson)(\.(gz|bz2|xz|zst))?$", re.IGNORECASE)
_BEFORE_TYPE = r"\s*(?:<\?[^>]*>\s*|<!--(?:(?!-->).)*-->\s*)*"
_BEFORE_ROOT = rf"{_BEFORE_TYPE}(?:<!DOCTYPE[^>]*>{_BEFORE_TYPE})?"
_TMX = "a translation memory (TMX)"
_HEAD = r"<html[^>]*>\s*<head[^>]*>\s*<(?:meta|title|link|script|style)[\s>]"
_ROOTS = (
    (re.compile(rf"{_BEFORE_ROOT}<tmx[\s>]", re.IGNORECASE | re.DOTALL), _TMX, _MEMORY),
    (re.compile(rf"{_BEFORE_ROOT}<xliff[\s>]", re.IGNORECASE | re.DOTALL), "an XLIFF file", _LANGUAGES),
    (re.compile(rf"{_BEFORE_TYPE}(?:<!DOCTYPE html|{_HEAD})", re.IGNORECASE | re.DOTALL), "a web page (HTML)", _AGAIN),
    # What stores of files answer in place of one.
    (re.compile(rf"{_BEFORE_TYPE}<Error>\s*<Code>", re.DOTALL), "a server's error in place of a file", _AGAIN),
    (re.compile(r"\s*404: Not Found\s*\Z"), "a server's error in place of a file", _AGAIN),
)


def other_format(start: bytes, path: str | Path, contents: Contents = "text") -> ArtifactError | None:
    """The error of a file in another format by its first bytes; None for a text that may be in UTF-8, and for a
    translation memory, in any encoding, where that is expected.

    `start` are its first bytes (START of them suffice), decompressed where a reader can do that. zip and tar archives
    are None too, but for documents that are zips.
    """

    def unreadable(kind: str, advice: str) -> ArtifactError:
        return ArtifactError(path, f"is {kind}, which cannot be read here", advice)

    start, name = start[:START], str(path)
    for signature, kind, advice in _SIGNATURES:
        if start.startswith(signature):
            return unreadable(kind, advice)
    if start.startswith(ZIP):
        suffix = name.rpartition(".")[2].lower()
        return unreadable(*_DOCUMENTS[suffix]) if suffix in _DOCUMENTS else None
    encoding = _wide_encoding(start)
    text = start.decode(encoding or "utf-8-sig", errors="replace")
    for root, kind, advice in _ROOTS:
        if root.match(text) and not (contents == "TMX" and kind == _TMX):
            return unreadable(kind, advice)
    if encoding is not None and contents != "TMX":
        advice = f"convert it, as by `iconv -f {encoding.upper()} -t UTF-8`"
        return ArtifactError(path, f"is text in {encoding.upper()}, not in UTF-8", advice)
    if _SHIFT_TO_JAPANESE.search(start):
        advice = "convert it, as by `iconv -f ISO-2022-JP -t UTF-8`"
        return ArtifactError(path, "is text in ISO-2022-JP, not in UTF-8", advice)
    is_text = contents != "TMX" and b"\0" not in start and compression(start) is None
    if is_text and start.count(b"\r") > 1 and b"\n" not in start:
        advice = r"convert them, as by `tr '\r' '\n'`"
        return ArtifactError(path, "has lines that end in CR alone, which is no line end here", advice)
    return None


def json_format(path: str | Path) -> ArtifactError | None:
    """The error of a file in JSON, by its name: its first bytes may be a text's."""
    return ArtifactError(path, "is JSON, which is no text", _RECORDS) if _JSON.search(str(path)) else None


def compression(start: bytes) -> str | None:
    """The compression of a file by its first bytes, as named in COMPRESSIONS; None without one."""
    return next((name for name, signature in COMPRESSIONS.items() if signature.match(start)), None)


def _wide_encoding(start: bytes) -> str | None:
    """utf-16 or utf-32 where a byte order mark says so, or where every other byte is null, as in Latin script."""
    if start.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "utf-32"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    # A tar archive has nulls too, but at odd and even places.
    even, odd = start[::2], start[1::2]
    for nulls, letters, encoding in ((odd, even, "utf-16-le"), (even, odd, "utf-16-be")):
        if len(nulls) > 1 and nulls.count(0) > 0.5 * len(nulls) and not letters.count(0):
            return encoding
    return None
