"""The configuration files that a report was made from, and a warning where others replace it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json
from workflow_src.records.dates import contents

# The environment variable with the paths of the configuration files, which the workflow sets.
FILES = "CONTINUUM_CONFIGURATION"


def configuration_files() -> dict[str, str | None]:
    """SHA-256 of the configuration files of this run by their path from the working directory."""
    paths = os.environ.get(FILES, "")
    return contents(os.path.relpath(path) for path in paths.split(os.pathsep) if path)


def replaced_report(results: Path, files: Iterable[str | Path]) -> str:
    """A warning where the report with `results` (results.json) was made from other files than `files`; else "".

    Of a report that does not say what it was made from, nothing is known.
    """
    try:
        provenance = read_json(results)["provenance"]
        recorded = provenance["configuration"]
    except (ArtifactError, OSError, LookupError, TypeError):
        return ""
    now = [os.path.relpath(path) for path in files]
    if not recorded or set(recorded) == set(now):
        return ""
    return (
        f"{results.parent} was made from {' and '.join(recorded)} on {provenance['created'][:10]}; a report from "
        f"{' and '.join(now)} replaces it. Give one of the two another name under experiment: to keep both."
    )
