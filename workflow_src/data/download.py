"""Fetching files: from mirror folders first, then from the network; their sums are always compared."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from workflow_src.config.datasets import RemoteFile
from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import file_digest, new_file_mode, read_json, room_for

log = logging.getLogger("continuum")

MIRRORS_VARIABLE = "CONTINUUM_MIRRORS"
DOWNLOADS = Path("downloads")
SLOWEST = 1000  # bytes a second; a server that is slower has stalled
LOG_SECONDS = 10
BLOCK = 1 << 18
# Bytes of one part of a path; most disks allow 255.
LONGEST_NAME = 200
# Bytes beyond the size of the dataset after which a download is ended.
MOST_SURPLUS = 1 << 16
HTML_STARTS = (b"<!doctype html", b"<html")
SUMS = {"sha256": "SHA-256", "md5": "MD5"}


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long a network is tried: times, seconds before the second time (each further wait is twice as long), and
    seconds in which a connection must be made or bytes must come."""

    attempts: int = 4
    first_wait: float = 1.0
    timeout: float = 60.0


def places(file: RemoteFile) -> list[str]:
    """HOST/PATH of a file's URL, as mirrors and the download folder name it; the first one is where we keep it.

    A query belongs to the name, as in what `wget -x` writes. A `filename` in the configuration replaces the last part.
    """
    url = urlsplit(file.url)
    path = unquote(url.path).lstrip("/")
    if ".." in path.split("/") or not url.hostname:
        raise ArtifactError(shown(file.url), "cannot be a file of a mirror", "write it without `..`")
    host = url.netloc.rpartition("@")[2].replace(":", "_")
    folder, _, last = path.rpartition("/")
    stem = "/".join(filter(None, [host, folder]))
    # A query may hold slashes, which would make folders of it.
    plain = f"{stem}/{last}" + (f"?{url.query}".replace("/", "%2F") if url.query else "")
    names = [f"{stem}/{file.filename}", plain] if file.filename else [plain]
    return ["/".join(map(_short, name.split("/"))) for name in names]


def _short(name: str) -> str:
    """A part of a path, or the start and digest of one that is too long for a disk."""
    content = name.encode()
    if len(content) <= LONGEST_NAME:
        return name
    return f"{content[:LONGEST_NAME].decode(errors='ignore')}-{hashlib.sha256(content).hexdigest()[:8]}"


def shown(url: str) -> str:
    """An address for logs, records and errors: without the name and the password that may stand in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def present(file: RemoteFile, folder: Path, mirrors: Sequence[Path]) -> Path | None:
    """Path of a file that `Files` may need no network for, its sum not compared; None where none is on this machine."""
    return next(_copies(file, folder, mirrors), None)


def _copies(file: RemoteFile, folder: Path, mirrors: Sequence[Path]) -> Iterator[Path]:
    """Copies of a file on this machine: those of mirrors, then the one that was downloaded."""
    in_mirrors = [mirror / place for mirror in mirrors for place in places(file)]
    return filter(Path.is_file, [*in_mirrors, folder / places(file)[0]])


def _sums(path: Path, file: RemoteFile) -> dict[str, str]:
    """Sums of a local file by their kinds: SHA-256, and that of the dataset."""
    return {kind: file_digest(path, kind) for kind in SUMS if kind in ("sha256", file.check)}


def _difference(name: str, where: str, path: Path, sums: Mapping[str, str], file: RemoteFile) -> ArtifactError | None:
    """The error of a local file, which is from `where`, that is not what the dataset says.

    A right sum says more than a size.
    """
    size = path.stat().st_size
    is_of_size = file.size in (None, size)
    hint = "delete or replace it, or, if it was changed on purpose, correct {} of files.{} in the dataset"
    if file.check == "none":
        problem = f"has {size} bytes, but {file.size} are expected"
        return None if is_of_size else ArtifactError(where, problem, hint.format("size", name))
    if sums[file.check] == file.digest:
        return None
    sizes = "" if is_of_size else f" ({size} bytes instead of {file.size})"
    problem = f"has {SUMS[file.check]} {sums[file.check]}, but {file.digest} is expected{sizes}"
    return ArtifactError(where, problem, hint.format(file.check, name))


def _download(name: str, file: RemoteFile, path: Path, patience: Patience) -> None:
    """Download to `path`, which appears when all bytes have come and their sum is right."""
    import pooch
    import requests
    import urllib3

    pooch.get_logger().setLevel("WARNING")
    checksum = f"{file.check}:{file.digest}" if file.digest else None
    try:
        with room_for(path):
            pooch.retrieve(
                file.url,
                known_hash=checksum,
                fname=path.name,
                path=path.parent,
                downloader=_Downloader(name, file, patience),
            )
    except (requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError) as failure:
        raise ArtifactError(
            shown(file.url),
            f"cannot be downloaded ({_reason(failure, file.url)})",
            f"check the network and the address, or put the file into a mirror folder as {places(file)[0]} and name "
            "that folder in the setting mirrors or in CONTINUUM_MIRRORS",
        ) from None
    # pooch makes files that only their owner may read.
    path.chmod(new_file_mode())


def _reason(problem: BaseException, url: str) -> str:
    text = " ".join(str(problem).replace(url, shown(url)).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


class _Downloader:
    """A downloader for pooch that tries again, goes on where a connection ended, and checks the bytes before pooch
    gives the file its name."""

    def __init__(self, name: str, file: RemoteFile, patience: Patience):
        self.name = name
        self.file = file
        self.patience = patience
        # By which a server knows the version that the first bytes came from.
        self.validator: str | None = None
        self.wrong_files = 0

    def __call__(self, url: str, output_file: str, _pooch: Any) -> None:
        import requests
        import urllib3

        output = Path(output_file)
        # urllib3 waits from the second entry of its history on: with one at the start, before every further try.
        first = urllib3.util.retry.RequestHistory("GET", None, None, None, None)
        factor = self.patience.first_wait / 2
        retries = urllib3.Retry(self.patience.attempts - 1, backoff_factor=factor, history=(first,))
        while True:
            log.info("%s: downloading %s", self.name, shown(url))
            try:
                self._stream(url, output)
                self._check(url, output)
                return
            except (requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError, ArtifactError) as failure:
                if not self._may_pass(failure):
                    raise
                try:
                    retries = retries.increment("GET", shown(url), error=failure)
                except urllib3.exceptions.MaxRetryError:
                    raise failure from None
                wait = retries.get_backoff_time()
                log.warning("%s: %s; trying again in %g s", self.name, _reason(failure, url), wait)
                retries.sleep()

    def _may_pass(self, failure: Exception) -> bool:
        """Whether a further try may succeed after a failure."""
        if isinstance(failure, ArtifactError):
            # Bytes may have been damaged on their way; twice they hardly were.
            self.wrong_files += 1
            return self.wrong_files < 2
        answer = getattr(failure, "response", None)
        return answer is None or not 400 <= answer.status_code < 500 or answer.status_code in (408, 425, 429)

    def _stream(self, url: str, output: Path) -> None:
        """The bytes at `url` into the file `output`, after those that it has from an attempt before.

        Raises errors of requests and of urllib3, which compares what comes with Content-Length; ConnectionError where
        less than SLOWEST came for the timeout, or where the server does not go on with the file; and ArtifactError when
        far more comes than the dataset says.
        """
        import requests

        # Without this, some servers deliver archives with their gzip layer taken off, and sums differ.
        headers = {"Accept-Encoding": "identity", "User-Agent": "continuum-nmt"}
        begin = output.stat().st_size if output.exists() else 0
        # Parts of two versions would make a file that nobody sent: without a sum it might be taken for whole.
        if begin and (self.validator or self.file.digest):
            headers |= {"Range": f"bytes={begin}-"} | ({"If-Range": self.validator} if self.validator else {})
        with requests.get(url, stream=True, timeout=self.patience.timeout, headers=headers) as answer:
            continues = answer.headers.get("Content-Range", "").startswith(f"bytes {begin}-")
            if answer.status_code == 416 or (answer.status_code == 206 and not continues):
                output.unlink(missing_ok=True)
                raise ConnectionError("the server does not go on with the file where it ended")
            answer.raise_for_status()
            etag = answer.headers.get("ETag", "")
            self.validator = etag if etag.startswith('"') else answer.headers.get("Last-Modified")
            if answer.status_code != 206:
                begin = 0
            progress = _Progress(self.name, begin, answer.raw.length_remaining, self.patience.timeout)
            # A server that says so of a .gz means the file itself, whose sum is that of the compressed bytes.
            decode = not places(self.file)[0].endswith((".gz", ".tgz"))
            with open(output, "ab" if begin else "wb") as file:
                while block := answer.raw.read1(BLOCK, decode_content=decode):
                    file.write(block)
                    progress.add(len(block))
                    if self.file.size is not None and progress.done > self.file.size + MOST_SURPLUS:
                        problem = f"sends more than the {self.file.size} bytes that are expected"
                        fix = f"correct size of files.{self.name} in the dataset, or its address"
                        raise ArtifactError(shown(url), problem, fix)

    def _check(self, url: str, path: Path) -> None:
        """Raises ArtifactError, and removes the file, where it is not what the dataset says.

        Raises ConnectionError where it is a part of that.
        """
        with open(path, "rb") as file:
            start = file.read(64).lstrip().lower()
        is_page = start.startswith(HTML_STARTS) and not urlsplit(url).path.endswith((".html", ".htm"))
        sums: dict[str, str] = {self.file.check: file_digest(path, self.file.check)} if self.file.digest else {}
        failure = _difference(self.name, shown(url), path, sums, self.file)
        if is_page and (failure or self.file.check == "none"):
            failure = ArtifactError(
                shown(url),
                f"answers with a web page, not the file {self.name}",
                "open the address in a browser, save the file, and put it into a mirror folder as "
                f"{places(self.file)[0]}",
            )
        elif failure and self.file.size is not None and path.stat().st_size < self.file.size:
            # A connection that ends early may look like the end of the file: not every server announces a length.
            raise ConnectionError(f"only {path.stat().st_size} of {self.file.size} bytes came")
        if failure:
            path.unlink()
            raise failure


class _Progress:
    """The bytes of a download: a plain line about them every ten seconds, and an error where too few come."""

    def __init__(self, name: str, begin: int, remaining: int | None, timeout: float):
        """`begin` bytes are there already; `remaining` ones come, where the server says so."""
        self.name = name
        self.begin = begin
        self.done = begin
        self.timeout = timeout
        self.total = f" of {(begin + remaining) / 1e6:.0f}" if remaining else ""
        self.began = self.logged = self.checked = time.monotonic()
        self.done_before = begin

    def add(self, count: int) -> None:
        """Raises ConnectionError where less than SLOWEST came for the timeout."""
        self.done += count
        now = time.monotonic()
        if now - self.logged >= LOG_SECONDS:
            self.logged = now
            rate = (self.done - self.begin) / 1e6 / (now - self.began)
            log.info("%s: %.0f%s MB, %.1f MB/s", self.name, self.done / 1e6, self.total, rate)
        if (waited := now - self.checked) >= self.timeout:
            came = self.done - self.done_before
            if came < SLOWEST * waited:
                raise ConnectionError(f"only {came} bytes came in {waited:.1f} s")
            self.checked, self.done_before = now, self.done


def mirror_folders(configured: Sequence[str]) -> list[Path]:
    """Mirrors of the environment, then those of the configuration; missing folders are left out with a warning."""
    names = [name for name in os.environ.get(MIRRORS_VARIABLE, "").split(os.pathsep) if name] + list(configured)
    folders = []
    for name in dict.fromkeys(map(os.path.expanduser, names)):
        if Path(name).is_dir():
            folders.append(Path(name))
        else:
            log.warning("mirror folder %s does not exist; going on without it", name)
    return folders


def changed_sum(summary: Path, files: Mapping[str, RemoteFile]) -> str | None:
    """A warning where a file was downloaded with another SHA-256 than its dataset gives; None where none was.

    `summary` is the raw.json of the download. Sums are no settings that rerun a download: they are pinned after it.
    """
    try:
        downloads = read_json(summary)["downloads"]
    except (ArtifactError, LookupError, TypeError):
        # The job that reads it reports what is damaged.
        return None
    for name, file in files.items():
        recorded = downloads.get(name, {}).get("sha256", file.sha256)
        if file.sha256 not in (None, recorded):
            return (
                f"{summary} was made of files.{name} with SHA-256 {recorded}, and the dataset gives {file.sha256}; "
                "--forcerun download makes it anew"
            )
    return None


def without_passwords(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a dataset for records."""
    files = {name: {**file, "url": shown(file["url"])} for name, file in settings.get("files", {}).items()}
    return {**settings, **({"files": files} if files else {})}


class Files:
    """Local copies of a dataset's files, of a mirror or in `folder`, each fetched when it is first located.

    A file appears under its name only when it is whole and its sum is right. Without a sum its size is compared, if the
    dataset gives one. `fetched` describes the files.
    """

    def __init__(
        self,
        files: Mapping[str, RemoteFile],
        folder: Path,
        mirrors: Sequence[Path] = (),
        allow_unpinned: bool = False,
        patience: Patience = Patience(),
    ):
        self.files = files
        self.folder = folder
        self.mirrors = mirrors
        self.allow_unpinned = allow_unpinned
        self.patience = patience
        self.fetched: dict[str, dict[str, Any]] = {}

    def locate(self, name: str) -> Path:
        """The path of a file, which is downloaded if need be.

        Raises ArtifactError when a sum or size is wrong (the file, both sums and what to do), when the sum is not known
        yet and `allow_unpinned` is false, or when the network fails for good.
        """
        if name not in self.fetched:
            file = self.files[name]
            path, digest = self._fetched(name, file)
            self._trust(name, path, digest, file)
            self.fetched[name] = {
                "url": shown(file.url),
                "sha256": digest,
                "bytes": path.stat().st_size,
                "check": file.check,
                "path": str(path),
            }
        return Path(self.fetched[name]["path"])

    def _fetched(self, name: str, file: RemoteFile) -> tuple[Path, str]:
        """The path of a file and its SHA-256."""
        own = self.folder / places(file)[0]
        wrong: list[ArtifactError] = []
        for path in _copies(file, self.folder, self.mirrors):
            sums = _sums(path, file)
            failure = _difference(name, str(path), path, sums, file)
            if failure is None:
                if path != own:
                    log.info("%s: found in mirror %s", name, path)
                return path, sums["sha256"]
            wrong.append(failure)
        if file.digest and own.is_file():
            log.warning("%s: %s %s; downloading it again", name, own, wrong[-1].problem)
        elif wrong:
            # What is in a mirror is wanted from there: the network may not be allowed, or have the same wrong file.
            # A user says which of two files without a sum is right.
            raise wrong[0]
        _download(name, file, own, self.patience)
        return own, file_digest(own, "sha256")

    def _trust(self, name: str, path: Path, digest: str, file: RemoteFile) -> None:
        """Raises ArtifactError for a file without a sum to compare, unless these are allowed."""
        if file.check != "none":
            log.info("%s: %s is as expected", name, SUMS[file.check])
        elif self.allow_unpinned:
            log.warning("%s: SHA-256 %s of %s is not compared with anything (allow_unpinned)", name, digest, path)
        else:
            fix = f"if you trust the file, write this sum as sha256 of files.{name}, or set allow_unpinned to true"
            raise ArtifactError(path, f"has SHA-256 {digest}, and the dataset gives none to compare it with", fix)

    def provenance_inputs(self) -> dict[str, dict[str, Any]]:
        """The fetched files as `inputs` of a provenance."""
        return {name: {key: file[key] for key in ("path", "sha256", "url")} for name, file in self.fetched.items()}
