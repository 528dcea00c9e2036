"""Files that `continuum translate` reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from workflow_src.errors import ArtifactError, ConfigError

STANDARD_INPUT = Path("/dev/stdin")


def inputs_and_outputs(inputs: Sequence[Path], output: Path | None) -> list[tuple[Path, Path | None]]:
    """Pairs of a file to read and a file to write; None: standard output.

    For several inputs, for a folder, or where `output` is a folder, translations are files in `output` of the same
    names (for a folder, of the same relative paths); hidden files are left out. Raises InputError where names or places
    clash, before anything is read.
    """
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
    sources = {source.resolve() for source in pairs.values()}
    for target, source in pairs.items():
        if target.resolve() in sources:
            raise ArtifactError(target, "is one of the files to translate", "name another folder as --output")
        if target.is_dir():
            raise ArtifactError(target, f"is a folder, and {source} is to be translated into it", "move one of the two")
    return [(source, target) for target, source in pairs.items()]


def _files(path: Path) -> Iterator[tuple[Path, Path]]:
    """A file with its name, or all files below a folder with their paths in it."""
    if not path.is_dir():
        if not path.exists():
            raise ArtifactError(path, "does not exist")
        yield path, Path(path.name)
        return
    names = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
    names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    if not names:
        raise ArtifactError(path, "has no files", "name a folder of texts")
    for name in names:
        yield path / name, name
