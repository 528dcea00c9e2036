"""Stage export_engine: a bundle -> the folder of an engine that reads files of its own. The rule is export_NAME."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from workflow_src.errors import ConfigError
from workflow_src.jobs import JobInputs, start
from workflow_src.registry import engines
from workflow_src.spec import NoSettings


class Inputs(JobInputs):
    settings: NoSettings = NoSettings()
    engine: str = Field(description="name of the engine")
    bundle: Path = Field(description="exported folder")
    output_folder: Path


def run(inputs: Inputs) -> str:
    from workflow_src.serving import export

    exporting = {engine.name: engine for engine in engines().values() if engine.export}
    if inputs.engine not in exporting:
        raise ConfigError("engine", inputs.engine, problem="it exports nothing", allowed=exporting)
    return export.export(exporting[inputs.engine], inputs.bundle, inputs.output_folder)


if __name__ == "__main__":
    start(run, Inputs, __doc__)
