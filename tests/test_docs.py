"""README and docs: links and anchors lead somewhere, prose is wrapped in one way, pages can be reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import PROJECT

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
WIDTH = 120
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> list[str]:
    """Lines of a page without blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S).splitlines()


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    titles = [line.lstrip("#").strip().lower() for line in prose(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page):
    for target in (link for line in prose(page) for link in LINK.findall(line)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_is_wrapped_in_one_way(page):
    """As many words a line as fit; tables, headings and formulas are as they are."""
    lines = prose(page)
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(("|", "#", "    ", "![")) or not line.strip():
            continue
        assert len(line) <= WIDTH, line
        continues = following.strip() and not re.match(r"\s*([-*] |\d+\. |\||#)", following)
        if continues:
            assert len(line) + 1 + len(following.split()[0]) > WIDTH, f"{line}\n{following}"


def test_every_page_can_be_reached_from_the_readme():
    reached, new = set(), [PROJECT / "README.md"]
    while new:
        page = new.pop()
        reached.add(page)
        links = {target.partition("#")[0] for line in prose(page) for target in LINK.findall(line)}
        found = {(page.parent / link).resolve() for link in links if link.endswith(".md") and "://" not in link}
        new += found - reached - set(new)
    assert set(PAGES) <= reached
