"""Stage measure_analysis: run the measurement that an analysis declares; check and write its content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.errors import ConfigError
from workflow_src.evaluation import content as contents
from workflow_src.evaluation.analyses.inputs import Inputs as AnalysisInputs
from workflow_src.jobs import DeviceJobInputs, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import analyses, import_object
from workflow_src.serving.folders import bundle_files
from workflow_src.spec import parse


class Inputs(DeviceJobInputs):
    analysis: str = Field(description="name of a declared analysis")
    settings: dict[str, Any] = Field(description="settings of the analysis, and what it selected")
    limits: dict[str, int] = Field({}, description="settings that bound memory and change no result")
    bundles: dict[str, Path] = Field({}, description="folder of each system that is read")
    source: Path = Field(description="normalised text, one sentence a line")
    target: Path = Field(description="its translation, normalised like it")
    reference: Path = Field(description="the translation that scores compare with")
    output: Path


def run(inputs: Inputs) -> str:
    if inputs.analysis not in analyses():
        raise ConfigError("analysis", inputs.analysis, allowed=analyses())
    analysis, rule_settings = analyses()[inputs.analysis], inputs.settings
    own_settings = analysis.settings.model_fields.keys() - set(analysis.settings.selecting())
    values = {name: rule_settings[name] for name in own_settings if name in rule_settings}
    settings = parse(analysis.settings, values | inputs.limits, "settings")
    entries = {name: value for name, value in rule_settings.items() if name not in own_settings}
    machine = inputs.machine.model_copy(update={"precision": "float32"} if analysis.float32 else {})
    source, target, reference = inputs.source, inputs.target, inputs.reference
    measured = import_object(analysis.measure)(
        AnalysisInputs(source, target, reference, entries, inputs.bundles, machine), settings
    )
    content = {"format": contents.FORMAT, "analysis": analysis.name, "split": source.stem, **measured}
    # Figures that are no numbers, as of systems that diverged, stop here: reports could not read them.
    advice = f"train the systems that it follows again, or switch analyses.{analysis.name} off"
    contents.check(content, f"analysis {analysis.name}", advice)
    files: dict[str, str | Path] = {"source": source, "target": target, "reference": reference}
    for row in entries.get("rows", ()):
        words = (str(row[key]) for key in ("system", "name", "seed") if key in row)
        files[" ".join(["details", *words])] = row["details"]
    files |= bundle_files(inputs.bundles, set(inputs.bundles))
    write_json(inputs.output, content | {"provenance": provenance(rule_settings, files)})
    sentences = f", {content['sentences']} sentences" if "sentences" in content else ""
    return f"{inputs.output}: {analysis.title.lower()}{sentences}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
