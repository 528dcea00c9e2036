"""Build an experiment's report: results as JSON, CSV and Markdown, figures, and one HTML page written last."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import markupsafe
from pydantic import Field

from workflow_src.config.experiment import WorkflowConfig
from workflow_src.config.plan import shown_plan
from workflow_src.evaluation.analyses.energy import energy_words, row_energies, unmatched
from workflow_src.evaluation.manifest import Manifest
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
from workflow_src.evaluation.report.inputs import Inputs as Material
from workflow_src.evaluation.report.inputs import load as read_inputs
from workflow_src.evaluation.report.inputs import signatures
from workflow_src.evaluation.speed.measured import Speed
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import atomic
from workflow_src.records.configuration import configuration_files
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import default_metrics

# The environment variable of the user's command, which the workflow sets.
COMMAND = "CONTINUUM_COMMAND"
# Figures that have numbers, in the order of the page; those of the analyses follow.
NUMBERED = ("quality_speed", "refinement", "learning_curves")


class ReportSettings(WorkflowConfig):
    order: tuple[str, ...] = Field(description="systems in the order of tables")


class Inputs(JobInputs):
    settings: ReportSettings = Field(description="the configuration as far as the report shows it")
    speed: Path | None = None
    traces: Path | None = None
    significance: tuple[Path, ...] = Field((), description="of every test set, the main one first")
    corpus: Path | None = Field(None, description="corpus.json")
    monolingual: tuple[Path, ...] = Field((), max_length=1, description="counts of text of the source language")
    encoded: tuple[Path, ...] = Field((), description="descriptions of encoded training texts")
    analyses: tuple[Path, ...] = Field((), description="files of the analyses")
    bundles: tuple[Path, ...] = Field((), description="descriptions of the finished bundles")
    # Not of this job, which computes on no device.
    device: str = Field("auto", description="that translations were made on")
    precision: str = Field("auto", description="of our own code, when translations were made")
    output_folder: Path


def facts(
    manifest: Manifest,
    record: dict[str, Any],
    signatures: dict[str, str],
    threads: str,
    checksum: str | None,
    downloads: str,
    round_trip: str,
) -> list[tuple[str, str]]:
    """Provenance as (name, value) pairs for reading."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version)
    hardware = record["hardware"]
    files = [f"{path} (SHA-256 {digest})" if digest else path for path, digest in record["configuration"].items()]
    seeds = ", ".join(str(seed) for seed in sorted({row.seed for row in manifest.rows}))
    terms = manifest.plan.loaded.dataset
    dataset = [text for text in (terms.citation, terms.licence, terms.homepage) if text]
    return [
        *([("dataset", "; ".join([manifest.dataset, *dataset]))] if dataset else []),
        *([("checksum", f"SHA-256 {checksum} of the sums of its texts")] if checksum else []),
        *([("downloads", downloads)] if downloads else []),
        ("command", record["command"]),
        *([("configuration", ", ".join(files))] if files else []),
        ("code", f"commit {record['commit']}" if record["commit"] else "not in version control"),
        ("made", record["created"]),
        ("seeds", seeds),
        ("hardware", f"{hardware['processor']}, {hardware['cores']} cores, {hardware['system']}{threads}"),
        ("versions", versions),
        *((f"signature of {name}", text) for name, text in signatures.items()),
        *([("round trip", round_trip)] if round_trip else []),
    ]


def describe(material: Material, command_line: str) -> dict[str, Any]:
    """The provenance block of results.json."""
    content = material.corpus.model_dump(mode="json", exclude_unset=True)
    texts = {
        key: content.get(key)
        for key in ("pairs", "words", "read", "dropped", "found_in_train", "round_trip_bleu", "sha256")
    }
    texts["encoded"] = {name: {"pairs": text.pairs, "dropped": text.dropped} for name, text in material.encoded.items()}
    manifest = material.manifest
    return provenance(
        {"experiment": manifest.plan.experiment, "report": manifest.report.model_dump(mode="json")},
        material.files,
        command=command_line,
        configuration=configuration_files(),
        seeds=sorted({row.seed for row in manifest.rows}),
        signatures=signatures(quality_on(material, results.table_split(manifest)), manifest.metrics),
        corpus=texts,
        significance=next((tested.test for tested in material.significance.values()), None),
        speed=material.speed_content
        and {key: material.speed_content.get(key) for key in ("protocol", "step_costs", "provenance")},
    )


def quality_on(material: Material, split: str) -> dict[str, Any]:
    """The first quality file of a split."""
    return next(material.qualities[row.quality] for row in material.manifest.rows if row.split == split)


def context_of(material: Material, record: dict[str, Any], rows: Sequence[results.Row], split: str) -> dict[str, Any]:
    """Content of page and Markdown, apart from figures."""
    manifest, speed = material.manifest, material.speed
    report = manifest.report
    removed = report.remove_repetitions
    tested = material.significance.get(split)
    proof = evidence.Evidence.of(
        tables.variant_rows(rows, manifest, removed),
        tested.pairs if tested else {},
        report.margin,
        (log.system.name for log in material.logs if evidence.cut_short(log.entries)),
        tested.sentences if tested else 0,
        manifest.metrics,
    )
    table = tables.groups(rows, manifest, removed, proof)
    comparisons = sum(len(line.p_values) for group in table for line in group.lines)
    sentences = quality_on(material, split).get("sentences")
    timing = f"; speed on {speed.protocol.device_name or speed.processor}" if speed and speed.processor else ""
    data = carried.data(manifest.dataset, material.sums, (row.seed for row in rows))
    notes = carried.notes(material.systems, rows)
    measured = row_energies(material.analyses.values(), split)
    column_notes = {
        "Metrics": captions.scored_words(material.corpus.normalisation, manifest.metrics, record["signatures"]),
        "p": significance_page.compared_words(tested, comparisons, manifest),
        "As good": captions.rival_words(table, proof),
        "Published": " ".join(filter(None, [conventions.published_words(manifest), tables.published_order(table)])),
        "Energy": energy_words(measured.scorer) if measured else "",
        "Training": carried.training(material.systems, {row.system for row in rows}),
        **notes,
    }
    losses = page.loss_words(material.corpus, split)
    repeated = corpus.repeated_words(material.corpus, split)
    line = " ".join(filter(None, [data, repeated, losses, captions.bold_words(manifest)]))
    by_convention = page.convention_table(manifest, material.qualities, split)
    if by_convention:
        by_convention["caption"] = captions.Caption(f"{by_convention['line']} {data}", notes)
    cells = [system.cells() for system in material.systems]
    source, target = page.language(manifest.source), page.language(manifest.target)
    return {
        "title": report.title or f"{manifest.plan.experiment}: {source} to {target} without autoregression",
        "experiment": manifest.plan.experiment,
        "dataset": manifest.dataset,
        "source_language": source,
        "target_language": target,
        "source_code": manifest.source,
        "target_code": manifest.target,
        "description": manifest.plan.config.description,
        "notes": report.notes,
        "palette": page.palette(manifest),
        "start_title": manifest.start.title if manifest.start else "",
        "summary": [
            *summary.summary(table, proof),
            *corpus.warnings(material.corpus, material.encoded, material.unread, manifest.test_sets),
        ],
        "groups": table,
        "removals": tables.removals(rows, manifest),
        "removal_heads": list(tables.REMOVAL_LABELS.values()),
        "removal_caption": captions.removal_caption(manifest, split, data, notes),
        "crowded": figures_quality.crowded(table),
        "hollow": figures_quality.hollow(table),
        "series": figures_quality.joined_series(table),
        "manifest": manifest,
        "main_title": manifest.main.title,
        "table": page.table_cells(table, manifest),
        "caption": captions.main_caption(manifest, split, sentences, speed is not None, line, column_notes),
        "data_caption": captions.Caption(data, notes),
        "chosen_caption": captions.Caption(data, {"Bold": "The settings that were chosen.", **notes}),
        "carried": " ".join([data, *notes.values()]),
        "control_tables": significance_page.control_tables(tested, rows, manifest, data, notes),
        "chosen": page.chosen_words(material.choices),
        "conventions": by_convention,
        "unmatched": tables.unmatched_expected(table, report.expected)
        | unmatched(measured, report.expected_reference_lengths),
        "grids": grids.tables(manifest, measured, table, rows, data, notes),
        "protocol": " ".join([page.protocol_words(speed), *speed_page.failure_sentences(speed, manifest)]),
        "step_cost": page.step_cost_words(speed, manifest),
        "protocols": speed_page.protocol_tables(speed, manifest),
        "examples": page.examples(material.traces, manifest),
        "pool": material.traces.pool if material.traces else None,
        "facts": facts(
            manifest,
            record,
            record["signatures"],
            timing,
            carried.checksum(material.sums),
            corpus.downloads(material.corpus, material.monolingual),
            page.round_trip_words(material.corpus),
        ),
        "systems": cells,
        "advice": progress.advice((log.system.name, log.entries) for log in material.logs),
        "system_heads": page.system_heads(cells),
        "system_words": page.SYSTEM_WORDS,
        "corpus": corpus.table(material.corpus, material.monolingual, material.encoded),
        "cleaning": corpus.cleaning(material.corpus, material.monolingual, material.encoded),
        "corpus_sentences": [
            *corpus.sentences(material.corpus, material.encoded, material.mixtures),
            *corpus.placeholder_outcomes(manifest.rows, material.qualities, split),
        ],
        "checksums": sorted((material.sums or {}).items()),
        "created": record["created"][:10],
    }


def further_context(material: Material, further: Sequence[tuple[str, Sequence[results.Row]]]) -> list[dict[str, Any]]:
    """The table of each test set after the main one: title, groups, their manifest, cells (`table`) and caption."""
    contexts = []
    for split, rows in further:
        manifest = material.manifest.on(split)
        table = tables.groups(rows, manifest, manifest.report.remove_repetitions)
        comparisons = sum(len(line.p_values) for group in table for line in group.lines)
        compared = significance_page.compared_words(material.significance.get(split), comparisons, manifest)
        data = carried.data(manifest.dataset, material.sums, (row.seed for row in rows))
        warnings = [corpus.repeated_words(material.corpus, split), page.loss_words(material.corpus, split)]
        line = " ".join(filter(None, [data, *warnings, captions.bold_words(manifest)]))
        measured = row_energies(material.analyses.values(), split)
        energy = energy_words(measured.scorer) if measured else ""
        column_notes = {"p": compared, "Energy": energy, **carried.notes(material.systems, rows)}
        sentences = quality_on(material, split).get("sentences")
        contexts.append(
            {
                "title": f"On {split}",
                "groups": table,
                "manifest": manifest,
                "table": page.table_cells(table, manifest),
                "caption": captions.main_caption(manifest, split, sentences, False, line, column_notes),
            }
        )
    return contexts


def _refinement_groups(
    material: Material, table: list[tables.Group], split: str, results_path: str
) -> tuple[list[tables.Group], str]:
    """Curves are drawn on dev where refinement was decoded there, else on the split of the tables."""
    manifest = material.manifest
    on_dev = [manifest.decode(*row.key) for row in manifest.rows if row.split == "dev"]
    if any(decode.search.traceable for decode in on_dev):
        rows = results.build_rows(manifest, material.qualities, material.speed, "dev", where=results_path)
        return tables.groups(rows, manifest, manifest.report.remove_repetitions), "dev"
    return table, split


def draw(material: Material, table: list[tables.Group], refined: list[tables.Group]) -> dict[str, figures.Figure]:
    """Figures by name, without those that would be empty.

    `table` has the groups of the main table, `refined` those of the curves of refinement.
    """
    drawn = {
        "learning_curves": figures_learning.learning_curves(material.logs),
        "quality_speed": figures_quality.quality_speed(table),
        "time_by_length": figures_speed.time_by_length(material.speed, material.manifest),
        "refinement": figures.refinement(refined),
        "latencies": figures_latencies.quality_latencies(table, material.speed),
        "stopping": figures.stopping(material.choices),
    }
    own_figures = {name: figure for name, figure in drawn.items() if figure is not None}
    return own_figures | analyses.draw(material.analyses, material.manifest)


def run(inputs: Inputs) -> str:
    folder = inputs.output_folder
    material = read_inputs(
        shown_plan(recorded(inputs.settings)),
        speed=inputs.speed,
        traces=inputs.traces,
        significance=inputs.significance,
        corpus=inputs.corpus,
        monolingual=next(iter(inputs.monolingual), None),
        encoded=inputs.encoded,
        analysed=inputs.analyses,
    )
    manifest = material.manifest
    command_line = os.environ.get(COMMAND) or f"snakemake --config experiment={manifest.plan.experiment}"
    recommended = usage.recommend(material)
    material.files.update(usage.inputs_of(recommended, material))
    material.files.update({f"bundle {path.parent}": path for path in inputs.bundles})
    record = describe(material, command_line)
    split, results_path = results.table_split(manifest), str(folder / "results.json")

    def rows_on(name: str, speed: Speed | None) -> tuple[results.Row, ...]:
        energies = row_energies(material.analyses.values(), name)
        tested = material.significance.get(name)
        return results.build_rows(manifest, material.qualities, speed, name, tested, results_path, energies)

    rows = rows_on(split, material.speed)
    further = [(name, rows_on(name, None)) for name in manifest.test_sets[1:] if split != "dev"]
    context = context_of(material, record, rows, split) | {"further": further_context(material, further)}
    refined, refined_split = _refinement_groups(material, context["groups"], split, results_path)
    drawn = draw(material, context["groups"], refined)
    # The page is written last: where it exists, the files beside it are complete.
    (folder / "index.html").unlink(missing_ok=True)
    colours = [look.colour for look in manifest.palette if look.colour]
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    svg = {name: markupsafe.Markup(figures.save(figure, pictures, name, colours)) for name, figure in drawn.items()}
    numbers = {name: number for number, name in enumerate((name for name in NUMBERED if name in svg), 1)}
    first_table = 3 if context["removals"] else 2
    analysed = analyses.context_of(
        material.analyses, manifest, context["carried"], svg.keys(), len(numbers) + 1, first_table
    )
    languages = (manifest.source, manifest.target)
    section = analyses.render(analysed, svg, languages) if analysed["blocks"] else ""
    context |= {"analyses": section, "analyses_markdown": analyses.markdown(analysed), "figure_numbers": numbers}
    usage_context = usage.context_of(recommended, material, inputs.device, inputs.precision)
    context |= {"usage": usage.render(usage_context, languages), "usage_markdown": usage.markdown(usage_context)}
    html = page.render(context | {"figures": svg, "refined_split": refined_split, "table_split": split})
    table = tables.csv_text(rows, further, split)
    texts = {"table.csv": table, "results.md": page.markdown(context), "index.html": html}
    drawings = [f"figures/{name}.{ending}" for name in drawn for ending in ("svg", "png")]
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    record["files"] = digests(folder, drawings) | sums
    content = {
        "format": results.FORMAT,
        "experiment": manifest.plan.experiment,
        "dataset": manifest.dataset,
        "source": manifest.source,
        "target": manifest.target,
        "split": split,
        "reference": manifest.reference and list(manifest.reference.key),
        "systems": [system.model_dump(mode="json") for system in material.systems],
        "provenance": record,
        "rows": [row.model_dump(mode="json") for row in rows],
    }
    if further:
        content["further"] = [
            {
                "split": name,
                "signatures": signatures(quality_on(material, name), manifest.metrics),
                "rows": [row.model_dump(mode="json") for row in of_set],
            }
            for name, of_set in further
        ]
    if manifest.metrics != default_metrics():
        content["metrics"] = [metric.name for metric in manifest.metrics]
    results.write_results(folder / "results.json", content)
    for name, text in texts.items():
        with atomic(folder / name) as file:
            file.write(text)
    return f"{folder / 'index.html'}: {len(rows)} rows, {len(context['examples'])} example sentences"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
