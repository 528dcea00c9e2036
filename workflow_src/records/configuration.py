"""The configuration that a run began with, and the files that a report was made from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json
from workflow_src.records.dates import contents
from workflow_src.records.documents import JobDocument, read_document

# The environment variable with the digests of the configuration files, by path.
FILES = "CONTINUUM_CONFIGURATION"
# The environment variable with the documents of the configurations that a run began with, by experiment. Jobs on other
# machines, which read the rules anew, inherit it.
BEGUN = "CONTINUUM_BEGUN"


def keep_configuration(experiment: str, content: dict[str, Any]) -> None:
    """Write the configuration of a run that begins, for its jobs on other machines."""
    document = JobDocument("work/jobs/configuration", content)
    document.write()
    os.environ[BEGUN] = json.dumps(_from_environment(BEGUN) | {experiment: str(document.path)})


def kept_configuration(experiment: str) -> dict[str, Any] | None:
    """The configuration that the run of a job on another machine began with; None where that is not known.

    So an edit while a job waits in the queue changes nothing of it.
    """
    path = _from_environment(BEGUN).get(experiment)
    return read_document(path) if path else None


def _from_environment(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(os.environ.get(name, "{}"))
    return content


def keep_files(paths: Iterable[str | Path]) -> None:
    """Let jobs, also those on other machines, know the configuration files of this run, as they are at its start."""
    os.environ[FILES] = json.dumps(contents(map(os.path.relpath, paths)))


def configuration_files() -> dict[str, str | None]:
    """SHA-256 that the configuration files of this run had at its start, by their path from the working directory."""
    return _from_environment(FILES)


def replaced_report(results: Path, files: Iterable[str | Path]) -> str:
    """A warning where the report of `results` (provenance.json) was made from other files than `files`; else "".

    Files that only lie over those of before, such as settings of a machine, are no other configuration, nor is a file
    that was moved. Of a report that does not say what it was made from, nothing is known.
    """
    try:
        provenance = read_json(results)["provenance"]
        recorded = provenance["configuration"]
    except (ArtifactError, OSError, LookupError, TypeError):
        return ""
    now = contents(map(os.path.relpath, files))
    if not recorded or _has(recorded, now) or _has(now, recorded):
        return ""
    return (
        f"{results.parent} was made from {' and '.join(recorded)} on {provenance['created'][:10]}; a report from "
        f"{' and '.join(now)} replaces it. Give one of the two another name under experiment: to keep both."
    )


def _has(files: Mapping[str, str | None], others: Mapping[str, str | None]) -> bool:
    """Whether each of `others`, digests by path, is one of `files`: by its place, or by its content."""
    places = set(map(os.path.realpath, files))
    return all(os.path.realpath(path) in places or digest in files.values() for path, digest in others.items())
