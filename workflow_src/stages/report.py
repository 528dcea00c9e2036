"""Build an experiment's report: results as two tables, as Markdown, figures, and one HTML page written last."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import markupsafe
from pydantic import Field

from workflow_src.config.experiment import WorkflowConfig
from workflow_src.config.plan import shown_plan
from workflow_src.evaluation import charts
from workflow_src.evaluation.charts import Chart
from workflow_src.evaluation.report import (
    contents,
    figures,
    figures_quality,
    results,
    speed_page,
    tables,
    trained,
    usage,
)
from workflow_src.evaluation.report.evidence import Group
from workflow_src.evaluation.report.html import page
from workflow_src.evaluation.report.inputs import Inputs as Material
from workflow_src.evaluation.report.inputs import load as read_inputs
from workflow_src.evaluation.report.inputs import signatures
from workflow_src.evaluation.report.markdown import markdown
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import atomic
from workflow_src.records.configuration import configuration_files
from workflow_src.records.provenance import digests, provenance

# The environment variable of the user's command, which the workflow sets.
COMMAND = "CONTINUUM_COMMAND"


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


def describe(material: Material, command_line: str) -> dict[str, Any]:
    content = material.corpus.model_dump(mode="json", exclude_unset=True)
    texts = {
        key: content.get(key)
        for key in ("pairs", "words", "read", "dropped", "found_in_train", "found_in_dev", "round_trip_bleu", "sha256")
    }
    texts["encoded"] = {name: {"pairs": text.pairs, "dropped": text.dropped} for name, text in material.encoded.items()}
    manifest, speed = material.manifest, material.speed
    return provenance(
        {"experiment": manifest.plan.experiment, "report": manifest.report.model_dump(mode="json")},
        material.files,
        command=command_line,
        configuration=configuration_files(),
        seeds=sorted({row.seed for row in manifest.rows}),
        corpus=texts,
        significance=next((tested.test.model_dump() for tested in material.significance.values()), None),
        speed=speed and speed.main.model_dump(mode="json", exclude={"rows"}) | {"provenance": speed.provenance},
    )


def refined(measured: results.Results, material: Material) -> tuple[list[Group], str]:
    """The groups and the split of the curves of refinement: dev where refinement was decoded there, else the split of
    the tables."""
    manifest = material.manifest
    on_dev = [manifest.decode(*row.key) for row in manifest.rows if row.split == "dev"]
    split = "dev" if any(decode.search.traceable for decode in on_dev) else manifest.plan.shown_split
    return tables.groups(measured, split, manifest, manifest.report.remove_repetitions), split


def draw(material: Material, table: list[Group], curves: list[Group]) -> dict[str, Chart]:
    """Figures by name, without those that would be empty.

    `table` has the groups of the main table, `curves` those of the curves of refinement.
    """
    drawn = {
        "learning_curves": trained.learning_curves(material.trainings),
        "quality_speed": figures_quality.quality_speed(table),
        "time_by_length": speed_page.time_by_length(material.speed, material.manifest),
        "refinement": figures.refinement(curves),
        "latencies": figures_quality.quality_latencies(table, material.speed),
        "stopping": figures.stopping(material.choices),
    }
    return {name: figure for name, figure in drawn.items() if figure is not None}


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
    splits = dict.fromkeys(row.split for row in manifest.rows)
    measured = results.build(
        manifest,
        material.qualities,
        material.trainings,
        material.speed,
        material.significance,
        material.analyses.values(),
        {split: signatures(contents.quality_on(material, split), manifest.metrics) for split in splits},
    )
    candidates = usage.candidates_of(material, measured)
    material.files.update(usage.inputs_of(usage.recommend(candidates, manifest.report.margin), material))
    material.files.update({f"bundle {path.parent}": path for path in inputs.bundles})
    record = describe(material, command_line)
    measured = dataclasses.replace(measured, record=measured.record.model_copy(update={"provenance": record}))
    measured.check(folder)
    split = manifest.plan.shown_split
    table, proof = contents.evidence_of(material, measured, split)
    curves, refined_split = refined(measured, material)
    shown = contents.Contents(material, measured, split, table, proof, refined_split, draw(material, table, curves))
    document = contents.document(
        shown,
        [usage.needs_table(material, candidates, inputs.device, inputs.precision)],
        usage.blocks(material, candidates, inputs.device, inputs.precision),
    )
    # The page is written last: where it exists, the files beside it are complete.
    (folder / "index.html").unlink(missing_ok=True)
    colours = [look.colour for look in manifest.palette if look.colour]
    folder_of_pictures = folder / "figures"
    folder_of_pictures.mkdir(parents=True, exist_ok=True)
    pictures = {
        picture.name: markupsafe.Markup(charts.save(picture.chart, folder_of_pictures, picture.name, colours))
        for picture in document.pictures()
    }
    texts = {name: results.as_csv(table) for name, table in measured.tables()}
    texts |= {"results.md": markdown(document), "index.html": page(document, pictures)}
    drawings = [f"figures/{name}.{ending}" for name in pictures for ending in ("svg", "png")]
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    record["files"] = digests(folder, drawings) | sums
    measured.write(folder)
    for name in ("results.md", "index.html"):
        with atomic(folder / name) as file:
            file.write(texts[name])
    return f"{folder / 'index.html'}: {len(measured.rows)} rows, {len(pictures)} pictures"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
