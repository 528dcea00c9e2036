"""Details of a decode by sentence: JSON lines with more than its translations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workflow_src.data.lines import read_lines
from workflow_src.data.placeholders import PLACEHOLDERS
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.errors import ArtifactError, short_repr

# Types of what stages read from details that have it.
READ: dict[str, type | tuple[type, ...]] = {"steps": (int, float), PLACEHOLDERS: dict}


def read_details(path: Path) -> list[dict[str, Any]]:
    """Details of each sentence. Raises ArtifactError naming the file and line that cannot be used."""
    records = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            records.append(json.loads(line))
            records[-1].keys()
        except (json.JSONDecodeError, AttributeError):
            raise ArtifactError(path, "is not a JSON object", "make the file again", line=number) from None
        if not isinstance(records[-1].get(WITHOUT_REPEATED_SUBWORDS), str):
            raise ArtifactError(
                path,
                f"has no {WITHOUT_REPEATED_SUBWORDS}",
                "delete it (and its shards, where there are some) and run again",
                line=number,
            )
        for name, kind in READ.items():
            value = records[-1].get(name)
            if value is not None and not isinstance(value, kind):
                raise ArtifactError(path, f"has {name} {short_repr(value)}", "make the file again", line=number)
    return records
