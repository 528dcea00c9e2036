"""Files are whole or absent, and what is damaged is refused in a sentence that names it."""

import errno
import hashlib
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from workflow_src.errors import ArtifactError
from workflow_src.records import atomic as module
from workflow_src.records.atomic import atomic, load_tensors, read_json, save_tensors, write_json


class Stop(BaseException):
    """Neither an Exception nor expected: as KeyboardInterrupt is."""


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, Stop])
@pytest.mark.parametrize("before", [None, "old"])
def test_an_error_leaves_the_old_file_or_none(tmp_path, failure, before):
    path = tmp_path / "deep" / "file.txt"
    if before:
        path.parent.mkdir()
        path.write_text(before)
    with pytest.raises(failure), atomic(path) as file:
        file.write("new, but not all of it")
        file.flush()
        raise failure
    assert (path.read_text() if path.exists() else None) == before
    assert os.listdir(path.parent) == ([path.name] if before else [])


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with atomic(path) as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"


# A process that writes a file until a line comes.
WRITER = """
import sys
from workflow_src.records.atomic import atomic

with atomic(sys.argv[1]) as file:
    file.write(sys.argv[2])
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


def writer(path: Path, content: str) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(path), content]
    running = subprocess.Popen(
        command, cwd=Path(__file__).parents[3], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout.readline() == "writing\n"
    return running


def test_a_killed_writer_leaves_the_old_file_and_a_hidden_part(tmp_path):
    path = tmp_path / "file[1]*.txt"
    path.write_text("old")
    running = writer(path, "a part")
    running.kill()
    running.communicate()
    assert running.returncode == -signal.SIGKILL
    (part,) = [name for name in os.listdir(tmp_path) if name != path.name]
    assert part.startswith(".") and part.endswith(".partial") and path.read_text() == "old"


def test_of_writers_of_one_file_the_last_one_closed_stays(tmp_path):
    path = tmp_path / "file"
    other = writer(path, "from the other")
    for content in ("mine", "again mine"):
        with atomic(path) as file:
            file.write(content)
        assert path.read_text() == content and len(os.listdir(tmp_path)) == 2
    with atomic(path) as first, atomic(path) as second:
        first.write("last closed")
        second.write("first closed")
    assert path.read_text() == "last closed"
    other.communicate("go on\n")
    assert other.returncode == 0 and path.read_text() == "from the other"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("way", ["itself", "link", "link to a link", "folder", "parent"])
def test_what_a_process_has_open_is_never_replaced(way, tmp_path, monkeypatch):
    """A log that the caller goes on writing to, for one: standard output may lead to it."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log"
    with open(log, "w") as opened:
        opened.write("before\n")
        opened.flush()
        real = f"/proc/{os.getpid()}/fd/{opened.fileno()}"
        (tmp_path / "link").symlink_to(real)
        (tmp_path / "second").symlink_to("link")
        (tmp_path / "there").symlink_to("/proc/self/fd")
        path = {
            "itself": real,
            "link": "link",
            "link to a link": tmp_path / "second",
            "folder": f"there/{opened.fileno()}",
            "parent": f"../{tmp_path.name}/link",
        }[way]
        with pytest.raises(ArtifactError, match=f"^{path} is a pipe"), atomic(path):
            pass
        opened.write("after\n")
    assert log.read_text() == "before\nafter\n"


def test_a_link_in_shared_memory_leads_to_its_file(tmp_path):
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("this machine has no /dev/shm")
    link = Path(f"/dev/shm/continuum-test-{os.getpid()}")
    link.symlink_to(tmp_path / "file")
    try:
        with atomic(link) as file:
            file.write("new")
    finally:
        link.unlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_name_that_no_file_can_have_is_reported_in_a_sentence(tmp_path):
    with pytest.raises(ArtifactError, match="cannot be written: File name too long"):
        with atomic(tmp_path / ("a" * 300)):
            pass


def test_text_is_utf8_with_plain_newlines_and_readable_by_whom_the_umask_allows(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic(tmp_path / "text") as file:
            file.write("süß\n")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / "text").read_bytes() == "süß\n".encode()
    assert stat.S_IMODE((tmp_path / "text").stat().st_mode) == 0o640


def test_a_value_that_is_no_json_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "ü"})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n "a": "ü",\n "b": 1\n}\n'
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"a": object()})
    assert read_json(tmp_path / "a.json") == {"a": "ü", "b": 1}
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe{}", b"{} {}"])
def test_damaged_json_is_named(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=f"^{re.escape(str(path))} is damaged \\("):
        read_json(path)
    with pytest.raises(ArtifactError, match=r"none.json .*exist"):
        read_json(tmp_path / "none.json")


@pytest.mark.parametrize("copy", [module.copy_file, module.link_file])
def test_a_copy_of_nothing_is_refused_and_leaves_nothing(tmp_path, copy):
    with pytest.raises(ArtifactError) as refused:
        copy(tmp_path / "none", tmp_path / "copy")
    assert refused.value.path == str(tmp_path / "none") and not os.listdir(tmp_path)


def test_digests_agree_with_an_independent_count(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert module.sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert module.fingerprint({"b": [1, 2], "a": None}) == module.fingerprint({"a": None, "b": [1, 2]})
    assert module.fingerprint({"a": [1, 2]}) != module.fingerprint({"a": [2, 1]})
    assert module.fingerprint({"a": 1}) == hashlib.sha256(b'{"a": 1}').hexdigest()


@pytest.fixture
def weights(tmp_path):
    generator = torch.Generator().manual_seed(1)
    tensors = {
        "float": torch.randn(5, 7, generator=generator),
        "double": torch.randn(3, generator=generator, dtype=torch.float64),
        "bytes": torch.arange(9, dtype=torch.uint8),
        "half": torch.randn(4, generator=generator).bfloat16(),
        "scalar": torch.tensor(3.0),
        "slice": torch.randn(6, 4, generator=generator).T[::2],
    }
    save_tensors(tmp_path / "w.safetensors", tensors)
    return tmp_path / "w.safetensors", tensors


def test_tensors_come_back_bit_for_bit(weights):
    path, tensors = weights
    loaded = load_tensors(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor)
    assert os.listdir(path.parent) == [path.name]


def test_a_parameter_is_saved_without_its_graph(tmp_path):
    save_tensors(tmp_path / "w", {"p": torch.nn.Parameter(torch.ones(2))})
    assert load_tensors(tmp_path / "w")["p"].requires_grad is False


@pytest.mark.parametrize("damage", ["empty", "truncated", "header", "length", "json", "longer"])
def test_damaged_weights_are_refused_in_one_sentence(weights, damage):
    path, _ = weights
    content = path.read_bytes()
    flipped = bytearray(content)
    # The file begins with the length of its header (8 bytes), then the header, in JSON.
    flipped[{"header": 9, "length": 2}.get(damage, 0)] ^= 0x40
    path.write_bytes(
        {
            "empty": b"",
            "truncated": content[:-3],
            "header": bytes(flipped),
            "length": bytes(flipped),
            "json": b'{"a": 1}',
            "longer": content + b"\0",
        }[damage]
    )
    with pytest.raises(ArtifactError) as caught:
        load_tensors(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is damaged or not a safetensors file (") and "\n" not in message


def test_a_pickle_that_would_run_code_runs_none(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    torch.save({"w": Trap()}, tmp_path / "zip.pt")
    torch.save({"w": Trap()}, tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    for protocol in range(2, 6):
        (tmp_path / f"plain-{protocol}.pkl").write_bytes(pickle.dumps({"w": Trap()}, protocol))
    for path in list(tmp_path.iterdir()):
        with pytest.raises(ArtifactError, match=f"^{path} is refused: .* pickle "):
            load_tensors(path)
    assert not (tmp_path / "sprung").exists()


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"none.safetensors .*exist"):
        load_tensors(tmp_path / "none.safetensors")


@pytest.mark.parametrize("length", [228, 234, 255])
def test_a_name_as_long_as_a_disk_allows_can_be_written(tmp_path, length):
    path = tmp_path / ("ä" * (length // 2) + "x" * (length % 2))
    for content in ("old", "new"):
        with atomic(path) as file:
            file.write(content)
    assert os.listdir(tmp_path) == [path.name] and path.read_text() == "new"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "private"
    path.write_text("old")
    path.chmod(mode)
    with atomic(path) as file:
        file.write("new")
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_text() == "new"


def test_a_limit_of_file_sizes_is_reported_with_the_file(tmp_path):
    program = f"""
import resource
from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import atomic

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with atomic({str(tmp_path / "large")!r}) as file:
        file.write("x" * 2000)
except ArtifactError as error:
    print(error.path)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(tmp_path / "large")]
    assert os.listdir(tmp_path) == []


def test_a_disk_that_is_full_when_the_file_is_flushed_to_it_leaves_the_old_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("old")

    def full(_handle):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match=f"^{tmp_path}/file .*quota"), atomic(tmp_path / "file") as file:
        file.write("new")
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "old"


def test_other_errors_of_the_system_are_not_taken_for_a_full_disk(tmp_path):
    with pytest.raises(OSError, match="hardware"), module.room_for(tmp_path / "file"):
        raise OSError(errno.EIO, "hardware")


def test_a_folder_cannot_be_written(tmp_path):
    with pytest.raises(ArtifactError, match=f"^{tmp_path} is a folder"), atomic(tmp_path):
        pass
