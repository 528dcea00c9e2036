"""The analyses in the report, for the page and as Markdown; their tables and captions have modules of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
from matplotlib.figure import Figure

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.analyses import contents
from workflow_src.evaluation.analyses.contents import Analyses
from workflow_src.evaluation.analyses.curves import Curves
from workflow_src.evaluation.report import analysis_captions, analysis_tables, page
from workflow_src.evaluation.report.analysis_figures import DRAWN, start_title
from workflow_src.evaluation.report.markdown import markdown_table, paragraph, plain
from workflow_src.records.atomic import read_json

TEMPLATE = Path(__file__).with_name("analyses.html.j2")


def read(paths: list[Path]) -> Analyses:
    """Analyses from their files. Raises ArtifactError for a file that is none, or is damaged."""
    found = {}
    for path in paths:
        content = read_json(path)
        checked = contents.check(content, f"file {path}", "make it again")
        found[content["analysis"]] = checked
    return Analyses(**found)


def draw(found: Analyses, manifest: Manifest) -> dict[str, Figure]:
    """Figures by name; those without content are left out."""
    drawn = ((name, DRAWN[name](content, manifest)) for name, content in found.made().items() if name in DRAWN)
    return {name: figure for name, figure in drawn if figure is not None}


@dataclasses.dataclass(frozen=True)
class Shown:
    """A sample with its differences marked in HTML."""

    sample: contents.Sample
    sampled_html: markupsafe.Markup
    refined_html: markupsafe.Markup


def context_of(
    found: Analyses,
    manifest: Manifest,
    carried: str = "",
    figures: Collection[str] = tuple(DRAWN),
    first_figure: int = 4,
    first_table: int = 3,
) -> dict[str, Any]:
    """Numbers, tables and captions, apart from pictures.

    `carried` stands under every table. `figures` names those that have content. Numbers begin with `first_figure` and
    `first_table`.
    """
    made = found.made()
    drawn = [name for name in made if name in figures]
    captions, tables = analysis_captions.captions(found, manifest), _tables(found, manifest)
    figure_numbers = {name: first_figure + number for number, name in enumerate(drawn)}
    table_captions = dict(captions)
    for name in drawn:
        if name in tables:
            also = ", with its errors" if isinstance(made[name], Curves) else ""
            table_captions[name] = f"What Figure {figure_numbers[name]} shows{also}."
    numbered = [*tables, *(["samples"] if found.samples else [])]
    return {
        "found": found,
        "shown": bool(drawn or numbered),
        "carried": carried,
        "captions": captions,
        "figure_numbers": figure_numbers,
        "tables": tables,
        "table_captions": table_captions,
        "table_numbers": {name: first_table + number for number, name in enumerate(numbered)},
        "points": _points(found.latent_space, manifest),
        "refined_class": _refined_class(found.samples, manifest),
        "examples": [_shown(example) for example in found.samples.examples] if found.samples else [],
    }


def _tables(found: Analyses, manifest: Manifest) -> dict[str, dict[str, Any]]:
    """Tables by name, in the order of the section."""
    tables = {}
    if found.marginal:
        tables["marginal"] = analysis_tables.marginal_table(found.marginal, manifest)
    if found.tokens:
        tables["tokens"] = analysis_tables.tokens_table(found.tokens, manifest)
    if found.lengths:
        tables["accuracy"] = analysis_tables.accuracy_table(found.lengths)
        tables["lengths"] = analysis_tables.length_table(found.lengths, manifest)
    if found.energies:
        tables["energies"] = analysis_tables.energies_table(found.energies, manifest)
        if found.energies.at_reference_lengths:
            tables["reference_lengths"] = analysis_tables.reference_lengths_table(found.energies, manifest)
    if found.convergence:
        tables["convergence"] = analysis_tables.convergence_table(found.convergence, manifest)
    if found.latent_paths:
        tables["latent_paths"] = analysis_tables.latent_paths_table(found.latent_paths, manifest)
    if found.components:
        tables["components"] = analysis_tables.components_table(found.components)
    if found.reordering:
        tables["reordering"] = analysis_tables.reordering_table(found.reordering)
    return tables


def _points(found: contents.LatentSpace | None, manifest: Manifest) -> list[tuple[str, str]]:
    """Outputs that a map of the latent space tells, with their titles."""
    if found is None:
        return []
    ends = [(name, manifest.title(name)) for name in found.searches]
    return [("posterior", "posterior"), ("prior", start_title(manifest)), *ends]


def _refined_class(found: contents.Samples | None, manifest: Manifest) -> str:
    if found is None:
        return ""
    return page.colour_class(manifest.look(found.search.system, found.search.search).colour)


def _shown(sample: contents.Sample) -> Shown:
    """What refinement takes away is marked in what was sampled, what it puts in in what is refined."""
    return Shown(sample, page.marked(sample.refined, sample.sampled), page.marked(sample.sampled, sample.refined))


def render(context: dict[str, Any], pictures: dict[str, markupsafe.Markup], languages: Any) -> str:
    """The section as HTML without its heading; `languages` are the codes of source and target."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source, target = languages
    more = {"figures": pictures, "source_code": source, "target_code": target}
    return markupsafe.Markup(environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(context | more))


HEADINGS = {
    "marginal": "Marginal log-probability",
    "tokens": "Changes of tokens",
    "accuracy": "Lengths",
    "lengths": "",
    "energies": "Energies",
    "reference_lengths": "At the references' lengths",
    "convergence": "Convergence",
    "latent_paths": "Paths of the latents",
    "components": "Components of the latents",
    "reordering": "Latents and word order",
}


def markdown(context: dict[str, Any]) -> str:
    """The section as Markdown; nothing where there are no analyses."""
    if not context["shown"]:
        return ""
    parts = ["## Analyses"]
    for name, table in context["tables"].items():
        parts += [f"### {HEADINGS[name]}"] if HEADINGS[name] else []
        parts += [
            paragraph(f"{context['captions'][name]} {context['carried']}"),
            markdown_table(table["heads"], table["rows"]),
        ]
    if context["examples"]:
        parts += ["### Samples", paragraph(context["captions"]["samples"])]
        for example in context["examples"]:
            told = [(name, getattr(example.sample, name)) for name in ("source", "reference", "sampled", "refined")]
            lines = [f"- {name}: {plain(text)}" for name, text in told]
            parts.append("\n".join(lines))
    return "\n\n".join(parts)
