"""Measure what an analysis declares, and write its file."""

from __future__ import annotations

import argparse
from pathlib import Path

from workflow_src import jobs
from workflow_src.evaluation.analyses import content as contents
from workflow_src.evaluation.analyses.inputs import Inputs
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import analyses, import_object
from workflow_src.serving.folders import bundle_files, bundles


def run(arguments: argparse.Namespace) -> str:
    analysis, handed = analyses()[arguments.analysis], arguments.settings
    own = analysis.settings.model_fields.keys() - set(analysis.settings.selecting())
    limits = dict(word.split("=", 1) for word in arguments.limits)
    settings = analysis.settings.model_validate({name: handed[name] for name in own if name in handed} | limits)
    inputs = Inputs(
        source=arguments.source,
        target=arguments.target,
        reference=arguments.reference,
        entries={name: value for name, value in handed.items() if name not in own},
        folders=bundles(arguments.bundles),
        device=arguments.device,
        precision="float32" if analysis.float32 else arguments.precision,
        threads=arguments.threads,
    )
    measured = import_object(analysis.measure)(inputs, settings)
    content = {"format": contents.FORMAT, "analysis": analysis.name, "split": arguments.source.stem, **measured}
    # Figures that are no numbers, as of systems that diverged, stop here: reports could not read them.
    advice = f"train the systems that it follows again, or switch analyses.{analysis.name} off"
    contents.check(content, f"analysis {analysis.name}, which is not written", advice)
    write_json(arguments.output, content | {"provenance": provenance(handed, _files(inputs))})
    sentences = f", {content['sentences']} sentences" if "sentences" in content else ""
    return f"{arguments.output}: {analysis.title.lower()}{sentences}"


def _files(inputs: Inputs) -> dict[str, Path]:
    """Inputs by what they are, for provenance."""
    texts = {"source": inputs.source, "target": inputs.target, "reference": inputs.reference}
    for row in inputs.rows:
        of_row = " ".join(str(row[key]) for key in ("system", "name", "seed") if key in row)
        texts[f"details {of_row}"] = Path(row["details"])
    return texts | bundle_files(dict(inputs.folders), set(inputs.folders))


def make_parser() -> argparse.ArgumentParser:
    made = jobs.parser(__doc__)
    made.add_argument("--analysis", choices=list(analyses()), required=True)
    made.add_argument("--limits", nargs="*", default=[], metavar="NAME=NUMBER", help="settings that bound memory")
    made.add_argument("--bundles", nargs="*", default=[], metavar="SYSTEM=FOLDER")
    made.add_argument("--source", type=Path, required=True, help="normalised text, one sentence a line")
    made.add_argument("--target", type=Path, required=True, help="its translation, normalised like it")
    made.add_argument("--reference", type=Path, required=True, help="the translation as scores want it")
    made.add_argument("--output", type=Path, required=True)
    jobs.add_runtime(made)
    return made


if __name__ == "__main__":
    jobs.start(run, make_parser())
