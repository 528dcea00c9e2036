"""Fetching files: from mirror folders first, then from the network; their sums are always compared."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
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


def fetch(
    name: str,
    file: RemoteFile,
    folder: str | Path,
    mirrors: Sequence[str | Path] = (),
    allow_unpinned: bool = False,
    patience: Patience = Patience(),
) -> tuple[Path, str]:
    """A local copy of `file`, and its SHA-256: of a mirror, or in `folder`, where it is downloaded to if need be.

    `name` is the file's key in the dataset, for messages. A file appears under its name only when it is whole and its
    sum is right. Without a sum its size is compared, if the dataset gives one. Raises ArtifactError when a sum or size
    is wrong (the file, both sums and what to do), when the sum is not known yet and `allow_unpinned` is false, or when
    the network fails for good.
    """
    path = Path(folder) / places(file)[0]
    wrong: list[tuple[Path, dict[str, str]]] = []
    for mirror, candidate in _in_mirrors(file, mirrors):
        sums = _sums(candidate, file)
        if _is_right(sums, file):
            log.info("%s: found in mirror %s", name, mirror)
            return candidate, _checked(name, candidate, sums, file, allow_unpinned)
        wrong.append((candidate, sums))
    if path.is_file():
        sums = _sums(path, file)
        if _is_right(sums, file):
            return path, _checked(name, path, sums, file, allow_unpinned)
        sum_name = SUMS[file.check]
        log.warning("%s: %s has another %s than the configuration; downloading it again", name, path, sum_name)
    elif wrong:
        # What is in a mirror is wanted from there: the network may not be allowed, or have the same wrong file.
        candidate, sums = wrong[0]
        return candidate, _checked(name, candidate, sums, file, allow_unpinned)
    _download(name, file, path, patience)
    return path, _checked(name, path, _sums(path, file), file, allow_unpinned)


def present(file: RemoteFile, folder: Path, mirrors: Sequence[Path] = ()) -> Path | None:
    """Path of a file that `fetch` may need no network for, its sum not compared; None where none is on this machine."""
    paths = [path for _, path in _in_mirrors(file, mirrors)] + [Path(folder) / places(file)[0]]
    return next((path for path in paths if path.is_file()), None)


def _in_mirrors(file: RemoteFile, mirrors: Sequence[str | Path]) -> list[tuple[str | Path, Path]]:
    """The mirrors that have a file, and the file's path there."""
    paths = ((mirror, Path(mirror) / place) for mirror in mirrors for place in places(file))
    return [(mirror, path) for mirror, path in paths if path.is_file()]


def _sums(path: Path, file: RemoteFile) -> dict[str, str]:
    """Sums of a local file by their kinds, in one reading: SHA-256, and that of the dataset."""
    hashes = {kind: hashlib.new(kind) for kind in SUMS if kind in ("sha256", file.check)}
    with open(path, "rb") as content:
        while block := content.read(BLOCK):
            for summed in hashes.values():
                summed.update(block)
    return {kind: summed.hexdigest() for kind, summed in hashes.items()}


def _is_right(sums: Mapping[str, str], file: RemoteFile) -> bool:
    """Whether a local file has the sum of the dataset, or the dataset gives none."""
    return file.check == "none" or file.digest == sums[file.check]


def _checked(name: str, path: Path, sums: Mapping[str, str], file: RemoteFile, allow_unpinned: bool) -> str:
    digest = sums["sha256"]
    if file.check == "none":
        if file.size not in (None, path.stat().st_size):
            raise _wrong_size(name, str(path), file, path.stat().st_size)
        if not allow_unpinned:
            raise ArtifactError(
                path,
                f"has SHA-256 {digest}, and the dataset gives none to compare it with",
                f"if you trust the file, write this sum as sha256 of files.{name}, or set allow_unpinned to true",
            )
        log.warning("%s: SHA-256 %s of %s is not compared with anything (allow_unpinned)", name, digest, path)
        return digest
    if not _is_right(sums, file):
        raise _wrong_sum(name, str(path), sums[file.check], file, path.stat().st_size)
    log.info("%s: %s is as expected", name, SUMS[file.check])
    return digest


def _wrong_sum(name: str, where: str, digest: str, file: RemoteFile, size: int) -> ArtifactError:
    sizes = f" ({size} bytes instead of {file.size})" if file.size not in (None, size) else ""
    problem = f"has {SUMS[file.check]} {digest}, but {file.digest} is expected{sizes}"
    return _WrongSum(where, problem, _replace_hint(file.check, name))


def _wrong_size(name: str, where: str, file: RemoteFile, size: int) -> ArtifactError:
    return ArtifactError(where, f"has {size} bytes, but {file.size} are expected", _replace_hint("size", name))


def _replace_hint(setting: str, name: str) -> str:
    return f"delete or replace it, or, if it was changed on purpose, correct {setting} of files.{name} in the dataset"


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


class _WrongSum(ArtifactError):
    """A file with another sum than expected, whose download ended without an error."""


def _reason(problem: BaseException, url: str) -> str:
    text = " ".join(str(problem).replace(url, shown(url)).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


class _Downloader:
    """A downloader for pooch that tries again, goes on where a connection ended, and checks the bytes before pooch
    gives the file its name."""

    def __init__(self, name: str, file: RemoteFile, patience: Patience):
        self.name, self.file, self.patience = name, file, patience
        # By which a server knows the version that the first bytes came from.
        self.validator: str | None = None
        self.wrong_sums = 0

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
            except (requests.RequestException, urllib3.exceptions.HTTPError, ConnectionError, _WrongSum) as failure:
                if not self._may_pass(failure):
                    raise
                try:
                    retries = retries.increment("GET", shown(url), error=failure)
                except urllib3.exceptions.MaxRetryError:
                    raise failure from None
                log.warning(
                    "%s: %s; trying again in %g s", self.name, _reason(failure, url), retries.get_backoff_time()
                )
                retries.sleep()

    def _may_pass(self, failure: Exception) -> bool:
        """Whether a further try may succeed after a failure."""
        if isinstance(failure, _WrongSum):
            # Bytes may have been damaged on their way; twice the same way they hardly were.
            self.wrong_sums += 1
            return self.wrong_sums < 2
        answer = getattr(failure, "response", None)
        return answer is None or not 400 <= answer.status_code < 500 or answer.status_code in (408, 425, 429)

    def _stream(self, url: str, output: Path) -> None:
        """The bytes at `url` into the file `output`, after those that it has from an attempt before.

        Raises errors of requests and of urllib3, which compares what comes with Content-Length; ConnectionError where
        less than SLOWEST came for the timeout, or where the server does not go on with the file; and ArtifactError when
        far more comes than the dataset says.
        """
        import requests

        timeout = self.patience.timeout
        # Without this, some servers deliver archives with their gzip layer taken off, and sums differ.
        headers = {"Accept-Encoding": "identity", "User-Agent": "continuum-nmt"}
        present = output.stat().st_size if output.exists() else 0
        # Parts of two versions would make a file that nobody sent: without a sum it might be taken for whole.
        if present and (self.validator or self.file.digest):
            headers |= {"Range": f"bytes={present}-"} | ({"If-Range": self.validator} if self.validator else {})
        with requests.get(url, stream=True, timeout=timeout, headers=headers) as answer:
            continues = answer.status_code == 206 and answer.headers.get("Content-Range", "").startswith(
                f"bytes {present}-"
            )
            if answer.status_code == 416 or (answer.status_code == 206 and not continues):
                output.unlink(missing_ok=True)
                raise ConnectionError("the server does not go on with the file where it ended")
            answer.raise_for_status()
            etag = answer.headers.get("ETag", "")
            self.validator = etag if etag.startswith('"') else answer.headers.get("Last-Modified")
            begin = present if continues else 0
            progress = _Progress(self.name, begin, begin + (answer.raw.length_remaining or 0))
            # A server that says so of a .gz means the file itself, whose sum is that of the compressed bytes.
            decode = not places(self.file)[0].endswith((".gz", ".tgz"))
            with open(output, "ab" if continues else "wb") as file:
                began, bytes_before = time.monotonic(), progress.done
                while block := answer.raw.read1(BLOCK, decode_content=decode):
                    file.write(block)
                    progress.update(len(block))
                    if self.file.size is not None and progress.done > self.file.size + MOST_SURPLUS:
                        raise self._endless(url)
                    if (waited := time.monotonic() - began) >= timeout:
                        came = progress.done - bytes_before
                        if came < SLOWEST * waited:
                            raise ConnectionError(f"only {came} bytes came in {waited:.1f} s")
                        began, bytes_before = time.monotonic(), progress.done

    def _endless(self, url: str) -> ArtifactError:
        problem = f"sends more than the {self.file.size} bytes that are expected"
        return _WrongSum(shown(url), problem, f"correct size of files.{self.name} in the dataset, or its address")

    def _check(self, url: str, path: Path) -> None:
        """Raises ArtifactError, and removes the file, where it is not what the dataset says.

        Raises ConnectionError where it is a part of that.
        """
        try:
            self._compare(url, path)
        except ArtifactError:
            path.unlink()
            raise

    def _compare(self, url: str, path: Path) -> None:
        with open(path, "rb") as file:
            start = file.read(64).lstrip().lower()
        page = start.startswith(HTML_STARTS) and not urlsplit(url).path.endswith((".html", ".htm"))
        digest = file_digest(path, self.file.check) if self.file.digest else None
        if digest is not None and digest == self.file.digest:
            return
        if page:
            raise ArtifactError(
                shown(url),
                f"answers with a web page, not the file {self.name}",
                "open the address in a browser, save the file, and put it into a mirror folder as "
                f"{places(self.file)[0]}",
            )
        size = path.stat().st_size
        # A connection that ends early may look like the end of the file: not every server announces a length.
        if self.file.size is not None and size < self.file.size:
            raise ConnectionError(f"only {size} of {self.file.size} bytes came")
        if digest is not None:
            raise _wrong_sum(self.name, shown(url), digest, self.file, size)
        if self.file.size not in (None, size):
            raise _wrong_size(self.name, shown(url), self.file, size)


class _Progress:
    """Plain lines about a download every ten seconds."""

    def __init__(self, name: str, begin: int, total: int, every: float = 10.0):
        """`begin` bytes are there already, of `total` where the server says how many come, else of as many."""
        self.name, self.every, self.begin, self.done, self.total = name, every, begin, begin, total
        self.began = self.logged = time.monotonic()

    def update(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.logged >= self.every:
            self.logged = now
            share = f" of {self.total / 1e6:.0f}" if self.total > self.begin else ""
            rate = (self.done - self.begin) / 1e6 / (now - self.began)
            log.info("%s: %.0f%s MB, %.1f MB/s", self.name, self.done / 1e6, share, rate)


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
    """Local copies of a dataset's files, each fetched when it is first located. `fetched` describes them."""

    def __init__(
        self,
        files: Mapping[str, RemoteFile],
        folder: Path,
        mirrors: list[Path],
        allow_unpinned: bool,
        patience: Patience,
    ):
        self.files, self.folder, self.mirrors, self.allow_unpinned = files, folder, mirrors, allow_unpinned
        self.patience = patience
        self.fetched: dict[str, dict[str, Any]] = {}

    def locate(self, name: str) -> Path:
        if name not in self.fetched:
            file = self.files[name]
            path, digest = fetch(name, file, self.folder, self.mirrors, self.allow_unpinned, self.patience)
            self.fetched[name] = {
                "url": shown(file.url),
                "sha256": digest,
                "bytes": path.stat().st_size,
                "check": file.check,
                "path": str(path),
            }
        return Path(self.fetched[name]["path"])

    def provenance_inputs(self) -> dict[str, dict[str, Any]]:
        """The fetched files as `inputs` of a provenance."""
        return {name: {key: file[key] for key in ("path", "sha256", "url")} for name, file in self.fetched.items()}
