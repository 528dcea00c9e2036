"""Fetching files: from mirror folders first, then from the network; SHA-256 always."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from workflow_src.artifacts import ArtifactError, sha256
from workflow_src.config.datasets import RemoteFile

log = logging.getLogger("continuum")

ATTEMPTS = 4
FIRST_WAIT = 1.0  # seconds before the second attempt; each further wait is twice as long
TIMEOUT = (15, 60)  # seconds to connect, and to wait for the next bytes
HTML_STARTS = (b"<!doctype html", b"<html")


def places(file: RemoteFile) -> list[str]:
    """HOST/PATH of a file's URL, as mirrors and the download folder name it; the first one is where we keep it.

    A query belongs to the name, as in what `wget -x` writes. A `filename` in the configuration replaces the last part.
    """
    url = urlsplit(file.url)
    path = unquote(url.path).lstrip("/")
    if ".." in path.split("/") or not url.hostname:
        raise ArtifactError(f"the address {file.url} cannot be a file of a mirror; write it without `..`.")
    host = url.netloc.rpartition("@")[2].replace(":", "_")
    folder, _, last = path.rpartition("/")
    stem = "/".join(filter(None, [host, folder]))
    # A query may hold slashes, which would make folders of it.
    plain = f"{stem}/{last}" + (f"?{url.query}".replace("/", "%2F") if url.query else "")
    if file.filename:
        if "/" in file.filename or file.filename in ("", ".", ".."):
            raise ArtifactError(f'the filename "{file.filename}" of {file.url} must be a plain name without folders.')
        return [f"{stem}/{file.filename}", plain]
    return [plain]


def fetch(
    name: str,
    file: RemoteFile,
    folder: str | Path,
    mirrors: Sequence[str | Path] = (),
    allow_unpinned: bool = False,
    first_wait: float = FIRST_WAIT,
) -> tuple[Path, str]:
    """A local copy of `file`, and its SHA-256: of a mirror, or in `folder`, where it is downloaded to if need be.

    `name` is the file's key in the dataset, for messages. A file appears under its name only when it is whole and
    its sum is right. Raises ArtifactError when a sum is wrong (the file, both sums and what to do), when the sum is
    not known yet and `allow_unpinned` is false, or when the network fails for good.
    """
    for mirror in mirrors:
        for place in places(file):
            path = Path(mirror) / place
            if path.is_file():
                log.info("%s: found in mirror %s", name, mirror)
                return path, _checked(name, path, file, allow_unpinned)
    path = Path(folder) / places(file)[0]
    if path.is_file():
        if file.sha256 in (None, sha256(path)):
            return path, _checked(name, path, file, allow_unpinned)
        log.warning("%s: %s has another SHA-256 than the configuration; downloading it again", name, path)
    _download(name, file, path, first_wait)
    return path, _checked(name, path, file, allow_unpinned)


def _checked(name: str, path: Path, file: RemoteFile, allow_unpinned: bool) -> str:
    found = sha256(path)
    if file.sha256 is None:
        if not allow_unpinned:
            raise ArtifactError(
                f"file {path} ({name}) has SHA-256 {found}, and the dataset gives none to compare it with; if you "
                f"trust the file, write this sum as sha256 of files.{name}, or set allow_unpinned to true."
            )
        log.warning("%s: SHA-256 %s of %s is not compared with anything (allow_unpinned)", name, found, path)
    elif found != file.sha256:
        raise _wrong_sum(name, str(path), found, file, path.stat().st_size)
    return found


def _wrong_sum(name: str, where: str, found: str, file: RemoteFile, size: int) -> ArtifactError:
    sizes = f" ({size} bytes instead of {file.size})" if file.size not in (None, size) else ""
    return ArtifactError(
        f"file {where} ({name}) has SHA-256 {found}, but {file.sha256} is expected{sizes}; delete or replace it, or, "
        f"if the file was changed on purpose, correct sha256 of files.{name} in the dataset."
    )


def _download(name: str, file: RemoteFile, path: Path, first_wait: float) -> None:
    """Download to `path`, which appears when all bytes have come and their sum is right."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    # Without this, some servers deliver archives with their gzip layer taken off, and sums differ.
    headers = {"Accept-Encoding": "identity", "User-Agent": "continuum-nmt"}
    problem: Exception | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            wait = first_wait * 2 ** (attempt - 1)
            log.warning("%s: %s; trying again in %g s", name, problem, wait)
            time.sleep(wait)
        log.info("%s: downloading %s", name, file.url)
        known = f"sha256:{file.sha256}" if file.sha256 else None
        downloader = pooch.HTTPDownloader(
            progressbar=_Progress(name), chunk_size=1 << 20, timeout=TIMEOUT, headers=headers
        )
        check = _Check(name, file, downloader)
        try:
            pooch.retrieve(file.url, known_hash=known, fname=path.name, path=path.parent, downloader=check)
            return
        except requests.HTTPError as failure:
            problem = failure
            status = failure.response.status_code if failure.response is not None else 0
            if 400 <= status < 500 and status not in (408, 425, 429):
                break
        except (requests.RequestException, ConnectionError, TimeoutError) as failure:
            problem = failure
    raise ArtifactError(
        f"cannot download {file.url} ({_reason(problem)}); check the network and the address, or put the file into a "
        f"mirror folder as {places(file)[0]} and name that folder in the setting mirrors or in CONTINUUM_MIRRORS."
    )


def _reason(problem: Exception | None) -> str:
    text = " ".join(str(problem).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


class _Check:
    """A downloader for pooch that looks at what came before pooch gives the file its name."""

    def __init__(self, name: str, file: RemoteFile, downloader):
        self.name, self.file, self.downloader = name, file, downloader

    def __call__(self, url, output_file, pooch, check_only=False):
        self.downloader(url, output_file, pooch)
        path = Path(output_file)
        with open(path, "rb") as file:
            start = file.read(64).lstrip().lower()
        page = start.startswith(HTML_STARTS) and not urlsplit(url).path.endswith((".html", ".htm"))
        if self.file.sha256 is not None:
            found = sha256(path)
            if found == self.file.sha256:
                return
            if self.file.size and path.stat().st_size < self.file.size and not page:
                raise ConnectionError(f"only {path.stat().st_size} of {self.file.size} bytes came")
            if not page:
                raise _wrong_sum(self.name, f"from {url}", found, self.file, path.stat().st_size)
        if page:
            raise ArtifactError(
                f"the answer from {url} is a web page, not the file {self.name}; open the address in a browser, "
                f"save the file, and put it into a mirror folder as {places(self.file)[0]}."
            )


class _Progress:
    """Plain lines about a download every ten seconds, in the shape of a progress bar that pooch asks for."""

    total = 0

    def __init__(self, name: str, every: float = 10.0):
        self.name, self.every, self.done = name, every, 0
        self.began = self.told = time.monotonic()

    def update(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.told >= self.every:
            self.told = now
            share = f" of {self.total / 1e6:.0f}" if self.total else ""
            with contextlib.suppress(ZeroDivisionError):
                rate = self.done / 1e6 / (now - self.began)
                log.info("%s: %.0f%s MB, %.1f MB/s", self.name, self.done / 1e6, share, rate)

    def reset(self) -> None:
        self.told = time.monotonic()

    def close(self) -> None:
        pass
