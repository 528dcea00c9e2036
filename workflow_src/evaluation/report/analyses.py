"""The analyses in the report: their blocks, for the page and as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
from matplotlib.figure import Figure

from workflow_src.evaluation.analyses.content import Content, check
from workflow_src.evaluation.analyses.shown import Block
from workflow_src.evaluation.manifest import Manifest
from workflow_src.evaluation.report.captions import Caption
from workflow_src.evaluation.report.markdown import markdown_table, plain
from workflow_src.records.atomic import read_json
from workflow_src.registry import analyses, import_object

TEMPLATE = Path(__file__).with_name("analyses.html.j2")


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


@dataclasses.dataclass(frozen=True)
class NumberedBlock:
    """A block with its heading, the name of its picture if it may have one, and its numbers.

    `table_caption` is the caption of the table, which refers to the picture where there is one.
    """

    block: Block
    title: str
    picture: str | None
    figure: int | None = None
    table: int | None = None
    table_caption: Caption = dataclasses.field(default_factory=lambda: Caption(""))


def blocks(contents: Mapping[str, Content], manifest: Manifest) -> list[NumberedBlock]:
    """Blocks of all analyses. The first picture of an analysis has its name; the names of others end in a number."""
    shown_blocks = []
    for name, content in contents.items():
        analysis_name, _, split = name.partition("-")
        analysis, pictures = analyses()[analysis_name], 0
        heading = f"{analysis.title}, {split}" if split else analysis.title
        for number, block in enumerate(import_object(analysis.show)(content, manifest)):
            title = block.title if block.title is not None else "" if number else heading
            pictures += block.figure is not None
            picture = name if pictures == 1 else f"{name}_{pictures}"
            shown_blocks.append(NumberedBlock(block, title, picture if block.figure else None))
    return shown_blocks


def draw(contents: Mapping[str, Content], manifest: Manifest) -> dict[str, Figure]:
    """Figures by name; those without content are left out."""
    all_blocks = blocks(contents, manifest)
    figures = {b.picture: b.block.figure() for b in all_blocks if b.picture and b.block.figure}
    return {name: figure for name, figure in figures.items() if figure is not None}


def context_of(
    contents: Mapping[str, Content],
    manifest: Manifest,
    carried: str = "",
    figures: Collection[str] = (),
    first_figure: int = 4,
    first_table: int = 3,
) -> dict[str, Any]:
    """Blocks with their numbers, without pictures.

    `carried` is put under every table. `figures` names the pictures that were drawn. Numbers begin with `first_figure`
    and `first_table`.
    """
    numbered_blocks, figure, table = [], first_figure, first_table
    for shown in blocks(contents, manifest):
        block, drawn = shown.block, shown.picture in figures
        # Examples without a picture are a table.
        numbered = block.table is not None or (block.figure is None and bool(block.examples))
        if not (drawn or numbered):
            continue
        caption = block.caption
        if drawn:
            caption = Caption(f"What Figure {figure} shows{', with its errors' if block.errors else ''}.")
        numbers = figure if drawn else None, table if numbered else None
        numbered_blocks.append(dataclasses.replace(shown, figure=numbers[0], table=numbers[1], table_caption=caption))
        figure, table = figure + drawn, table + numbered
    return {"blocks": numbered_blocks, "carried": carried}


def render(context: dict[str, Any], pictures: Mapping[str, markupsafe.Markup], languages: tuple[str, str]) -> str:
    """The section as HTML without its heading; `languages` are the codes of source and target."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source, target = languages
    variables = {"pictures": pictures, "source_code": source, "target_code": target}
    return markupsafe.Markup(environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(context | variables))


def markdown(context: dict[str, Any]) -> str:
    """The section as Markdown, without pictures; nothing where there are no analyses."""
    if not context["blocks"]:
        return ""
    sections = ["## Analyses"]
    for shown in context["blocks"]:
        if shown.table is None:
            continue
        block = shown.block
        sections += [f"### {shown.title}"] if shown.title else []
        caption = block.caption
        if block.table:
            caption = dataclasses.replace(caption, line=f"{caption.line} {context['carried']}")
            sections.append(caption.around(markdown_table(block.table.heads, block.table.rows)))
        else:
            lines = ["\n".join(f"- {line.name}: {plain(line.text)}" for line in lines) for lines in block.examples]
            sections.append(caption.around("\n\n".join(lines)))
    return "\n\n".join(sections)
