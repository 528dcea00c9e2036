"""Inputs of a report: training logs, quality, speed, traces, analyses; read and checked before anything is drawn."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow_src.config.plan import Plan
from workflow_src.data.lines import read_lines
from workflow_src.errors import ArtifactError, short_repr
from workflow_src.evaluation.content import Content
from workflow_src.evaluation.manifest import Manifest, Row
from workflow_src.evaluation.quality.choosing import AGAIN as AGAIN_CHOSEN
from workflow_src.evaluation.quality.choosing import read_choice
from workflow_src.evaluation.quality.computed import is_figure
from workflow_src.evaluation.quality.variants import VARIANTS, Quality
from workflow_src.evaluation.report import analyses
from workflow_src.evaluation.report.files import (
    Choice,
    CorpusSummary,
    EncodedText,
    Significance,
    Traces,
    TrainingSummary,
    read_significance,
)
from workflow_src.evaluation.report.results import without_release
from workflow_src.evaluation.report.trained import Training, cut_short
from workflow_src.evaluation.speed.measured import Speed, read_speed
from workflow_src.records.atomic import read_json
from workflow_src.records.checked import checked, read_file
from workflow_src.records.provenance import numbered
from workflow_src.spec import Metric

AGAIN_SCORED = "score the translations again"


def read_log(path: Path) -> list[dict[str, Any]]:
    """Entries of a training.jsonl. Raises InputError naming the file and line that cannot be used."""
    entries = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            entry = json.loads(line)
            entry["step"]  # every entry says when it was made
        except (json.JSONDecodeError, TypeError, KeyError):
            raise ArtifactError(path, "is no JSON object with a step", "train the system again", line=number) from None
        entries.append(entry)
    return entries


def read_quality(path: str, metrics: Sequence[Metric]) -> Quality:
    """A quality file. Raises ArtifactError when it lacks a variant, or the score of one of the metrics."""
    quality = checked(Quality, read_json(path), path, AGAIN_SCORED)
    numbers = {metric.name: 1 for metric in metrics} | {f"{m.name}_ci": 2 for m in metrics if m.uncertainty}
    for removal, variant in VARIANTS.items():
        scores = quality.figures(removal)
        for key, count in numbers.items():
            if key not in scores:
                raise ArtifactError(path, f"has no {variant}.{key}", AGAIN_SCORED)
            # A metric that cannot score the corpus is null; the main one can.
            if scores[key] is None and key != metrics[0].name:
                continue
            values = [scores[key]] if count == 1 else scores[key]
            if not (isinstance(values, list) and len(values) == count and all(map(is_figure, values))):
                raise ArtifactError(path, f"has {short_repr(scores[key])} as {variant}.{key}", AGAIN_SCORED)
    return quality


def signatures(quality: Quality, metrics: Iterable[Metric]) -> dict[str, str]:
    """Signatures of metrics in a quality file, by the titles of the metrics."""
    scores = quality.figures("none")
    return {m.title: str(scores[f"{m.name}_signature"]) for m in metrics if f"{m.name}_signature" in scores}


def read_trainings(manifest: Manifest) -> list[Training]:
    """The trainings of all systems and seeds."""
    trainings = []
    for name, seed in manifest.training:
        system, paths = manifest.plan.system(name), manifest.plan.training_files(name, seed)
        config, entries = read_file(TrainingSummary, paths["config"]), read_log(Path(paths["log"]))
        trainings.append(Training(system, seed, config, entries))
    return trainings


@dataclasses.dataclass(frozen=True)
class Inputs:
    """All inputs of a report, read and checked; None or empty where an experiment has none.

    `qualities` are by path; `files` are all inputs by title, for provenance.
    """

    manifest: Manifest
    qualities: dict[str, Quality]
    trainings: list[Training]
    analyses: Mapping[str, Content]
    choices: list[Choice]
    # By test set.
    significance: Mapping[str, Significance]
    speed: Speed | None
    traces: Traces | None
    corpus: CorpusSummary
    monolingual: CorpusSummary | None
    # By the name of the text: `raw` or the system that distilled its targets.
    encoded: dict[str, EncodedText]
    files: dict[str, Any]

    @property
    def unfinished(self) -> list[str]:
        """Systems with a training that ended while they were still improving much."""
        learning = [training for training in self.trainings if cut_short(training.entries)]
        return list(dict.fromkeys(training.system.name for training in learning))


def load(
    plan: Plan,
    *,
    speed: Path | None = None,
    traces: Path | None = None,
    significance: Sequence[Path] = (),
    corpus: Path | None = None,
    monolingual: Path | None = None,
    encoded: Sequence[Path] = (),
    analysed: Sequence[Path] = (),
) -> Inputs:
    """Read and check the inputs of the report of a plan: its own files, and others (`analysed`: those of analyses).

    `significance` has a file for each test set, in the order of the manifest.
    """
    # From here on a row has the settings that it was decoded with.
    manifest = Manifest.of(plan, lambda path: read_choice(path).chosen)
    singles = {"speed": speed, "traces": traces, "corpus": corpus, "monolingual": monolingual}
    files: dict[str, Any] = {name: path for name, path in singles.items() if path}
    files |= numbered("significance", significance)
    files |= {f"analysis {path.stem}": path for path in analysed}
    files |= {f"encoded {path.parent.name}": path for path in encoded}
    for name, seed in manifest.training:
        files |= {f"{kind} of {name} {seed}": path for kind, path in plan.training_files(name, seed).items()}
    # Dev and test of a decode share the file of chosen settings.
    tuned = {row.chosen: row for row in manifest.rows if row.chosen}
    files |= {f"chosen {row.system} {row.name} {row.seed}": path for path, row in tuned.items()}
    qualities = {row.quality: read_quality(row.quality, manifest.metrics) for row in manifest.rows}
    files |= {f"quality {number}": path for number, path in enumerate(qualities, 1)}
    _check_signatures(qualities, manifest)
    return Inputs(
        manifest=manifest,
        qualities=qualities,
        trainings=read_trainings(manifest),
        analyses=analyses.read(analysed),
        choices=[_choice(manifest, row, path) for path, row in tuned.items()],
        significance=dict(zip(manifest.test_sets, map(read_significance, significance), strict=False)),
        speed=read_speed(speed) if speed else None,
        traces=read_file(Traces, traces) if traces else None,
        corpus=read_file(CorpusSummary, corpus) if corpus else CorpusSummary(),
        monolingual=read_file(CorpusSummary, monolingual) if monolingual else None,
        encoded={path.parent.name: read_file(EncodedText, path) for path in encoded},
        files=files,
    )


def _check_signatures(qualities: Mapping[str, Quality], manifest: Manifest) -> None:
    """Raises ArtifactError where two files of a split were scored by one metric in different ways."""
    first_signatures: dict[tuple[str, str], tuple[str, str]] = {}
    for row in manifest.rows:
        path = row.quality
        for title, signature in signatures(qualities[path], manifest.metrics).items():
            relevant = without_release(signature)
            first_signature, first_path = first_signatures.setdefault((row.split, title), (relevant, path))
            if first_signature != relevant:
                problem = f"has {title} by {first_signature}, {path} by {relevant}"
                raise ArtifactError(first_path, problem, AGAIN_SCORED)


def _choice(manifest: Manifest, row: Row, path: str) -> Choice:
    """What dev chose for a decode and seed. Raises ArtifactError where a metric decided that the experiment lacks."""
    content, by_name = read_choice(path), {metric.name: metric for metric in manifest.metrics}
    deciding = content.tune_by or manifest.main.name
    if deciding not in by_name:
        raise ArtifactError(path, f"was decided by {deciding}, which the experiment does not measure", AGAIN_CHOSEN)
    decode = manifest.decode(*row.key)
    return Choice(decode, row.seed, content.chosen, content.points, content.at_edge, by_name[deciding])
