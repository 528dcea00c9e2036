"""The one body of all trainings: arguments, reading inputs, running the trainer, writing the system."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workflow_src.config.base import parse
from workflow_src.config.datasets import NormalisationConfig
from workflow_src.config.experiment import TrainingConfig
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.lines import read_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.data.subwords import Subwords
from workflow_src.families.build import build, build_objective, sizes_of
from workflow_src.jobs import add_runtime, boolean, lease_devices, log, parser
from workflow_src.nn.weights import copy_matching, count_parameters, weights_of
from workflow_src.records.atomic import (
    ArtifactError,
    atomic,
    fingerprint,
    load_tensors,
    read_json,
    save_tensors,
    sha256,
    write_json,
)
from workflow_src.records.provenance import digests, provenance
from workflow_src.registry import families, import_object
from workflow_src.runtime import gpus, processes, torchrun
from workflow_src.runtime.device import Runtime, choose, keep_memory, set_threads
from workflow_src.runtime.processes import Group
from workflow_src.runtime.signals import die_with_parent
from workflow_src.spec import BASE, Family
from workflow_src.training.dev import Dev
from workflow_src.training.loop import Progress, Trainer
from workflow_src.training.state import StateFolder
from workflow_src.training.systems import (
    add_roles,
    check_digest,
    family_of,
    load_system,
    named_files,
    read_description,
    role_input,
)
from workflow_src.training.update import parts_of_an_update

LEASE_SECONDS = 60.0


def arguments(description: str) -> argparse.ArgumentParser:
    made = parser(description)
    made.add_argument("--seed", type=int, required=True)
    made.add_argument("--train", type=Path, required=True, help="prefix of the encoded training pairs")
    made.add_argument("--dev", type=Path, required=True, help="prefix of the encoded dev pairs")
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
    made.add_argument("--save-every", type=int, default=1000, help="updates between saved states")
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
    given.device = _own_device(given.device, group)
    summary = _train(given, group)
    # After an error the others learn of it when this process has said what it was, and ends.
    group.close()
    return summary


def _own_device(device: str, group: processes.Processes) -> str:
    """The device of this process: on each machine, the first process takes one for every process there."""
    local = torchrun.local_rank()
    # No process may look at GPUs before it is told which are its own. While one waits for some, which may take days,
    # all hear of it from time to time: a connection that is silent for hours counts as broken.
    waiting, leased = local == 0, None
    while True:
        if waiting:
            with contextlib.suppress(gpus.Taken):
                leased, waiting = lease_devices(device, torchrun.local_size(), LEASE_SECONDS), False
        told = group.gather((waiting, leased))
        if not any(waits for waits, _ in told):
            break
    leased = told[group.rank - local][1]
    if leased is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(leased)
    elif device == "cpu" or not torch.cuda.is_available():
        return device
    there = torch.cuda.device_count()
    if there < torchrun.local_size():
        raise ValueError(
            f"setting runtime.devices asks for {torchrun.local_size()} GPUs, {there} are visible here; lower it."
        )
    # Who names a GPU by its number has one process on each machine.
    own = device if ":" in device else f"cuda:{local}"
    torch.cuda.set_device(own)
    group.use_cuda()
    return own


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
        "steps": 0,
        "minutes": round((time.perf_counter() - began) / 60, 2),
        "sizes": sizes,
        "parameters": count_parameters(model),
        "device": "cpu",
        "precision": "float32",
    }
    inputs = _inputs(given)
    _write(
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
    config = TrainingConfig.model_validate(
        settings["training"] | {"save_every": given.save_every, "max_skipped": given.max_skipped}
    )
    corpus, dev = EncodedCorpus.open(given.train), EncodedCorpus.open(given.dev)
    corpus.verify()
    subwords = Subwords.load(given.subwords)
    for prefix, part in ((given.train, corpus), (given.dev, dev)):
        if part.summary.get("subwords_digest", subwords.digest) != subwords.digest:
            raise ArtifactError(f"{prefix} was encoded with other subwords than {given.subwords}; encode it again.")
    sizes = sizes_of(settings["family"], subwords)
    torch.manual_seed(given.seed)
    model = build(settings["family"], settings["model"], sizes)
    for prefix, part in ((given.train, corpus), (given.dev, dev)):
        _check_positions(prefix, part, model.config.max_positions)
    base, roles = _base(family, given), _roles(family, given)
    _start(family, model, base, given)
    inputs = _inputs(given)
    states = _states(given, config, group, inputs, corpus, dev, subwords) if group.first else None
    on_dev = _dev(dev, given, subwords, runtime, config, group)
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
        group=group,
        split_batches=given.split_batches,
        roles=roles,
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
        **_description(given, progress),
        "sizes": sizes,
        "parameters": parameters,
        **machine,
    }
    _write(given.output_folder, model, description, progress.history, lambda files: provenance(settings, inputs, files))
    states.finish(machine)
    last = {
        k: round(v, 3) for k, v in (progress.history[-1] if progress.history else {}).items() if k.startswith("dev_")
    }
    return (
        f"{settings['system']} seed {given.seed}: {progress.step} updates in {description['minutes']} minutes, {last}"
    )


def _description(given: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """What was asked for, and what it came to."""
    names = ("system", "family", "preset", "data", "model", "objective", "training")
    return {
        **{name: given.settings[name] for name in names},
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
    identity = {"settings": given.settings, "seed": given.seed, "inputs": contents}
    parts = parts_of_an_update(config.accumulate, group.size)
    # As many parts as were configured are the same parts, however many processes compute them.
    if parts != config.accumulate:
        identity["parts"] = parts
    return StateFolder(given.state, fingerprint(identity))


def _check_positions(prefix: Path, corpus: EncodedCorpus, limit: int) -> None:
    """Raises ValueError now for a sentence that would stop training later."""
    longest = max(int(corpus.source_lengths.max(initial=0)), int(corpus.target_lengths.max(initial=0))) + 1
    if longest > limit:
        raise ValueError(
            f"{prefix} has a sentence of {longest} subwords, end symbol counted, the model has {limit} positions; "
            "raise model.max_positions, or lower recipe.max_length (train) or leave the sentence out (dev)."
        )


def _inputs(given: argparse.Namespace) -> dict[str, Path]:
    inputs = {
        "train": given.train.with_name(given.train.name + ".json"),
        "dev": given.dev.with_name(given.dev.name + ".json"),
        "subwords": given.subwords / "subwords.json",
        "reference": given.reference,
    }
    inputs |= {role_input(role): path for role, path in named_files(given.roles).items()}
    return inputs | {name: path for name, path in (("base", given.base), ("initial", given.initial)) if path}


def _dev(corpus: EncodedCorpus, given, subwords: Subwords, runtime: Runtime, config: TrainingConfig, group) -> Dev:
    references = list(read_lines(given.reference))
    if len(references) != len(corpus):
        raise ArtifactError(
            f"{given.reference} has {len(references)} lines, {given.dev} has {len(corpus)} pairs; encode again."
        )
    summary = read_json(given.corpus_summary)
    normaliser = Normaliser(NormalisationConfig.model_validate(summary["normalisation"]), _language(given.reference))
    count = min(config.dev_sentences or len(references), len(references))

    def lines(ids: list[list[int]]) -> list[str]:
        return [normaliser.detokenise(line) for line in subwords.decode_target(ids)]

    return Dev(corpus, references, lines, runtime, count, group)


def _language(path: Path) -> str:
    return path.suffix.removeprefix(".")


def _base(family: Family, given: argparse.Namespace) -> nn.Module | None:
    """The frozen system that a family is built on. Raises ValueError where it is missing or not needed."""
    role = family.needs.get(BASE)
    if role is None:
        if given.base is not None:
            raise ValueError(f"a system of family {family.name} is built on no other; remove --base.")
        return None
    if given.base is None:
        if role.optional:
            return None
        raise ValueError(f"a system of family {family.name} needs --base, the weights of one that is {role.trait}.")
    return load_system(given.base, role.trait)[0]


def _roles(family: Family, given: argparse.Namespace) -> dict[str, nn.Module]:
    """The frozen systems in the roles that a family needs beside its base. Raises ValueError, as for the base."""
    files = named_files(given.roles)
    others = {name: role for name, role in family.needs.items() if name != BASE}
    if unknown := sorted(set(files) - set(others)):
        raise ValueError(f"a system of family {family.name} needs no {unknown[0]}; remove it from --roles.")
    for name, role in others.items():
        if name not in files and not role.optional:
            raise ValueError(f"a system of family {family.name} needs --roles {name}=FILE, weights of a system.")
    return {name: load_system(path, others[name].trait)[0] for name, path in files.items()}


def _start(family: Family, model: nn.Module, base: nn.Module | None, given: argparse.Namespace) -> None:
    """Start from given weights, from those of the base, or at random, as the family says."""
    tensors = _initial_tensors(given) if given.initial else None
    if family.start is not None:
        took = import_object(family.start)(model, tensors, family_of(given.initial) if given.initial else None, base)
    else:
        took = None if tensors is None else copy_matching(model, tensors)
    if took is not None:
        _check_start(took, model, given)


def _check_start(took: list[str], model: nn.Module, given: argparse.Namespace) -> None:
    """Log what a model starts from. Raises ArtifactError when the given weights do not serve.

    Weights that are used without training must be whole.
    """
    names = [name for name, _ in model.named_parameters()]
    whole = given.settings["training"]["max_steps"] == 0
    if given.initial and (not took or (whole and set(names) - set(took))):
        raise ArtifactError(
            f"weights {given.initial} have {len(took)} of this model's {len(names)} tensors in their shapes; give "
            "weights of this family and size."
        )
    log.info("starts from %s: %d tensors", given.initial or given.base, len(took))


def _initial_tensors(given: argparse.Namespace) -> dict[str, Any]:
    """The weights to start from; the user's own need no description beside them."""
    tensors = load_tensors(given.initial)
    if given.initial.with_name("config.json").exists():
        check_digest(read_description(given.initial), given.initial)
    return tensors


def _write(
    folder: Path,
    model: nn.Module,
    description: dict[str, Any],
    history: list[dict[str, Any]],
    made: Callable[[dict[str, str]], dict[str, Any]],
) -> None:
    """The description last: it says which weights it describes, and a folder with a description is complete.

    `made` gives its provenance, from the digests of the files that it vouches for.
    """
    (folder / "config.json").unlink(missing_ok=True)
    # What jobs that were killed here have left: the state's lock says that no other is writing.
    for partial in folder.glob(".*.partial"):
        partial.unlink()
    with atomic(folder / "training.jsonl") as file:
        for entry in history:
            file.write(json.dumps(entry, sort_keys=True) + "\n")
    weights = folder / "model.safetensors"
    save_tensors(weights, weights_of(model))
    files = digests(folder, ["model.safetensors", "training.jsonl"])
    whole = description | {"sha256": files["model.safetensors"], "provenance": made(files)}
    write_json(folder / "config.json", whole)
