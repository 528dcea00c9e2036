"""Checks of the files that a finished experiment has left."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

from workflow_src import registry
from workflow_src.config import Plan, load_experiment
from workflow_src.config.resources import Requests
from workflow_src.evaluation.report.results import means as results_means
from workflow_src.evaluation.report.results import read_results
from workflow_src.records.atomic import load_tensors


def problems(experiment: str, folder: Path) -> list[str]:
    """Faults of the outputs of `experiment` in the working directory `folder`, a sentence each."""
    return problems_of(Plan(load_experiment(experiment)), folder)


def problems_of(plan: Plan, folder: Path) -> list[str]:
    return [
        *_corpus(plan, folder),
        *_systems(plan, folder),
        *_translations(plan, folder),
        *_analyses(plan, folder),
        *_report(plan, folder),
    ]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _corpus(plan: Plan, folder: Path) -> list[str]:
    faults = []
    for split in ("train", *plan.loaded.held_out):
        source, target = (_lines(folder / plan.corpus(split, side)) for side in ("source", "target"))
        if not source or len(source) != len(target):
            faults.append(f"corpus {split} has {len(source)} source and {len(target)} target lines")
    for teacher, split in plan.distilled:
        source = _lines(folder / plan.corpus(split, "source"))
        distilled = _lines(folder / plan.distilled_text(teacher, split))
        scores = _lines(folder / plan.files.distilled_scores.format(teacher=teacher, split=split))
        if not len(distilled) == len(scores) == len(source):
            faults.append(f"{teacher} distilled {len(distilled)} lines with {len(scores)} scores of {len(source)}")
        if not all(math.isfinite(float(score)) for score in scores):
            faults.append(f"{teacher} gave scores that are no numbers")
    return faults


def _systems(plan: Plan, folder: Path) -> list[str]:
    faults = []
    trained = {name: system for name, system in plan.loaded.systems.items() if not system.family.imported}
    for name, system in trained.items():
        for seed in plan.config.seeds:
            system_folder = (folder / plan.weights(name, seed)).parent
            tensors = load_tensors(system_folder / "model.safetensors")
            if not tensors or not all(bool(tensor.isfinite().all()) for tensor in tensors.values()):
                faults.append(f"weights of {name} are empty or not finite")
            history = [json.loads(line) for line in _lines(system_folder / "training.jsonl")]
            if not history:
                faults.append(f"{name} has no training history")
            if history and history[-1].get("step", system.training.max_steps) != system.training.max_steps:
                faults.append(f"{name} stopped at step {history[-1]['step']} of {system.training.max_steps}")
            # A system that continues a trained one is measured before its first update too.
            begins = system.family.continues(system.objective) is not None or system.family.fit is not None
            if history and (history[0].get("step") == 0) != begins:
                faults.append(f"the first validation of {name} is of update {history[0].get('step')}")
            if not json.loads((system_folder / "config.json").read_text()):
                faults.append(f"config.json of {name} is empty")
    return faults


def _translations(plan: Plan, folder: Path) -> list[str]:
    faults = []
    for decode, seed, split in plan.rows:
        expected = len(_lines(folder / plan.corpus(split, "source")))
        text = _lines(folder / plan.translation(decode, seed, split))
        details = [json.loads(line) for line in _lines(folder / plan.translation_details(decode, seed, split))]
        if not len(text) == len(details) == expected:
            faults.append(
                f"{decode.system} {decode.name}: {len(text)} lines, {len(details)} details, {expected} wanted"
            )
        quality = json.loads((folder / plan.quality(decode, seed, split)).read_text())
        if not quality:
            faults.append(f"{decode.system} {decode.name}: no quality")
    return faults


def _analyses(plan: Plan, folder: Path) -> list[str]:
    faults = []
    page = (folder / plan.report / "index.html").read_text(encoding="utf-8")
    for name, analysis in plan.analyses.items():
        if not analysis.enabled:
            continue
        content = json.loads((folder / analysis.path).read_text())
        if content["analysis"] != analysis.name:
            faults.append(f"{analysis.path} is of {content['analysis']}")
        for row in content.get("rows", []):
            if not all(math.isfinite(value) for value in row.values() if isinstance(value, float)):
                faults.append(f"{name} has figures that are no numbers in {row}")
        if name == "energies":
            faults += _energies(json.loads(analysis.settings), content)
        if name == "latent_space" and not content["panels"]:
            faults.append("the latent space has no panels")
    if any(analysis.enabled for analysis in plan.analyses.values()) and 'id="analyses"' not in page:
        faults.append("index.html has no analyses")
    return faults


def _energies(settings: dict, content: dict) -> list[str]:
    """Faults of energies: every row has them under every scorer, and searches at the references' lengths."""
    scorers = [settings["scorer"]] if isinstance(settings["scorer"], str) else settings["scorer"]
    at_lengths, searches = content["at_reference_lengths"], settings.get("searches", ())
    faults = []
    for rows, expected in ((content["rows"], 1 + len(settings["rows"])), (at_lengths, len(searches))):
        if [row["scorer"] for row in rows] != scorers * expected:
            faults.append(f"energies are of {len(rows)} rows in place of {expected} under {', '.join(scorers)}")
    conventions = [metric.name for metric in registry.conventions().values()]
    if not all(0 <= row[name] <= 100 for row in at_lengths for name in conventions):
        faults.append("BLEU at the references' lengths is out of range")
    return faults


def _report(plan: Plan, folder: Path) -> list[str]:
    faults = []
    report_folder = folder / plan.report
    results = read_results(report_folder)
    described = results.rows[["system", "decode", "search", "engine", "seed"]]
    keys = set(described.itertuples(index=False, name=None))
    for decode, seed, split in plan.rows:
        key = (decode.system, decode.name, decode.search, decode.engine_word, seed)
        if split == "test" and key not in keys:
            faults.append(f"rows.csv has no row {key}")
    means = results_means(results.figures[results.figures["split"] == "test"])
    tested = {(decode.system, decode.name) for decode, _, split in plan.rows if split == "test"}
    for key in tested:
        lacking = {"bleu", "latency_ms"} - means.get(key, {}).keys()
        if lacking:
            faults.append(f"{' '.join(key)}: figures.csv has no {', '.join(sorted(lacking))}")
    page = (report_folder / "index.html").read_text(encoding="utf-8")
    if page.count("<tr") < len(plan.rows):
        faults.append("index.html has no table with all rows")
    faults += [f"index.html has no grid {grid.title}" for grid in plan.grids if f"<h3>{grid.title}</h3>" not in page]
    if plan.grids and not re.search(r"<td class=\"num\">[\d.]+ \([\d.]+\)</td>", page):
        faults.append("no grid has a cell with energy and BLEU")
    if 'src="http' in page or '<link href="http' in page:
        faults.append("index.html needs a network")
    if not list((report_folder / "figures").glob("*.svg")):
        faults.append("there are no figures")
    return faults


def excessive(plan: Plan, folder: Path) -> list[str]:
    """Jobs that took more time or memory than their first attempt asks for.

    Of jobs that are forks Snakemake sees the time alone.
    """
    needs, faults = Requests(plan, gpu=False), []
    for path in folder.glob("benchmarks/**/*.tsv"):
        seconds, _, megabytes, *_ = path.read_text().splitlines()[1].split("\t")
        # Names of the workflow's files: RULE/SYSTEM/seed-SEED/SEARCH/SPLIT, and a split's shard SPLIT-0-of-2.
        _, rule, *names = path.relative_to(folder / "benchmarks").with_suffix("").parts
        split, _, shards = names[-1].partition("-of-") if names else ("", "", "")
        job = SimpleNamespace(shards=shards)
        if names and rule != "finish_bundle":
            job.system = job.teacher = names[0]
        if rule in ("decode", "decode_shard", "choose_settings"):
            job.search = names[2]
        if rule in ("decode", "decode_shard", "distill", "merge_distilled"):
            job.split = split.partition("-")[0]
        # Snakemake puts a dash where a job ended before it was looked at.
        used = float(seconds) / 60, float(megabytes.replace("-", "0"))
        requested = needs.minutes(rule, job, attempt=1), needs.memory(rule, job, attempt=1)
        if used[0] >= requested[0] or used[1] >= requested[1]:
            faults.append(f"{path}: {used} of {requested}")
    return faults
