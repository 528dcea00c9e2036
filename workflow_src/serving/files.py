"""Files that `continuum translate` reads and writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from workflow_src.data.formats import json_format
from workflow_src.data.lines import STANDARD_INPUT, read_lines
from workflow_src.errors import MISSING, ArtifactError, ConfigError


def inputs_and_outputs(inputs: Sequence[Path], output: Path | None) -> list[tuple[Path, Path | None]]:
    """Pairs of a file to read and a file to write; None: standard output.

    For several inputs, for a folder, or where `output` is a folder, translations are files in `output` of the same
    names (for a folder, of the same relative paths, links followed); hidden files are left out. Raises InputError where
    names or places clash, where a folder cannot be read, and for a file of another format, before any text is
    translated.
    """
    pairs = _pairs(inputs, output)
    sources = {source.resolve() for source, _ in pairs}
    for source, target in pairs:
        if error := json_format(source):
            raise ArtifactError(source, error.problem, "write its texts as lines, as `jq -r .FIELD` does")
        if source != STANDARD_INPUT and source.is_file():
            # Another format shows in the first line.
            next(read_lines(source, own=True), None)
        if target is None:
            continue
        if target.resolve() in sources or _is_same_file(source, target):
            raise ArtifactError(target, "is one of the files to translate", "name another file or folder as --output")
        if target.is_dir():
            raise ArtifactError(target, f"is a folder, and {source} is to be translated into it", "move one of the two")
    return pairs


def _is_same_file(source: Path, target: Path) -> bool:
    """Whether two paths lead to one file; standard input may be redirected from a file."""
    try:
        read = os.fstat(sys.stdin.fileno()) if source == STANDARD_INPUT else source.stat()
        return os.path.samestat(read, target.stat())
    except (OSError, ValueError, AttributeError):
        # One of them does not exist, or standard input is closed or no file.
        return False


def _pairs(inputs: Sequence[Path], output: Path | None) -> list[tuple[Path, Path | None]]:
    if not inputs:
        return [(STANDARD_INPUT, output)]
    into_folder = output is not None and output.is_dir()
    if len(inputs) == 1 and not inputs[0].is_dir() and not into_folder:
        return [(inputs[0], output)]
    if output is None:
        raise ConfigError("--output", problem="missing", hint="name a folder for the translations of several files")
    if output.exists() and not output.is_dir():
        raise ArtifactError(output, "is a file", "name a folder for the translations of several files")
    pairs: dict[Path, Path] = {}
    for path in inputs:
        # Another run would translate its own translations.
        if path.is_dir() and path.resolve() in output.resolve().parents:
            raise ArtifactError(output, f"is inside {path}, which is to be translated", "name a folder outside of it")
        for source, name in _files(path):
            target = output / name
            if target in pairs:
                raise ConfigError(
                    "--input", str(source), problem=f"{pairs[target]} has the same name", hint="rename one of the two"
                )
            pairs[target] = source
    return [(source, target) for target, source in pairs.items()]


def _files(path: Path) -> Iterator[tuple[Path, Path]]:
    """A file with its name, or all files below a folder, links followed, with their paths in it."""
    if not path.is_dir():
        if not path.exists():
            raise ArtifactError(path, MISSING)
        yield path, Path(path.name)
        return
    sources = sorted(_below(path, {path.resolve()}))
    if not sources:
        raise ArtifactError(path, "has no files", "name a folder of texts")
    for source in sources:
        yield source, source.relative_to(path)


def _below(folder: Path, above: set[Path]) -> Iterator[Path]:
    """All files below a folder that are not hidden; `above` are the folders that it lies in, and itself."""
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as failure:
        raise ArtifactError(folder, f"cannot be read ({failure.strerror})", "make it readable, or move it") from None
    for path in paths:
        if path.is_dir():
            place = path.resolve()
            if place in above:
                raise ArtifactError(path, f"is a link to {place}, in which it lies itself", "remove the link")
            yield from _below(path, above | {place})
        elif path.is_file():
            yield path
        else:
            raise ArtifactError(path, "is no file, or a link to none", "remove it")
