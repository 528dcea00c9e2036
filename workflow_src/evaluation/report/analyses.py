"""The analyses in the report, for the page and as Markdown; their tables and captions have modules of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.report import analysis_captions, analysis_tables, page
from workflow_src.evaluation.report.analysis_figures import DRAWN, paths, start_title
from workflow_src.evaluation.report.markdown import markdown_table
from workflow_src.records.atomic import ArtifactError, read_json

TEMPLATE = Path(__file__).with_name("analyses.html.j2")
NAMES = ("marginal", "tokens", "lengths", "energies", "latent_space", "convergence", "latent_paths", "components",
         "reordering", "samples")  # fmt: skip
# The report's own come before.
FIRST_FIGURE, FIRST_TABLE = 4, 3


def read(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Analyses by name, in the order of the section. Raises ArtifactError for a file that is none."""
    found = {}
    for path in paths:
        content = read_json(path)
        name = content.get("analysis") if isinstance(content, dict) else None
        if name not in NAMES:
            raise ArtifactError(f"file {path} is no analysis ({', '.join(NAMES)}); make it again.")
        found[name] = content
    return {name: found[name] for name in NAMES if name in found}


def draw(found: dict[str, dict[str, Any]], manifest: Manifest) -> dict[str, Any]:
    """Figures by name."""
    return {name: DRAWN[name](content, manifest) for name, content in found.items() if name in DRAWN}


def context_of(found: dict[str, dict[str, Any]], manifest: Manifest, carried: str = "") -> dict[str, Any]:
    """Numbers, tables and captions, apart from pictures. `carried` stands under every table."""
    drawn = [name for name in found if name in DRAWN]
    captions = analysis_captions.captions(found, manifest)
    context: dict[str, Any] = {
        "found": found,
        "carried": carried,
        "captions": captions,
        "figure_numbers": {name: FIRST_FIGURE + number for number, name in enumerate(drawn)},
        "tables": {},
        "table_captions": dict(captions),
        "points": _points(found, manifest),
        "refined_class": _refined_class(found, manifest),
    }
    if "marginal" in found:
        context["tables"]["marginal"] = analysis_tables.marginal_table(found["marginal"], manifest)
    if "tokens" in found:
        context["tables"]["tokens"] = analysis_tables.tokens_table(found["tokens"], manifest)
    if "lengths" in found:
        context["tables"]["accuracy"] = analysis_tables.accuracy_table(found["lengths"])
        context["tables"]["lengths"] = analysis_tables.length_table(found["lengths"], manifest)
    if "energies" in found:
        energies = found["energies"]
        context["tables"]["energies"] = analysis_tables.energies_table(energies, manifest)
        if energies.get("at_reference_lengths"):
            context["tables"]["reference_lengths"] = analysis_tables.reference_lengths_table(energies, manifest)
    if "convergence" in found:
        context["tables"]["convergence"] = analysis_tables.convergence_table(found["convergence"], manifest)
    if "latent_paths" in found:
        context["tables"]["latent_paths"] = analysis_tables.latent_paths_table(found["latent_paths"], manifest)
    if "components" in found:
        context["tables"]["components"] = analysis_tables.components_table(found["components"])
    if "reordering" in found:
        context["tables"]["reordering"] = analysis_tables.reordering_table(found["reordering"])
    numbered = [*context["tables"], *(["samples"] if "samples" in found else [])]
    for name in drawn:
        if name in context["tables"]:
            also = ", with its errors" if "curves" in found[name] else ""
            context["table_captions"][name] = f"What Figure {context['figure_numbers'][name]} shows{also}."
    context["table_numbers"] = {name: FIRST_TABLE + number for number, name in enumerate(numbered)}
    context["examples"] = [
        example
        | {
            "sampled_html": page.marked(example["refined"], example["sampled"]),
            "refined_html": page.marked(example["sampled"], example["refined"]),
        }
        for example in found.get("samples", {}).get("examples", [])
    ]
    return context


def _points(found: dict[str, dict[str, Any]], manifest: Manifest) -> list[tuple[str, str]]:
    """Outputs that a map of the latent space tells, with their titles."""
    if "latent_space" not in found:
        return []
    ends = [(name, manifest.title(name)) for name in paths(found["latent_space"])]
    return [("posterior", "posterior"), ("prior", start_title(manifest)), *ends]


def _refined_class(found: dict[str, dict[str, Any]], manifest: Manifest) -> str:
    if "samples" not in found:
        return ""
    search = found["samples"]["search"]
    return page.colour_class(manifest.look(search["system"], search["search"]).colour)


def render(context: dict[str, Any], pictures: dict[str, markupsafe.Markup], number: int, languages: Any) -> str:
    """The section as HTML, its heading with `number`; `languages` are the codes of source and target."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source, target = languages
    more = {"figures": pictures, "number": number, "source_code": source, "target_code": target}
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
    if not context["found"]:
        return ""
    parts = ["## Analyses"]
    for name, table in context["tables"].items():
        parts += [f"### {HEADINGS[name]}"] if HEADINGS[name] else []
        parts += [
            f"{context['captions'][name]} {context['carried']}".strip(),
            markdown_table(table["heads"], table["rows"]),
        ]
    if context["examples"]:
        parts += ["### Samples", context["captions"]["samples"]]
        for example in context["examples"]:
            lines = [f"- {name}: {example[name]}" for name in ("source", "reference", "sampled", "refined")]
            parts.append("\n".join(lines))
    return "\n\n".join(parts)
