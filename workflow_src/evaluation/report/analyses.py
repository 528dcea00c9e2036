"""The analyses in the report: their files, and their section."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from workflow_src.evaluation.analyses.content import Content, check
from workflow_src.evaluation.document import Beside, Block, Fold, Heading, Picture, Section, Table
from workflow_src.evaluation.manifest import Manifest
from workflow_src.records.atomic import read_json
from workflow_src.registry import analyses, import_object


def read(paths: Iterable[Path]) -> dict[str, Content]:
    """Contents of files by analysis, in the order of the report. Raises ArtifactError for a file of no analysis.

    Of an analysis that was measured on several splits, all but the first have the key `NAME-SPLIT`.
    """
    contents: dict[str, dict[str, Content]] = {}
    for path in paths:
        content = read_json(path)
        checked = check(content, str(path), "make it again")
        name, by_key = content["analysis"], contents.setdefault(content["analysis"], {})
        by_key[f"{name}-{checked.split}" if by_key else name] = checked
    return {key: content for name in analyses() for key, content in contents.get(name, {}).items()}


def blocks(contents: Mapping[str, Content], manifest: Manifest, carried: str = "") -> list[Block]:
    """The blocks of all analyses, each below its title; `carried` is put under every numbered table.

    The first picture of an analysis has its name; the names of others end in a number.
    """
    shown_blocks: list[Block] = []
    for name, content in contents.items():
        analysis_name, _, split = name.partition("-")
        analysis = analyses()[analysis_name]
        own = import_object(analysis.show)(content, manifest)
        if own:
            shown_blocks.append(Heading(f"{analysis.title}, {split}" if split else analysis.title))
            shown_blocks += _completed(own, _names(name), carried)
    return shown_blocks


def _names(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _completed(blocks: Sequence[Block], names: Iterator[str], carried: str) -> Iterator[Block]:
    """The blocks with names of pictures and with `carried` in captions of tables."""
    for block in blocks:
        if isinstance(block, Picture):
            yield dataclasses.replace(block, name=next(names))
        elif isinstance(block, Table) and block.numbered:
            caption = dataclasses.replace(block.caption, line=f"{block.caption.line} {carried}".strip())
            yield dataclasses.replace(block, caption=caption)
        elif isinstance(block, Fold | Beside | Section):
            yield dataclasses.replace(block, blocks=list(_completed(block.blocks, names, carried)))
        else:
            yield block
