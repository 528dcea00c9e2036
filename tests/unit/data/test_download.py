"""Downloads: mirrors, checksums, and a network that fails. Served by a small server of the test's own."""

import gzip
import hashlib
import http.server
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError
from stage_server import python_module

from workflow_src.config.datasets import RemoteFile
from workflow_src.data.download import Files, Patience, changed_sum, places
from workflow_src.errors import ArtifactError
from workflow_src.records.documents import JobDocument

CONTENT = b"one line\n" * 5000
SUM = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT).hexdigest()
QUICK = Patience(first_wait=0.01, timeout=1.0)
TAG = '"version 1"'
OTHER = hashlib.sha256(b"other").hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        self.server.ranges.append(self.headers.get("Range"))
        answer = self.server.answers.pop(0) if self.server.answers else "whole"
        if answer.isdigit():
            self.send_error(int(answer))
            return
        if answer in ("silent", "dribbling"):
            self.hang(answer)
            return
        if answer.startswith("range"):
            self.part(answer)
            return
        content = b"<!DOCTYPE html><html>sign in</html>" if answer == "page" else CONTENT
        length = str(len(content))
        # What is announced, where that is not the length once.
        announced = {"unannounced cut": [], "two": [length, "7"], "words": ["many"]}
        self.send_response(200)
        for value in announced.get(answer, [length]):
            self.send_header("Content-Length", value)
        self.end_headers()
        if answer == "damaged":
            content = content[:-1] + b"?"
        self.wfile.write(content[:100] if answer.endswith("cut") else content)

    def part(self, answer):
        """What the request has a range of, in half of what is left; or all of it, where the file has changed."""
        begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        if answer == "range of another":
            begin = 0
        if self.headers.get("If-Range", TAG) != TAG:
            begin = 0
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("ETag", '"other"' if answer == "range of another" else TAG)
        self.send_header("Content-Length", str(len(CONTENT) - begin))
        self.end_headers()
        ends = begin + (len(CONTENT) - begin) // 2 if answer.endswith("cut") else len(CONTENT)
        self.wfile.write(CONTENT[begin:ends])

    def hang(self, answer):
        """Accepts and says nothing, or stops after a part and goes on with a few bytes now and then."""
        if answer != "silent":
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
            self.end_headers()
            self.wfile.write(CONTENT[:1000])
        while not self.server.closing.wait(0.05):
            if answer == "dribbling":
                try:
                    self.wfile.write(b"..")
                except OSError:
                    return

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.answers = []
        running.requests = []
        running.ranges = []
        running.closing = threading.Event()
        running.url = f"http://127.0.0.1:{running.server_port}/data/file.gz"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.closing.set()
        running.shutdown()
        thread.join()


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def fetch(file, folder, mirrors=(), **more):
    """The path of a local copy, and its SHA-256."""
    files = Files({"f": file}, folder, mirrors, **({"patience": QUICK} | more))
    return files.locate("f"), files.fetched["f"]["sha256"]


def put(folder, file, content=CONTENT):
    path = folder / places(file)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_downloads_once_and_keeps_it_under_host_and_path_for_whom_the_umask_allows(tmp_path, server):
    file = RemoteFile(url=server.url, sha256=SUM, size=len(CONTENT))
    path, digest = fetch(file, tmp_path)
    assert path == tmp_path / f"127.0.0.1_{server.server_port}" / "data" / "file.gz"
    assert (path.read_bytes(), digest) == (CONTENT, SUM)
    assert fetch(file, tmp_path) == (path, SUM)
    assert server.requests == ["/data/file.gz"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("failures", [["500", "cut", "429"], ["damaged"], ["silent"], ["dribbling"], ["two"]])
def test_tries_again_when_the_network_fails(tmp_path, server, failures):
    server.answers = list(failures)
    path, _ = fetch(RemoteFile(url=server.url, sha256=SUM), tmp_path)
    assert path.read_bytes() == CONTENT
    assert len(server.requests) == len(failures) + 1
    assert files_in(tmp_path) == [path]


@pytest.mark.parametrize("answer, times", [("cut", QUICK.attempts), ("503", QUICK.attempts), ("404", 1)])
def test_gives_up_with_one_sentence_and_leaves_nothing(tmp_path, server, answer, times):
    server.answers = [answer] * 10
    with pytest.raises(ArtifactError) as failure:
        fetch(RemoteFile(url=server.url, sha256=SUM), tmp_path)
    message = str(failure.value)
    assert message.startswith(f"{server.url} ")
    assert "mirror folder as 127.0.0.1_" in message and "CONTINUUM_MIRRORS" in message and "\n" not in message
    assert len(server.requests) == times and files_in(tmp_path) == []


def test_a_cut_file_is_not_kept_where_only_its_size_is_known(tmp_path, server):
    file = RemoteFile(url=server.url, size=len(CONTENT))
    server.answers = ["unannounced cut"] * 10
    with pytest.raises(ArtifactError, match=r" downloaded .* bytes "):
        fetch(file, tmp_path, allow_unpinned=True)
    assert len(server.requests) == QUICK.attempts and files_in(tmp_path) == []
    # The server does not say which version a part is of.
    assert set(server.ranges) == {None}
    server.answers = ["unannounced cut"]
    assert fetch(file, tmp_path, allow_unpinned=True)[0].read_bytes() == CONTENT


def test_a_file_of_another_size_than_declared_is_reported_wherever_it_is(tmp_path, server):
    file = RemoteFile(url=server.url, size=7)
    sentence = f"has {len(CONTENT)} bytes, but 7 are expected; .* correct size of files.f in"
    with pytest.raises(ArtifactError, match=f"^{server.url} {sentence}"):
        fetch(file, tmp_path, allow_unpinned=True)
    assert files_in(tmp_path) == []
    path = put(tmp_path, file)
    for folders in ((tmp_path, []), (tmp_path / "downloads", [tmp_path])):
        with pytest.raises(ArtifactError, match=f"^{path} {sentence}"):
            fetch(file, *folders, allow_unpinned=True)
    # A right sum says more than a size does.
    assert fetch(file.model_copy(update={"sha256": SUM}), tmp_path) == (path, SUM)


def test_a_length_that_is_no_number_does_no_harm(tmp_path, server):
    server.answers = ["words"]
    assert fetch(RemoteFile(url=server.url), tmp_path, allow_unpinned=True)[0].read_bytes() == CONTENT
    assert len(server.requests) == 1


def test_a_wrong_sum_from_the_network_names_both_sums_and_leaves_nothing(tmp_path, server):
    with pytest.raises(ArtifactError) as failure:
        fetch(RemoteFile(url=server.url, sha256=OTHER, size=7), tmp_path)
    message = str(failure.value)
    assert SUM in message and OTHER in message and server.url in message
    assert f"({len(CONTENT)} bytes instead of 7)" in message
    assert len(server.requests) == 2 and files_in(tmp_path) == []


def test_a_publishers_md5_is_compared_where_there_is_no_sha256(tmp_path, server):
    server.answers = ["damaged"]
    path, digest = fetch(RemoteFile(url=server.url, md5=MD5), tmp_path)
    assert (path.read_bytes(), digest, len(server.requests)) == (CONTENT, SUM, 2)
    wrong = RemoteFile(url=server.url, md5="0" * 32)
    with pytest.raises(ArtifactError, match=f"has MD5 {MD5}, but {'0' * 32} is expected.*correct md5 of files.f"):
        fetch(wrong, tmp_path / "other", [tmp_path])
    with pytest.raises(ArtifactError, match=f"^{server.url} has MD5 {MD5}"):
        fetch(wrong, tmp_path / "other")
    assert files_in(tmp_path) == [path]


def test_waits_are_twice_as_long_each_time(tmp_path, server):
    server.answers = ["503"] * 3
    began = time.monotonic()
    fetch(RemoteFile(url=server.url, sha256=SUM), tmp_path, patience=Patience(first_wait=0.1))
    assert 0.1 + 0.2 + 0.4 <= time.monotonic() - began < 5


def test_a_killed_download_leaves_nothing_that_is_taken_for_whole(tmp_path, server):
    """The stage in a process of its own, as the rule runs it, for a dataset of one table."""
    # Its columns are the two words of a line.
    part = [{"table": "f", "columns": {"de": 0, "en": 1}, "separator": " "}]
    dataset = {"name": "d", "languages": ["de", "en"], "train": part, "dev": part, "test": part}
    content = {
        "settings": dataset | {"files": {"f": {"url": server.url, "sha256": SUM}}},
        "languages": ["de", "en"],
        "summary": str(tmp_path / "raw/raw.json"),
        "downloads": str(tmp_path / "downloads"),
    }
    document = JobDocument(tmp_path.parent / f"{tmp_path.name}-jobs", content)
    document.write()
    command = python_module("workflow_src.stages.download", "--job", str(document.path))
    stage = {"cwd": Path(__file__).resolve().parents[3], "stderr": subprocess.PIPE, "text": True}
    server.answers = ["dribbling"]
    running = subprocess.Popen(command, **stage)
    ends = time.monotonic() + 60
    while (server.answers or not files_in(tmp_path / "downloads")) and time.monotonic() < ends:
        time.sleep(0.05)
    running.kill()
    running.communicate(timeout=60)
    kept = tmp_path / "downloads" / places(RemoteFile(url=server.url))[0]
    assert not kept.exists() and not [path for path in files_in(tmp_path / "raw") if path.name[0] != "."]
    second_run = subprocess.run(command, **stage, timeout=60)
    assert "5,000 pairs" in second_run.stderr and second_run.returncode == 0
    assert kept.read_bytes() == CONTENT


def test_a_web_page_instead_of_the_file_is_reported(tmp_path, server):
    server.answers = ["page"] * 2
    with pytest.raises(ArtifactError, match="web page"):
        fetch(RemoteFile(url=server.url), tmp_path, allow_unpinned=True)
    assert files_in(tmp_path) == []


def test_an_unknown_sum_is_printed_and_stops_unless_allowed(tmp_path, server):
    file = RemoteFile(url=server.url)
    for _ in range(2):
        with pytest.raises(ArtifactError, match=f"has SHA-256 {SUM}.*sha256 of files.f, or set allow_unpinned"):
            fetch(file, tmp_path)
    assert fetch(file, tmp_path, allow_unpinned=True)[1] == SUM
    assert fetch(file.model_copy(update={"sha256": SUM}), tmp_path)[1] == SUM
    assert len(server.requests) == 1


@pytest.mark.parametrize("sums", [{"sha256": SUM}, {"md5": MD5}])
def test_a_kept_file_that_changed_is_downloaded_again(tmp_path, server, sums):
    file = RemoteFile(url=server.url, **sums)
    path = put(tmp_path, file, b"damaged")
    assert fetch(file, tmp_path) == (path, SUM) and path.read_bytes() == CONTENT


def test_a_connection_that_ends_goes_on_where_it_ended(tmp_path, server):
    server.answers = ["range cut", "range cut", "range"]
    path, _ = fetch(RemoteFile(url=server.url, sha256=SUM), tmp_path)
    assert path.read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert server.ranges == [None, f"bytes={half}-", f"bytes={half + (len(CONTENT) - half) // 2}-"]


def test_a_file_that_changed_on_the_server_begins_anew(tmp_path, server):
    server.answers = ["range cut", "range of another"]
    path, _ = fetch(RemoteFile(url=server.url), tmp_path, allow_unpinned=True)
    assert path.read_bytes() == CONTENT and server.ranges == [None, f"bytes={len(CONTENT) // 2}-"]


class Odd(Handler):
    """Files with an encoding in their header, without end, and behind a password."""

    def do_GET(self):
        content = gzip.compress(CONTENT, mtime=0)
        self.send_response(200)
        self.send_header("Content-Encoding" if "encoded" in self.path else "X-Plain", "x-gzip")
        self.end_headers()
        try:
            self.wfile.write(content)
            for _ in range(2000 * self.path.count("endless")):
                self.wfile.write(bytes(10_000))
                self.server.sent += 10_000
        except OSError:
            pass


@pytest.fixture
def odd_server(server):
    server.RequestHandlerClass, server.sent = Odd, 0
    server.url = f"http://127.0.0.1:{server.server_port}"
    return server


def test_a_gzipped_file_is_kept_as_it_is_and_an_encoded_text_is_decoded(tmp_path, odd_server):
    zipped = hashlib.sha256(gzip.compress(CONTENT, mtime=0)).hexdigest()
    file = RemoteFile(url=f"{odd_server.url}/encoded.tgz", sha256=zipped)
    assert fetch(file, tmp_path)[1] == zipped
    text = RemoteFile(url=f"{odd_server.url}/encoded.txt", sha256=SUM)
    assert fetch(text, tmp_path)[0].read_bytes() == CONTENT


def test_more_than_the_declared_size_is_not_downloaded_to_its_end(tmp_path, odd_server):
    file = RemoteFile(url=f"{odd_server.url}/endless.tgz", size=1000, sha256=SUM)
    with pytest.raises(ArtifactError) as failure:
        fetch(file, tmp_path, patience=Patience(attempts=1, timeout=5))
    assert "1000" in str(failure.value) and odd_server.sent < 10_000_000 and files_in(tmp_path) == []


def test_a_password_is_in_no_log_record_or_error(tmp_path, odd_server, caplog):
    address = odd_server.url.replace("//", "//user:SECRET@")
    zipped = hashlib.sha256(gzip.compress(CONTENT, mtime=0)).hexdigest()
    files = Files({"f": RemoteFile(url=f"{address}/x.tgz", sha256=zipped)}, tmp_path, [], False, QUICK)
    with caplog.at_level("INFO"):
        assert files.locate("f").is_file()
        for url in (f"{address}/x.tgz", address.replace(str(odd_server.server_port), "9") + "/y"):
            with pytest.raises(ArtifactError) as failure:
                fetch(RemoteFile(url=url, sha256=OTHER), tmp_path / "new")
            assert "SECRET" not in str(failure.value)
    assert "127.0.0.1" in caplog.text and "SECRET" not in caplog.text + json.dumps(files.fetched)


def test_a_sum_that_changed_after_the_download_is_reported(tmp_path):
    summary = tmp_path / "raw.json"
    pinned = {"f": RemoteFile(url="https://a.org/f", sha256=SUM), "g": RemoteFile(url="https://a.org/g")}
    assert changed_sum(summary, pinned) is None
    summary.write_text(json.dumps({"downloads": {"f": {"sha256": SUM}, "g": {"sha256": OTHER}}}))
    assert changed_sum(summary, pinned) is None
    summary.write_text(json.dumps({"downloads": {"f": {"sha256": OTHER}}}))
    warning = changed_sum(summary, pinned)
    assert SUM in warning and OTHER in warning and "files.f" in warning and "forcerun" in warning


def test_a_long_address_has_a_name_that_a_disk_allows(tmp_path, server):
    file = RemoteFile(url=f"{server.url}?signature={'x' * 3000}", sha256=SUM)
    other = RemoteFile(url=f"{server.url}?signature={'x' * 3000}y", sha256=SUM)
    path, _ = fetch(file, tmp_path)
    assert path.read_bytes() == CONTENT and places(file) != places(other)
    assert fetch(file, tmp_path / "new", [tmp_path])[0] == path


def test_a_right_file_of_a_mirror_is_taken_past_wrong_ones(tmp_path, server):
    file = RemoteFile(url=server.url, sha256=SUM)
    put(tmp_path / "stale", file, b"other")
    path = put(tmp_path / "right", file)
    mirrors = [tmp_path / "none", tmp_path / "stale", tmp_path / "right"]
    assert fetch(file, tmp_path / "downloads", mirrors) == (path, SUM)
    assert server.requests == [] and not (tmp_path / "downloads").exists()
    # So is one that was downloaded.
    assert fetch(file, tmp_path / "right", [tmp_path / "stale"]) == (path, SUM)


def test_a_wrong_sum_in_a_mirror_is_an_error_not_a_reason_to_go_on(tmp_path, server):
    file = RemoteFile(url=server.url, sha256=SUM)
    wrong = put(tmp_path / "mirror", file, b"other")
    with pytest.raises(ArtifactError) as failure:
        fetch(file, tmp_path / "downloads", [tmp_path / "mirror"])
    message = str(failure.value)
    assert str(wrong) in message and SUM in message and OTHER in message
    assert wrong.exists() and server.requests == []
    with pytest.raises(ArtifactError, match="the dataset gives none"):
        fetch(RemoteFile(url=server.url), tmp_path / "downloads", [tmp_path / "mirror"])


@pytest.mark.parametrize(
    "url, filename, expected",
    [
        ("https://a.org/x/y.tgz", None, ["a.org/x/y.tgz"]),
        ("https://u:p@a.org/x%20y.gz", None, ["a.org/x y.gz"]),
        ("https://d.com/uc?id=1a", None, ["d.com/uc?id=1a"]),
        ("https://d.com/uc?id=1a", "b.tgz", ["d.com/b.tgz", "d.com/uc?id=1a"]),
        ("https://d.com/uc?p=a/../../b", None, ["d.com/uc?p=a%2F..%2F..%2Fb"]),
    ],
)
def test_places_in_mirrors(url, filename, expected):
    assert places(RemoteFile(url=url, filename=filename)) == expected


@pytest.mark.parametrize("url", ["https://a.org/x/../../etc/passwd", "https://a.org/%2e%2e/%2e%2e/x"])
def test_addresses_cannot_lead_out_of_the_folder(url):
    with pytest.raises(ArtifactError, match=r"without `..`"):
        places(RemoteFile(url=url))


def test_filenames_cannot_lead_out_of_the_folder():
    with pytest.raises(ValidationError, match=r"filename\n.*a name without /"):
        RemoteFile(url="https://a.org/x", filename="../x")
