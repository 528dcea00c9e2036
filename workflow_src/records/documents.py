"""Documents of jobs and runs: JSON files that are named by the digest of their content."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import atomic, canonical, fingerprint, read_json


class JobDocument:
    """A JSON object in a file that is named by the digest of its content, so that a written one never changes.

    A job's document has its settings and files by the names of its stage's inputs, and is the same for jobs of equal
    inputs; a run's document has the settings of the machine.
    """

    def __init__(self, folder: str | Path, content: Mapping[str, Any]):
        self.content = content
        self.path = Path(folder, f"{fingerprint(content)[:32]}.json")

    def write(self) -> None:
        """Write the file where it is absent or damaged. Raises ArtifactError where there is no room for it."""
        text = canonical(self.content)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if self.path.read_text(encoding="utf-8") == text:
                return
        with atomic(self.path) as file:
            file.write(text)


def read_document(path: str | Path) -> dict[str, Any]:
    """The content of a `JobDocument`. Raises ArtifactError for a file that is none."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ArtifactError(path, "is no JSON object of inputs", "start Snakemake again, which writes it")
    return content
