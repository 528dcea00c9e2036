"""The one body of all trainings: arguments, opening inputs, running the trainer, writing the system."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from workflow_src.config.base import parse
from workflow_src.config.experiment import TrainingConfig
from workflow_src.config.sizes import AUTO
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.families.build import build, build_objective, sizes_of
from workflow_src.jobs import add_runtime, boolean, log, parser
from workflow_src.nn.weights import count_parameters
from workflow_src.records.atomic import fingerprint, sha256
from workflow_src.records.provenance import provenance
from workflow_src.registry import families, import_object
from workflow_src.runtime import processes, torchrun
from workflow_src.runtime.device import choose, keep_memory, set_threads
from workflow_src.runtime.processes import Group
from workflow_src.runtime.signals import die_with_parent
from workflow_src.spec import Family
from workflow_src.training.devices import own_device
from workflow_src.training.inputs import check_positions, input_files, load_base, load_roles, open_dev, start_from
from workflow_src.training.loop import Progress, Trainer
from workflow_src.training.state import StateFolder
from workflow_src.training.systems import add_roles, named_files, role_input, write_system
from workflow_src.training.update import parts_of_an_update


def arguments(description: str) -> argparse.ArgumentParser:
    made = parser(description)
    made.add_argument("--seed", type=int, required=True)
    made.add_argument("--train", type=Path, required=True, help="prefix of the encoded training pairs")
    made.add_argument("--dev", type=Path, required=True, help="prefix of the encoded dev pairs")
    made.add_argument("--test", type=Path, help="prefix of the encoded test pairs: only their lengths are looked at")
    made.add_argument("--subwords", type=Path, required=True)
    made.add_argument("--reference", type=Path, required=True, help="dev references, one a line")
    made.add_argument("--corpus-summary", type=Path, required=True)
    made.add_argument("--base", type=Path, help="weights of the system that this one is built on")
    add_roles(made)
    made.add_argument("--initial", type=Path, help="weights to start from where names and shapes agree")
    made.add_argument("--state", type=Path, required=True, help="folder of the training state")
    made.add_argument("--output-folder", type=Path, required=True)
    made.add_argument("--compile", type=boolean, default=False)
    made.add_argument("--log-every", type=int, default=100)
    made.add_argument("--save-every", default=AUTO, help="updates between saved states, or auto")
    made.add_argument("--save-minutes", type=float, default=5.0, help="minutes between saved states")
    made.add_argument("--max-skipped", type=int, default=10, help="updates in a row that may be skipped")
    made.add_argument("--split-batches", type=boolean, default=True, help="in halves, when memory does not suffice")
    add_runtime(made)
    return made


def run(given: argparse.Namespace) -> str | None:
    """Train one system and write model.safetensors, config.json and training.jsonl. Returns a summary.

    Started by torchrun, every process calls this; the first one writes, and has the summary.
    """
    keep_memory()
    if not torchrun.started():
        return _train(given, Group())
    die_with_parent()
    set_threads(max(1, given.threads // torchrun.local_size()))
    group = processes.Processes()
    given.device = own_device(given.device, group)
    summary = _train(given, group)
    # After an error the others learn of it when this process has said what it was, and ends.
    group.close()
    return summary


def _fit(family: Family, given: argparse.Namespace) -> str:
    """Make what is counted at once: its weights, description and figures on dev."""
    began, settings = time.perf_counter(), given.settings
    corpus, dev = EncodedCorpus.open(given.train), EncodedCorpus.open(given.dev)
    corpus.verify()
    subwords = Subwords.load(given.subwords)
    sizes = sizes_of(family.name, subwords)
    model = build(family.name, settings["model"], sizes)
    figures = import_object(family.fit)(model, corpus, dev, subwords, given.initial)
    description = {
        **{name: settings[name] for name in ("system", "family", "preset", "data", "model")},
        "seed": given.seed,
        "subwords": subwords.digest,
        "steps": 0,
        "minutes": round((time.perf_counter() - began) / 60, 2),
        "sizes": sizes,
        "parameters": count_parameters(model),
        "device": "cpu",
        "precision": "float32",
    }
    inputs = input_files(given)
    write_system(
        given.output_folder,
        model,
        description,
        [{"step": 0, **figures}],
        lambda files: provenance(settings, inputs, files),
    )
    return f"{settings['system']}: {', '.join(f'{name} {value:.6g}' for name, value in figures.items())}"


def _train(given: argparse.Namespace, group: Group) -> str | None:
    family = families()[given.settings["family"]]
    if family.fit:
        return _fit(family, given) if group.first else None
    if group.size == 1:
        set_threads(given.threads)
    runtime = choose(given.device, given.precision, given.compile)
    settings = given.settings
    corpus, dev = EncodedCorpus.open(given.train), EncodedCorpus.open(given.dev)
    corpus.verify()
    config = _sized(given, corpus)
    subwords = Subwords.load(given.subwords)
    for prefix, part in ((given.train, corpus), (given.dev, dev)):
        if part.summary.get("subwords_digest", subwords.digest) != subwords.digest:
            raise ArtifactError(prefix, f"was encoded with other subwords than {given.subwords}", "encode it again")
    sizes = sizes_of(settings["family"], subwords)
    torch.manual_seed(given.seed)
    model = build(settings["family"], settings["model"], sizes)
    read = [(given.train, corpus), (given.dev, dev)]
    # Test is translated after all training: what could not be is said now.
    read += [(given.test, EncodedCorpus.open(given.test))] if given.test else []
    for prefix, part in read:
        check_positions(prefix, part, model.config.max_positions)
    base, roles = load_base(family, given), load_roles(family, given, subwords)
    start_from(family, model, base, given, subwords)
    inputs = input_files(given)
    states = _states(given, config, group, inputs, corpus, dev, subwords) if group.first else None
    on_dev = open_dev(dev, given, subwords, runtime, config, group)
    objective_settings = parse(family.objective, settings["objective"], "objective")
    validation = import_object(family.validation)(on_dev, objective_settings, base, **roles)
    objective = build_objective(family.name, settings["objective"])
    parameters = count_parameters(model)
    precision = str(runtime.dtype).removeprefix("torch.")
    log.info(
        "training %s (%s, %d parameters) on %d pairs, %s%s, %s",
        *(settings["system"], settings["family"], parameters, len(corpus)),
        *("" if group.size == 1 else f"{group.size} processes, ", runtime.device, precision),
    )
    trainer = Trainer(
        *(model, objective, config, corpus, validation, runtime, states, given.seed, base),
        log_every=given.log_every,
        save_minutes=given.save_minutes,
        group=group,
        split_batches=given.split_batches,
        roles=roles,
        # With keep: best, what continues a trained system must not end worse than it began.
        validate_start=family.continues is not None,
    )
    progress = trainer.run()
    if not group.first:
        return None
    # Where the whole training was done before, what it was done on counts, not what writes it down once more.
    machine = states.finished_on() or {
        "device": str(runtime.device),
        "processes": group.size,
        "precision": precision,
        "threads": given.threads,
    }
    description = {
        **_description(given, config, progress),
        "sizes": sizes,
        "subwords": subwords.digest,
        "parameters": parameters,
        **machine,
    }
    write_system(
        given.output_folder,
        model,
        description,
        progress.history,
        lambda files: provenance(settings, inputs, files),
    )
    states.finish(machine)
    if validation.fault and progress.history and (fault := validation.fault(progress.history[-1])):
        log.warning("warning: %s", fault)
    last = {
        k: round(v, 3) for k, v in (progress.history[-1] if progress.history else {}).items() if k.startswith("dev_")
    }
    return (
        f"{settings['system']} seed {given.seed}: {progress.step} updates in {description['minutes']} minutes, {last}"
    )


def _sized(given: argparse.Namespace, corpus: EncodedCorpus) -> TrainingConfig:
    """The settings of the training, with numbers in place of auto by what the corpus has."""
    settings = given.settings["training"] | {"save_every": given.save_every, "max_skipped": given.max_skipped}
    wanted = parse(TrainingConfig, settings, "training")
    tokens = int(corpus.target_lengths.sum()) + len(corpus)
    config = wanted.sized(tokens)
    if config.max_steps != wanted.max_steps:
        log.info(
            "max_steps is auto: %d updates for %d target tokens, with %d of warm-up and a validation every %d",
            *(config.max_steps, tokens, config.warmup_steps, config.validate_every),
        )
    return config


def _settings(given: argparse.Namespace, config: TrainingConfig) -> dict[str, Any]:
    """What makes the weights, with numbers in place of auto."""
    return given.settings | {"training": config.model_dump(mode="json", exclude={"save_every", "max_skipped"})}


def _description(given: argparse.Namespace, config: TrainingConfig, progress: Progress) -> dict[str, Any]:
    """What the system was trained with, and what it came to."""
    names = ("system", "family", "preset", "data", "model", "objective", "training")
    settings = _settings(given, config)
    return {
        **{name: settings[name] for name in names},
        "seed": given.seed,
        "steps": progress.step,
        "skipped": progress.skipped,
        "target_tokens_seen": progress.target_tokens,
        "minutes": round(progress.seconds / 60, 2),
    }


def _states(given, config: TrainingConfig, group: Group, inputs: dict[str, Path], corpus, dev, subwords) -> StateFolder:
    """The folder of the state, of what makes the weights: settings, seed, contents of inputs."""
    # Contents, not files: encoding the same text again changes times in a JSON file, but nothing that matters here.
    contents = {"train": corpus.summary["digest"], "dev": dev.summary["digest"], "subwords": subwords.digest}
    files = ("reference", "base", "initial", *map(role_input, named_files(given.roles)))
    contents |= {name: sha256(inputs[name]) for name in files if name in inputs}
    identity = {"settings": _settings(given, config), "seed": given.seed, "inputs": contents}
    parts = parts_of_an_update(config.accumulate, group.size)
    # As many parts as were configured are the same parts, however many processes compute them.
    if parts != config.accumulate:
        identity["parts"] = parts
    return StateFolder(given.state, fingerprint(identity))
