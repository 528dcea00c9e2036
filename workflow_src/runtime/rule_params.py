"""Params of rules: the settings that Snakemake compares, and the document of a job with all that its stage reads.

A job is an object with `wildcards`, `input` and `output`, as Snakemake hands them to functions of params.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workflow_src.config.plan import Plan
from workflow_src.config.plan.analyses import PlannedAnalysis
from workflow_src.config.plan.inputs import ROLE
from workflow_src.config.roles import roles
from workflow_src.records.documents import JobDocument
from workflow_src.spec import BASE

JOBS = "work/jobs"
OfJob = Callable[[Any], Any]
Params = dict[str, Any]


def folder_of(file: str) -> OfJob:
    """A function of a job: the folder that a file lies in, such as `input.bundle`."""
    return lambda job: os.path.dirname(attrgetter(file)(job))


def prefix_of(file: str) -> OfJob:
    """A function of a job: the prefix of the encoded split whose PREFIX.json is a file, such as `input.dev`."""
    return lambda job: os.path.splitext(attrgetter(file)(job))[0]


def folders(bundles: Sequence[str]) -> dict[str, str]:
    """The folder of each of some bundles by its system, which the path names."""
    return {Path(bundle).parts[-4]: os.path.dirname(bundle) for bundle in bundles}


def folders_by_system(job: Any) -> dict[str, str]:
    """The folder of each system's bundle in `input.bundles`."""
    return folders(job.input.bundles)


def weights_in_roles(job: Any) -> dict[str, str]:
    """Files of the systems in other roles than the base that a system is built on, by role."""
    return {name.removeprefix(ROLE): str(job.input[name]) for name in job.input.keys() if name.startswith(ROLE)}


def systems_in_roles(job: Any) -> dict[str, str]:
    """Folders of the systems that a decode works with beside its own, by role."""
    return {role: os.path.dirname(job.input[role]) for role in roles() if role in job.input.keys()}


class RuleParams:
    """Params of every rule of a plan. `runs_jobs` says whether jobs are run: where not, no document is written."""

    def __init__(self, plan: Plan, runs_jobs: Callable[[], bool]):
        self.plan, self.runs_jobs = plan, runs_jobs
        # The settings of the machine for all jobs: no job's document has them, and nothing reruns when they change.
        self.run_document = JobDocument(f"{JOBS}/run", plan.run_settings())
        # Compared with what a finished job had; the defaults say what a change is from.
        self.compared, self.defaults = plan.compared(), plan.defaults()

    def stage(
        self,
        name: str,
        settings: Callable[..., str],
        names: Sequence[str] = (),
        of: Sequence[str | Callable[[Any], Any]] = (),
        **options: str | OfJob,
    ) -> Params:
        """Params for running the stage `name`: `settings`, which Snakemake compares, and `job`, which it does not.

        `settings` is a function of the plan, and of wildcards (`of`: their names, or functions of all of them): the
        settings that change the result, as JSON. `names` are inputs of the stage with the name of a wildcard or of an
        input of the rule, which some jobs lack. `options` are its other inputs by name: functions of the job, or
        attributes of it, such as `output.text`. Empty ones are left out. `job` is the path of the document with all of
        them, `run` that of the run's.
        """

        def arguments(wildcards: Any) -> list[Any]:
            return [value(wildcards) if callable(value) else getattr(wildcards, value) for value in of]

        # Snakemake does not compare params that are derived from files.
        def job(wildcards: Any, input: Any, output: Any) -> str:
            job = SimpleNamespace(wildcards=wildcards, input=input, output=output)
            values = {name: input.get(name, wildcards.get(name)) for name in names}
            for option, value in options.items():
                values[option] = attrgetter(value)(job) if isinstance(value, str) else value(job)
            values = {option: value for option, value in values.items() if value or value == 0}
            document = JobDocument(
                f"{JOBS}/{name}", {"settings": json.loads(settings(self.plan, *arguments(wildcards)))} | values
            )
            if self.runs_jobs():
                document.write()
                self.run_document.write()
            return str(document.path)

        # Not a variable of the environment: another module of the workflow may have other settings. A function of the
        # input, so that Snakemake does not compare it.
        def run(wildcards: Any, input: Any) -> str:  # noqa: ARG001
            return str(self.run_document.path)

        def compared(wildcards: Any) -> str:
            return settings(self.compared, *arguments(wildcards))

        # For `continuum plan`.
        compared.defaults = lambda wildcards: settings(self.defaults, *arguments(wildcards))  # type: ignore[attr-defined]
        return {"stage": name, "settings": compared, "job": job, "run": run}

    @property
    def decoding(self) -> dict[str, Any]:
        """Inputs of stages that decode: whose settings, text, folders of systems, sentences translated together."""
        return {
            "of": [self.plan.decode_of],
            "source": "input.source",
            "bundle": folder_of("input.bundle"),
            "systems": systems_in_roles,
            "batch": lambda job: self.plan.decode_of(job.wildcards).batch,
        }

    @property
    def bundling(self) -> dict[str, Any]:
        """Inputs of stages that make bundles, beside the models."""
        return {
            "languages": self.languages,
            "normalisation": lambda _job: self.plan.loaded.normalisation.model_dump(mode="json"),
            "subwords": folder_of("input.subwords"),
            "output_folder": folder_of("output.bundle"),
        }

    def languages(self, _job: Any) -> list[str]:
        return [self.plan.recipe.source, self.plan.recipe.target]

    @property
    def download(self) -> Params:
        return self.stage(
            "download",
            Plan.settings_download,
            languages=self.languages,
            folder=lambda _job: self.plan.recipe.folder,
            scores=lambda job: bool(job.output.scores),
            summary="output.summary",
        )

    @property
    def download_monolingual(self) -> Params:
        return self.stage(
            "download",
            Plan.settings_download_monolingual,
            languages=lambda _job: [self.plan.recipe.source],
            summary="output.summary",
        )

    @property
    def encode(self) -> Params:
        return self.stage(
            "encode",
            Plan.settings_encode,
            ["source", "target", "corpus_summary", "measured", "split"],
            of=["text"],
            subwords=folder_of("input.subwords"),
            # No result depends on it: longer sentences end the job.
            longest=lambda job: self.plan.longest_encoded(job.wildcards.text, job.wildcards.split),
            languages=self.languages,
            output_prefix=prefix_of("output.summary"),
        )

    @property
    def training(self) -> Params:
        return self.stage(
            "train",
            Plan.settings_training,
            ["seed", "reference", "corpus_summary", "initial", BASE],
            of=["system"],
            train=lambda job: [os.path.splitext(file)[0] for file in job.input.train],
            dev=prefix_of("input.dev"),
            subwords=folder_of("input.subwords"),
            roles=weights_in_roles,
            state=lambda job: self.plan.state_folder(job.wildcards.system, job.wildcards.seed),
            output_folder=folder_of("output.weights"),
        )

    @property
    def distillation(self) -> Params:
        return self.stage(
            "distill",
            Plan.settings_distillation,
            ["model", "source", "shard", "shards"],
            of=["teacher"],
            subwords=folder_of("input.subwords"),
            output="output.shard",
        )

    @property
    def merging(self) -> Params:
        return self.stage(
            "merge_distilled",
            Plan.settings_distillation,
            ["shards", "model", "source"],
            of=["teacher"],
            subwords=folder_of("input.subwords"),
            output_text="output.text",
            output_scores="output.scores",
        )

    @property
    def keeping(self) -> Params:
        return self.stage(
            "keep_likely",
            Plan.settings_likelihood,
            ["system", "shards", "backward_model", "backward_shards", "model"],
            of=["system"],
            subwords=folder_of("input.subwords"),
            pairs=prefix_of("input.pairs"),
            output_prefix=prefix_of("output.summary"),
        )

    @property
    def speed(self) -> Params:
        return self.stage(
            "measure_speed",
            Plan.settings_speed,
            ["source"],
            bundles=folders_by_system,
            exports=lambda job: {kind: folders(job.input[kind]) for kind in self.plan.exports},
            chosen=lambda _job: self.plan.chosen_for_speed,
            output="output.speed",
        )

    def export(self, name: str) -> Params:
        return self.stage(
            "export_engine",
            lambda _plan: "{}",
            engine=lambda _job: name,
            bundle=folder_of("input.bundle"),
            output_folder=folder_of("output.bundle"),
        )

    def analysis(self, key: str, analysis: PlannedAnalysis) -> Params:
        return self.stage(
            "measure_analysis",
            lambda plan: plan.settings_of_analysis(key),
            ["source", "target", "reference"],
            analysis=lambda _job: analysis.name,
            limits=lambda _job: dict(analysis.limits),
            bundles=folders_by_system,
            output="output.analysis",
        )

    def program(self, name: str) -> Params:
        return self.stage(
            "score_sentences",
            lambda plan: plan.settings_program(name),
            ["details", "source", "reference"],
            hypotheses="input.text",
            metric=lambda _job: name,
            cache=lambda _job: self.plan.figure_cache(name),
            output="output.figures",
        )

    def comparison(self, test_set: str) -> Params:
        return self.stage(
            "compare_rows",
            lambda plan: plan.settings_significance(test_set),
            ["source", "reference", "computed"],
            output="output.significance",
        )
