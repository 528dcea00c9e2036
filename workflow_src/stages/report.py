"""Build an experiment's report: results as JSON, CSV and Markdown, figures, and one HTML page written last."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import markupsafe

from workflow_src import jobs
from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.analyses.energy import energy_words, row_energies, unmatched
from workflow_src.evaluation.report import (
    analyses,
    captions,
    carried,
    conventions,
    corpus,
    evidence,
    figures,
    figures_latencies,
    figures_learning,
    figures_quality,
    figures_speed,
    grids,
    page,
    progress,
    results,
    significance_page,
    speed_page,
    summary,
    tables,
    usage,
)
from workflow_src.evaluation.report.inputs import Inputs, load, signatures
from workflow_src.records.atomic import atomic
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import default_metrics

# What the user ran, set by the workflow.
COMMAND = "CONTINUUM_COMMAND"
# Figures that have numbers, in the order of the page; those of the analyses follow.
NUMBERED = ("quality_speed", "refinement", "learning_curves")


def facts(
    manifest: Manifest,
    made: dict[str, Any],
    signatures: dict[str, str],
    threads: str,
    checksum: str | None,
    round_trip: str,
) -> list[tuple[str, str]]:
    """Provenance as (name, value) pairs for reading."""
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items() if version)
    hardware = made["hardware"]
    seeds = ", ".join(str(seed) for seed in sorted({row.seed for row in manifest.rows}))
    terms = manifest.dataset_terms
    dataset = [text for text in (terms.get("citation"), terms.get("licence"), terms.get("homepage")) if text]
    return [
        *([("dataset", "; ".join([manifest.dataset, *dataset]))] if dataset else []),
        *([("checksum", f"SHA-256 {checksum} of the sums of its texts")] if checksum else []),
        ("command", made["command"]),
        ("code", f"commit {made['commit']}" if made["commit"] else "not in version control"),
        ("made", made["created"]),
        ("seeds", seeds),
        ("hardware", f"{hardware['processor']}, {hardware['cores']} cores, {hardware['system']}{threads}"),
        ("versions", versions),
        *((f"signature of {name}", text) for name, text in signatures.items()),
        *([("round trip", round_trip)] if round_trip else []),
    ]


def describe(found: Inputs, command_line: str) -> dict[str, Any]:
    """The provenance block of results.json."""
    texts = {
        key: found.corpus.get(key)
        for key in ("pairs", "words", "read", "dropped", "found_in_train", "round_trip_bleu", "sha256")
    }
    texts["encoded"] = {name: {key: text[key] for key in ("pairs", "dropped")} for name, text in found.encoded.items()}
    manifest = found.manifest
    return provenance(
        {"experiment": manifest.experiment, "report": manifest.report.model_dump(mode="json")},
        found.files,
        command=command_line,
        seeds=sorted({row.seed for row in manifest.rows}),
        signatures=signatures(next(iter(found.qualities.values())), manifest.metrics),
        corpus=texts,
        significance=found.significance and found.significance.test,
        speed=found.speed_content
        and {key: found.speed_content.get(key) for key in ("protocol", "step_costs", "provenance")},
    )


def context_of(found: Inputs, made: dict[str, Any], rows: Sequence[results.Row], split: str) -> dict[str, Any]:
    """What page and Markdown show, apart from pictures."""
    manifest, speed = found.manifest, found.speed
    report = manifest.report
    removed = report.remove_repetitions
    tested = found.significance if split == "test" else None
    proof = evidence.Evidence.of(
        tables.wanted_rows(rows, manifest, removed),
        tested.pairs if tested else {},
        (log.system.name for log in found.logs if evidence.cut_short(log.entries)),
        tested.sentences if tested else 0,
        manifest.metrics,
    )
    table = tables.groups(rows, manifest, removed, proof)
    comparisons = sum(len(line.p_values) for group in table for line in group.lines)
    sentences = next(iter(found.qualities.values())).get("sentences")
    timing = f"; speed on {speed.protocol.device_name or speed.processor}" if speed and speed.processor else ""
    data = carried.data(manifest.dataset, found.sums, (row.seed for row in rows))
    notes = carried.notes(found.systems, rows)
    measured = row_energies(found.analyses.values())
    more = {
        "Metrics": captions.scored_words(found.corpus.get("normalisation", {}), manifest.metrics, made["signatures"]),
        "p": significance_page.compared_words(found.significance, comparisons, manifest),
        "Over fastest as good": captions.rival_words(table, manifest.metrics),
        "Published": " ".join(filter(None, [conventions.published_words(manifest), tables.published_order(table)])),
        "Energy": energy_words(measured.scorer) if measured else "",
        "Training": carried.training(found.systems, {row.system for row in rows}),
        **notes,
    }
    bold = f"Bold: the {manifest.main.best} {manifest.main.title} without autoregression."
    losses = page.loss_words(found.corpus, split)
    line = " ".join(filter(None, [data, losses, bold]))
    by_convention = page.convention_table(manifest, found.qualities, split)
    if by_convention:
        by_convention["caption"] = captions.Caption(f"{by_convention['line']} {data}", notes)
    cells = [system.cells() for system in found.systems]
    source, target = page.language(manifest.source), page.language(manifest.target)
    return {
        "title": report.title or f"{manifest.experiment}: {source} to {target} without autoregression",
        "experiment": manifest.experiment,
        "dataset": manifest.dataset,
        "source_language": source,
        "target_language": target,
        "source_code": manifest.source,
        "target_code": manifest.target,
        "description": manifest.description,
        "notes": report.notes,
        "palette": page.palette(manifest),
        "start_title": manifest.start.title if manifest.start else "",
        "summary": summary.summary(table, proof, speed.protocol.baseline if speed else None),
        "groups": table,
        "removals": tables.removals(rows, manifest),
        "removal_heads": list(tables.REMOVAL_LABELS.values()),
        "removal_caption": captions.removal_caption(manifest, split, data, notes),
        "crowded": figures_quality.crowded(table),
        "series": figures_quality.joined_by(table),
        "manifest": manifest,
        "main_title": manifest.main.title,
        "table": page.table_cells(table, manifest),
        "caption": captions.main_caption(manifest, split, sentences, speed is not None, line, more),
        "data_caption": captions.Caption(data, notes),
        "carried": " ".join([data, *notes.values()]),
        "control_tables": significance_page.control_tables(found.significance, rows, manifest, data, notes),
        "chosen": page.chosen_words(found.choices),
        "conventions": by_convention,
        "unmatched": tables.unmatched_expected(table, report.expected)
        | unmatched(measured, report.expected_reference_lengths),
        "grids": grids.tables(manifest, measured, table, rows, data, notes),
        "protocol": page.protocol_words(speed),
        "step_cost": page.step_cost_words(speed, manifest),
        "protocols": speed_page.protocol_tables(speed, manifest),
        "examples": page.examples(found.traces, manifest),
        "pool": (found.traces or {}).get("pool"),
        "facts": facts(
            manifest,
            made,
            made["signatures"],
            timing,
            carried.checksum(found.sums),
            page.round_trip_words(found.corpus),
        ),
        "systems": cells,
        "advice": progress.advice((log.system.name, log.entries) for log in found.logs),
        "system_heads": page.system_heads(cells),
        "system_words": page.SYSTEM_WORDS,
        "corpus": corpus.table(found.corpus),
        "corpus_sentences": corpus.sentences(found.corpus, found.encoded),
        "checksums": sorted((found.sums or {}).items()),
        "created": made["created"][:10],
    }


def _refinement_groups(
    found: Inputs, table: list[tables.Group], split: str, where: str
) -> tuple[list[tables.Group], str]:
    """Curves are drawn on dev where refinement was decoded there, else on the split of the tables."""
    manifest = found.manifest
    if any(row.split == "dev" and manifest.decode(*row.key).search.traceable for row in manifest.rows):
        rows = results.build_rows(manifest, found.qualities, found.speed, "dev", where=where)
        return tables.groups(rows, manifest, manifest.report.remove_repetitions), "dev"
    return table, split


def draw(found: Inputs, table: list[tables.Group], refined: list[tables.Group]) -> dict[str, figures.Figure]:
    """Figures by name, without those that would be empty.

    `table` has the groups of the main table, `refined` those of the curves of refinement.
    """
    drawn = {
        "learning_curves": figures_learning.learning_curves(found.logs),
        "quality_speed": figures_quality.quality_speed(table),
        "time_by_length": figures_speed.time_by_length(found.speed, found.manifest),
        "refinement": figures.refinement(refined),
        "latencies": figures_latencies.quality_latencies(table, found.speed),
        "stopping": figures.stopping(found.choices),
    }
    own = {name: figure for name, figure in drawn.items() if figure is not None}
    return own | analyses.draw(found.analyses, found.manifest)


def run(arguments: argparse.Namespace) -> str:
    folder: Path = arguments.output_folder
    found = load(arguments)
    manifest = found.manifest
    command_line = os.environ.get(COMMAND) or f"snakemake --config experiment={manifest.experiment}"
    asked = arguments.settings["usage"]
    recommended = usage.recommend(found, asked)
    found.files.update(usage.inputs_of(recommended, asked))
    found.files.update({f"bundle {path.parent}": path for path in arguments.bundles})
    made = describe(found, command_line)
    split, where = results.table_split(manifest), str(folder / "results.json")
    energies = row_energies(found.analyses.values())
    rows = results.build_rows(manifest, found.qualities, found.speed, split, found.significance, where, energies)
    context = context_of(found, made, rows, split)
    refined, refined_split = _refinement_groups(found, context["groups"], split, where)
    drawn = draw(found, context["groups"], refined)
    # Written last: where the page is there, the files beside it are whole.
    (folder / "index.html").unlink(missing_ok=True)
    colours = [look.colour for look in manifest.palette if look.colour]
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    svg = {name: markupsafe.Markup(figures.save(figure, pictures, name, colours)) for name, figure in drawn.items()}
    numbers = {name: number for number, name in enumerate((name for name in NUMBERED if name in svg), 1)}
    first_table = 3 if context["removals"] else 2
    analysed = analyses.context_of(
        found.analyses, manifest, context["carried"], svg.keys(), len(numbers) + 1, first_table
    )
    languages = (manifest.source, manifest.target)
    section = analyses.render(analysed, svg, languages) if analysed["blocks"] else ""
    context |= {"analyses": section, "analyses_markdown": analyses.markdown(analysed), "figure_numbers": numbers}
    use = usage.context_of(recommended, found, asked, arguments.device, arguments.precision)
    context |= {"usage": usage.render(use, languages), "usage_markdown": usage.markdown(use)}
    html = page.render(context | {"figures": svg, "refined_split": refined_split, "table_split": split})
    texts = {"table.csv": tables.csv_text(rows), "results.md": page.markdown(context), "index.html": html}
    drawings = [f"figures/{name}.{ending}" for name in drawn for ending in ("svg", "png")]
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    made["files"] = digests(folder, drawings) | sums
    content = {
        "format": results.FORMAT,
        "experiment": manifest.experiment,
        "dataset": manifest.dataset,
        "source": manifest.source,
        "target": manifest.target,
        "split": split,
        "systems": [system.model_dump(mode="json") for system in found.systems],
        "provenance": made,
        "rows": [row.model_dump(mode="json") for row in rows],
    }
    if manifest.metrics != default_metrics():
        content["metrics"] = [metric.name for metric in manifest.metrics]
    results.write_results(folder / "results.json", content)
    for name, text in texts.items():
        with atomic(folder / name) as file:
            file.write(text)
    return f"{folder / 'index.html'}: {len(rows)} rows, {len(context['examples'])} example sentences"


def make_parser() -> argparse.ArgumentParser:
    made = jobs.parser(__doc__)
    made.add_argument("--speed", type=Path)
    made.add_argument("--traces", type=Path)
    made.add_argument("--significance", type=Path)
    made.add_argument("--corpus", type=Path, help="corpus.json")
    made.add_argument("--encoded", type=Path, nargs="*", default=[], help="descriptions of encoded training texts")
    made.add_argument("--analyses", type=Path, nargs="*", default=[], help="files of the analyses")
    made.add_argument("--bundles", type=Path, nargs="*", default=[], help="descriptions of the finished bundles")
    made.add_argument("--device", default="auto", help="that translations were made on")
    made.add_argument("--precision", default="auto", help="of our own code, when translations were made")
    made.add_argument("--output-folder", type=Path, required=True)
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
