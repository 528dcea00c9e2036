"""The analyses in the report: blocks of those that are declared, for the page and as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
from matplotlib.figure import Figure

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.analyses.content import Content, check
from workflow_src.evaluation.analyses.shown import Block
from workflow_src.evaluation.report.captions import Caption
from workflow_src.evaluation.report.markdown import markdown_table, plain
from workflow_src.records.atomic import read_json
from workflow_src.registry import analyses, import_object

TEMPLATE = Path(__file__).with_name("analyses.html.j2")


def read(paths: Iterable[Path]) -> dict[str, Content]:
    """Contents of files by analysis, in the order of the report. Raises ArtifactError for a file that is none.

    An analysis that was measured on several splits has the further ones as `NAME-SPLIT`.
    """
    contents: dict[str, dict[str, Content]] = {}
    for path in paths:
        content = read_json(path)
        checked = check(content, str(path), "make it again")
        name, of_name = content["analysis"], contents.setdefault(content["analysis"], {})
        of_name[f"{name}-{checked.split}" if of_name else name] = checked
    return {key: one for name in analyses() for key, one in contents.get(name, {}).items()}


@dataclasses.dataclass(frozen=True)
class Shown:
    """A block with its heading, the name of its picture if it may have one, and its numbers.

    `table_caption` is that of the table, which says what the picture does where there is one.
    """

    block: Block
    title: str
    picture: str | None
    figure: int | None = None
    table: int | None = None
    table_caption: Caption = dataclasses.field(default_factory=lambda: Caption(""))


def blocks(contents: Mapping[str, Content], manifest: Manifest) -> list[Shown]:
    """Blocks of all analyses. The first picture of an analysis has its name, others a number behind it."""
    shown_blocks = []
    for name, content in contents.items():
        own, _, further = name.partition("-")
        analysis, pictures = analyses()[own], 0
        heading = f"{analysis.title}, {further}" if further else analysis.title
        for number, block in enumerate(import_object(analysis.show)(content, manifest)):
            title = block.title if block.title is not None else "" if number else heading
            pictures += block.figure is not None
            picture = name if pictures == 1 else f"{name}_{pictures}"
            shown_blocks.append(Shown(block, title, picture if block.figure else None))
    return shown_blocks


def draw(contents: Mapping[str, Content], manifest: Manifest) -> dict[str, Figure]:
    """Figures by name; those without content are left out."""
    figures = {
        one.picture: one.block.figure() for one in blocks(contents, manifest) if one.picture and one.block.figure
    }
    return {name: figure for name, figure in figures.items() if figure is not None}


def context_of(
    contents: Mapping[str, Content],
    manifest: Manifest,
    carried: str = "",
    figures: Collection[str] = (),
    first_figure: int = 4,
    first_table: int = 3,
) -> dict[str, Any]:
    """Blocks with their numbers, apart from pictures.

    `carried` stands under every table. `figures` names the pictures that were drawn. Numbers begin with `first_figure`
    and `first_table`.
    """
    numbered_blocks, figure, table = [], first_figure, first_table
    for one in blocks(contents, manifest):
        block, drawn = one.block, one.picture in figures
        # Examples without a picture are a table.
        numbered = block.table is not None or (block.figure is None and bool(block.examples))
        if not (drawn or numbered):
            continue
        caption = block.caption
        if drawn:
            caption = Caption(f"What Figure {figure} shows{', with its errors' if block.errors else ''}.")
        numbers = figure if drawn else None, table if numbered else None
        numbered_blocks.append(dataclasses.replace(one, figure=numbers[0], table=numbers[1], table_caption=caption))
        figure, table = figure + drawn, table + numbered
    return {"blocks": numbered_blocks, "carried": carried}


def render(context: dict[str, Any], pictures: Mapping[str, markupsafe.Markup], languages: tuple[str, str]) -> str:
    """The section as HTML without its heading; `languages` are the codes of source and target."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source, target = languages
    more = {"pictures": pictures, "source_code": source, "target_code": target}
    return markupsafe.Markup(environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(context | more))


def markdown(context: dict[str, Any]) -> str:
    """The section as Markdown, without pictures; nothing where there are no analyses."""
    if not context["blocks"]:
        return ""
    parts = ["## Analyses"]
    for one in context["blocks"]:
        if one.table is None:
            continue
        block = one.block
        parts += [f"### {one.title}"] if one.title else []
        caption = block.caption
        if block.table:
            caption = dataclasses.replace(caption, line=f"{caption.line} {context['carried']}")
            parts.append(caption.around(markdown_table(block.table.heads, block.table.rows)))
        else:
            lines = ["\n".join(f"- {line.name}: {plain(line.text)}" for line in lines) for lines in block.examples]
            parts.append(caption.around("\n\n".join(lines)))
    return "\n\n".join(parts)
