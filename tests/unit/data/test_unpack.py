"""Archives: what is read from them, and which are refused."""

import bz2
import gzip
import io
import lzma
import tarfile
import tempfile
import tracemalloc
import zipfile

import pytest
from refusals import fields_of

from workflow_src.data import unpack
from workflow_src.data.unpack import DAMAGED, Archives, zstd
from workflow_src.errors import ArtifactError


def tar_bytes(members: dict[str, bytes], mode: str = "w:gz", links: dict[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()


def zip_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def read(path, *members: str) -> bytes:
    with Archives() as archives, archives.open(path, *members) as stream:
        return stream.read()


def refused(path, *members: str, **fields) -> None:
    """Check that reading fails with these fields, and with the path of the innermost archive."""
    with pytest.raises(ArtifactError) as error:
        read(path, *members)
    fields = {"path": "!".join([str(path), *members[:-1]])} | fields
    assert fields_of(error.value, fields) == fields


TEXT = b"eins\nzwei\n"
COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda text: zstd.compress(text, options={zstd.CompressionParameter.checksum_flag: 1}),
}


def tar_zst(members: dict[str, bytes]) -> bytes:
    return zstd.compress(tar_bytes(members, "w"))


PLACES = {
    "text": (TEXT, []),
    "tar": (tar_bytes({"a/text.de": TEXT}, "w"), ["a/text.de"]),
    "tbz2": (tar_bytes({"./a/text.de": TEXT}, "w:bz2"), ["a/text.de"]),
    "suffix in tgz": (tar_bytes({"top/a/text.de": TEXT, "top/b/text.de": b"x"}), ["a/text.de"]),
    "gz in tgz": (tar_bytes({"text.de.gz": gzip.compress(TEXT)}), ["text.de.gz"]),
    "zip": (zip_bytes({"deu.txt": TEXT, "_about.txt": b"x"}), ["deu.txt"]),
    "zip in tgz": (tar_bytes({"x/inner.zip": zip_bytes({"t.de": TEXT})}), ["inner.zip", "t.de"]),
    "tar in zip": (zip_bytes({"inner.tar": tar_bytes({"t.de": TEXT}, "w")}), ["inner.tar", "t.de"]),
    "tar.zst of two": (tar_zst({"a/other": b"x", "a/text.de": TEXT}), ["a/text.de"]),
    "tar.zst in zip": (zip_bytes({"inner.tar.zst": tar_zst({"t.de": TEXT})}), ["inner.tar.zst", "t.de"]),
    "xz in tgz": (tar_bytes({"text.de.xz": lzma.compress(TEXT)}), ["text.de.xz"]),
    "zst in zip": (zip_bytes({"text.de.zst": zstd.compress(TEXT)}), ["text.de.zst"]),
}


@pytest.mark.parametrize("content, members", PLACES.values(), ids=PLACES)
def test_reads_texts_wherever_they_are(tmp_path, content, members):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read(path, *members) == TEXT
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", COMPRESS)
@pytest.mark.parametrize("text", [b"", b"line\n" * 100_000], ids=["empty", "long"])
def test_compressed_texts_are_known_by_their_content(tmp_path, kind, text):
    compress, path = COMPRESS[kind], tmp_path / "file"
    path.write_bytes(compress(text))
    assert read(path) == text
    # As several processes or `cat` write them, and filled up with nulls as by tapes.
    path.write_bytes(compress(text) + compress(TEXT) + compress(text) + bytes(8))
    assert read(path) == text + TEXT + text


@pytest.mark.parametrize("kind", COMPRESS)
def test_compressed_texts_that_are_damaged_anywhere_are_named(tmp_path, kind):
    path, whole = tmp_path / "file", COMPRESS[kind](noise(50_000))
    second = whole.replace(whole[:4], b"junk")
    damages = {
        "cut": whole[:-20],
        "changed": whole[:20_000] + b"12345678" + whole[20_008:],
        "junk": whole + b"junk",
        "second cut": whole + whole[:-20],
        "second begins badly": whole + second,
    }
    for damage, content in damages.items():
        path.write_bytes(content)
        with pytest.raises(ArtifactError, match=r"file is truncated or damaged .*download or copy it again"):
            raise AssertionError(f"{damage}: {len(read(path))} bytes")


def test_what_needs_too_much_memory_to_unpack_says_so(tmp_path):
    path = tmp_path / "file.zst"
    options = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.content_size_flag: 0}
    compressor = zstd.ZstdCompressor(options=options)
    path.write_bytes(compressor.compress(TEXT) + compressor.flush())
    refused(path, mentions=("memory", "unpack it yourself"))
    path = tmp_path / "file.xz"
    path.write_bytes(lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30, "preset": 0}]))
    refused(path, mentions=("memory", "unpack it yourself"))


def test_copies_of_nested_archives_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    path = tmp_path / "file.tgz"
    path.write_bytes(tar_bytes({"in.tgz": tar_bytes({"deep.zip": zip_bytes({"a": TEXT})})}))
    assert read(path, "in.tgz", "deep.zip", "a") == TEXT
    refused(path, "in.tgz", "deep.zip", "b", problem='has no member "b"')
    assert list((tmp_path / "temporary").iterdir()) == []


def test_two_members_of_a_nested_archive_are_read_in_turn(tmp_path):
    left, right = (b"".join(b"%s %d\n" % (side, i) for i in range(20_000)) for side in (b"left", b"right"))
    path = tmp_path / "file.tgz"
    path.write_bytes(tar_bytes({"in.tgz": tar_bytes({"l": left, "r": right})}))
    with Archives() as archives, archives.open(path, "in.tgz", "l") as a, archives.open(path, "in.tgz", "r") as b:
        for number, (x, y) in enumerate(zip(a, b, strict=True)):
            assert (x, y) == (b"left %d\n" % number, b"right %d\n" % number)
    assert number == 19_999


@pytest.mark.parametrize("name", ["../evil", "/etc/evil"])
@pytest.mark.parametrize("make", [tar_bytes, zip_bytes])
def test_paths_of_members_are_names_alone(tmp_path, name, make):
    path = tmp_path / "archive"
    path.write_bytes(make({"good": TEXT, name: b"evil"}))
    assert read(path, "good") == TEXT
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("target", ["/etc/passwd", "../a/good"])
def test_links_are_never_followed(tmp_path, target):
    path = tmp_path / "archive.tgz"
    path.write_bytes(tar_bytes({"a/good": TEXT}, links={"a/link": target}))
    assert read(path, "a/good") == TEXT
    refused(path, "a/link", mentions=('"a/link"', "link"))
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, target)
    refused(path, "link", mentions=('"link"', "not a file"))


def packed(path, *entries: tuple[str, bytes, bytes]) -> None:
    """A tar of (name, type, content or link's target)."""
    with tarfile.open(path, "w") as archive:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            entry.devmajor = 1
            entry.devminor = 5
            entry.size, entry.linkname = (len(content), "") if kind == tarfile.REGTYPE else (0, content.decode())
            archive.addfile(entry, io.BytesIO(content) if entry.size else None)


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_what_is_no_file_is_never_opened_as_one(tmp_path, kind):
    path = tmp_path / "archive.tar"
    packed(path, ("good", tarfile.REGTYPE, TEXT), ("odd", kind, b"good"))
    assert read(path, "good") == TEXT
    refused(path, "odd", mentions=('"odd"', "not a file"))


FILE, FOLDER, LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE


@pytest.mark.parametrize(
    "first",
    [("./a/text", FILE, b"old"), ("a/text", FOLDER, b""), ("a/text", LINK, b"gone")],
    ids=["file, spelled otherwise", "folder", "dangling link"],
)
@pytest.mark.parametrize("member", ["a/text", "text"])
def test_of_two_members_of_one_name_none_is_read(tmp_path, first, member):
    path = tmp_path / "archive.tar"
    packed(path, ("good", FILE, TEXT), first, ("a/text", FILE, b"new"))
    refused(path, member, mentions=("2 members", '"a/text"'))
    # Another member's name is as clear as before.
    assert read(path, "good") == TEXT


def test_of_two_members_of_one_name_in_a_zip_none_is_read(tmp_path):
    path = tmp_path / "archive.zip"
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "w") as archive:
        for content in ("old", "new"):
            archive.writestr("text", content)
    refused(path, "text", mentions=("2 members", '"text"'))


def test_a_folder_may_come_twice(tmp_path):
    path = tmp_path / "archive.tar"
    packed(path, ("a", FOLDER, b""), ("a/text", FILE, TEXT), ("a", FOLDER, b""))
    assert read(path, "a/text") == TEXT
    refused(path, "a", mentions=("not a file",))


def marked(content: bytes, flags: int = 0, method: int | None = None) -> bytes:
    """A zip of one member whose headers claim other flags or another compression, as other programs' zips have them."""
    changed = bytearray(content)
    for header, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = content.index(header) + at
        changed[place] |= flags
        if method is not None:
            changed[place + 2] = method
    return bytes(changed)


@pytest.mark.parametrize(
    "flags, method, how",
    [(0x41, None, "is encrypted"), (0x00, 93, "unknown here (93)"), (0x01, 99, "is encrypted")],
    ids=["strongly encrypted", "zstandard", "AES"],
)
@pytest.mark.parametrize("inside", [False, True])
def test_members_of_a_zip_that_cannot_be_read_here_are_reported(tmp_path, flags, method, how, inside):
    path = tmp_path / "archive.zip"
    content = marked(zip_bytes({"deu.txt": TEXT}), flags, method)
    path.write_bytes(zip_bytes({"in.zip": content}) if inside else content)
    refused(path, *(["in.zip"] if inside else []), "deu.txt", mentions=('"deu.txt"', how))


def test_a_newer_zip_is_reported(tmp_path):
    path = tmp_path / "archive.zip"
    newer = bytearray(zip_bytes({"deu.txt": TEXT}))
    newer[newer.index(b"PK\1\2") + 6] = 99
    path.write_bytes(newer)
    refused(path, "deu.txt", mentions=("(zip file version 9.9)",))


ZEROS = bytes(3 << 20)


BOMBS = {
    "gz": (gzip.compress(ZEROS), []),
    "txz": (tar_bytes({"bomb": ZEROS}, "w:xz"), ["bomb"]),
    "zip": (zip_bytes({"bomb": ZEROS, "good": TEXT}), ["good"]),
    "gz in a zip": (zip_bytes({"text.gz": gzip.compress(ZEROS)}), ["text.gz"]),
    "tgz in tgz": (tar_bytes({"in.tgz": tar_bytes({"bomb": ZEROS})}), ["in.tgz", "bomb"]),
    "bz2": (bz2.compress(ZEROS), []),
    "xz": (lzma.compress(ZEROS), []),
    "zst": (zstd.compress(ZEROS), []),
    "tar.zst": (tar_zst({"bomb": ZEROS, "good": TEXT}), ["good"]),
}


@pytest.mark.parametrize("content, members", BOMBS.values(), ids=BOMBS)
def test_what_grows_out_of_all_proportion_is_refused_in_little_memory(tmp_path, monkeypatch, content, members):
    """Limits are lowered so that the test's own files are small; the rule is the same."""
    monkeypatch.setattr(unpack, "ALWAYS_ALLOWED", 1 << 19)
    path = tmp_path / "bomb"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"is refused: unpacked it has more than .* as text never has"):
        read(path, *members)
    assert list(tmp_path.iterdir()) == [path]


def test_a_sparse_member_counts_as_what_it_unpacks_to(tmp_path):
    """The header alone says terabytes; nothing of them is read."""
    path = tmp_path / "sparse.tar"
    header = tarfile.TarInfo("hole")
    header.size = 10**12
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
    refused(path, "hole", mentions=(f"{unpack.largest(path):,} bytes",))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_header_that_would_fill_the_memory_is_refused_before_it_is_read(tmp_path, kind):
    size = 64 << 20
    header = tarfile.TarInfo("././@LongLink")
    header.size, header.type = size, kind
    content = header.tobuf(tarfile.GNU_FORMAT) + b"x" * size + tar_bytes({"a.de": TEXT}, "w")
    path = tmp_path / "long.tar.gz"
    path.write_bytes(gzip.compress(content, 1))
    tracemalloc.start()
    refused(path, "a.de", mentions=(f"{size:,} bytes",))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size


def noise(size: int) -> bytes:
    import random

    return random.Random(1).randbytes(size)


CUT = {
    "tgz": (tar_bytes({"a": noise(30_000), "b": noise(30_000)}), ["a"]),
    "tar": (tar_bytes({"a": noise(30_000), "b": noise(30_000)}, "w"), ["a"]),
    "zip": (zip_bytes({"a": noise(30_000), "b": noise(30_000)}), ["a"]),
    "tar.zst": (tar_zst({"a": noise(30_000), "b": noise(30_000)}), ["a"]),
}


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("content, members", CUT.values(), ids=CUT)
def test_truncated_files_are_named(tmp_path, content, members, share):
    path = tmp_path / "cut"
    path.write_bytes(content[: int(len(content) * share)])
    refused(path, *members, mentions=(DAMAGED,))


def test_a_damaged_bzip2_is_named(tmp_path):
    """Damage in the middle, which shows only while the archive is read."""
    path = tmp_path / "damaged"
    content = bytearray(tar_bytes({"a": noise(3_000_000), "b": noise(30_000)}, "w:bz2"))
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    refused(path, "b", mentions=(DAMAGED,))


def test_a_truncated_archive_inside_an_archive_is_named(tmp_path):
    path = tmp_path / "outer.tgz"
    path.write_bytes(tar_bytes({"inner.tgz": tar_bytes({"a": noise(50_000)})[:30_000]}))
    refused(path, "inner.tgz", "a", mentions=(DAMAGED,))


def test_what_is_missing_is_named_with_what_is_there(tmp_path):
    path = tmp_path / "archive.tgz"
    path.write_bytes(tar_bytes({"x/a.de": TEXT, "y/a.de": TEXT}))
    refused(path, "b.de", problem='has no member "b.de"', mentions=("x/a.de, y/a.de",))
    refused(path, "a.de", mentions=("several members", "x/a.de, y/a.de"))
    refused(path, mentions=("is an archive", f"{path}!MEMBER"))
    refused(tmp_path / "nowhere", mentions=("exist",))
    (tmp_path / "empty.tgz").write_bytes(b"")
    refused(tmp_path / "empty.tgz", "a", problem="is empty")
    (tmp_path / "page.tgz").write_bytes(b"<html>not here</html>")
    refused(tmp_path / "page.tgz", "a", problem="is no archive")
    (tmp_path / "a.de").write_bytes(TEXT)
    refused(tmp_path / "a.de", "a", problem="is no archive", mentions=(f"write {tmp_path / 'a.de'} alone",))
