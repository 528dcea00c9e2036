"""The pages of docs/ whose files a reader writes."""

from __future__ import annotations

import re
from pathlib import Path

from conftest import PROJECT

# A file of a tutorial: its path in a line of its own, then its text as a block.
FILE = re.compile(r"^`([\w./]+)`:\n\n```(?:python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write(page: str, folder: Path) -> list[str]:
    """Write the files of a page into a folder; returns their paths."""
    files = FILE.findall((PROJECT / "docs" / page).read_text(encoding="utf-8"))
    for path, text in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return [path for path, _ in files]
