"""Stage score_sentences: figures of every sentence of a decode, by the program of a metric. The rule is score_NAME.

The program runs in a Python whose packages are its own. It reads JSON lines and answers each with one:

    {"settings": {...}, "files": {NAME: {"path": ..., "sha256": ...}}, "device": "cpu", "threads": 2, "batch": 16}
        {"model": {...}, "signature": ..., "versions": {...}}
    {"sentences": [[source, hypothesis, reference], ...]}
        {"figures": [...]}

or with {"problem": ..., "fix": ...}, and ends where there is no further line. `device` is cpu, cuda or cuda:N. Figures
are kept by `model` and by sentence: no sentence is scored twice, and what a killed job scored is not lost.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.data.lines import check_parallel, read_aligned
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.evaluation.quality.computed import FORMAT, FigureCache, RunningProgram
from workflow_src.evaluation.quality.details import read_details
from workflow_src.evaluation.quality.variants import variants
from workflow_src.jobs import DeviceJobInputs, log, start
from workflow_src.records.atomic import fingerprint, sha256, write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import metrics
from workflow_src.runtime import gpus
from workflow_src.spec import parse, sentence_key

# Batches that the program computes between two lines of progress.
BATCHES = 32


class Inputs(DeviceJobInputs):
    metric: str = Field(description="name of a declared metric that has a program")
    settings: dict[str, Any] = Field(description="settings of the metric")
    hypotheses: Path = Field(description="translations, one a line")
    details: Path = Field(description="JSON lines of the decode")
    source: Path
    reference: Path
    pythons: dict[str, str] = Field({}, description="Pythons that have the packages of programs, by metric")
    cache: Path = Field(description="folder of figures that were computed before")
    scoring_batch: int = Field(16, gt=0, description="sentences computed together")
    output: Path


def run(inputs: Inputs) -> str:
    programs = {name: metric for name, metric in metrics().items() if metric.program}
    if inputs.metric not in programs:
        raise ConfigError("metric", inputs.metric, problem="it has no program", allowed=programs)
    metric = programs[inputs.metric]
    assert metric.program
    settings = parse(metric.settings, inputs.settings, "settings")
    hypotheses, references, sources = read_aligned(inputs.hypotheses, inputs.reference, inputs.source)
    check_parallel(inputs.hypotheses, inputs.details)
    shortened = [line[WITHOUT_REPEATED_SUBWORDS] for line in read_details(inputs.details)]
    lines = [zip(sources, texts, references, strict=True) for texts in variants(hypotheses, shortened).values()]
    sentences = {sentence_key(*line): line for line in itertools.chain(*lines)}
    files = {name: _described(name, path, metric.name) for name, path in metric.program.files(settings).items()}
    with RunningProgram(metric, inputs.pythons.get(metric.name, "python")) as program:
        description = program.describe(
            {
                "settings": settings.model_dump(mode="json"),
                "files": files,
                "device": _device(inputs.machine.device),
                "threads": inputs.machine.threads,
                "batch": inputs.scoring_batch,
            }
        )
        model = fingerprint(description["model"])[:16]
        cache = FigureCache(inputs.cache / model, fingerprint(str(inputs.output))[:16])
        figures = cache.read(sentences)
        uncached = [key for key in sentences if key not in figures]
        for begin in range(0, len(uncached), BATCHES * inputs.scoring_batch):
            keys = uncached[begin : begin + BATCHES * inputs.scoring_batch]
            scored = dict(zip(keys, program.score([sentences[key] for key in keys]), strict=True))
            cache.add(scored)
            figures |= scored
            log.info("%d of %d sentences", len(figures), len(sentences))
    texts = {"hypotheses": inputs.hypotheses, "details": inputs.details}
    texts |= {"source": inputs.source, "reference": inputs.reference}
    record = provenance(inputs.settings, texts, program=description)
    record["inputs"] |= files
    content = {"format": FORMAT, "metric": metric.name, "signature": description["signature"], "figures": figures}
    write_json(inputs.output, content | {"provenance": record})
    return f"{inputs.output}: {len(uncached)} sentences scored, {len(sentences) - len(uncached)} known"


def _described(name: str, path: str, metric: str) -> dict[str, str]:
    if not Path(path).is_file():
        raise ArtifactError(path, f"is no file, and metrics.{metric} needs it as {name}", "put it there")
    return {"path": path, "sha256": sha256(path)}


def _device(device: str) -> str:
    """The device of the program: with auto, the GPU that this job leased, if any."""
    if device != "auto":
        return device
    return "cuda" if os.environ.get(gpus.LEASED) else "cpu"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
