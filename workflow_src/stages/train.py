"""Stage train: a system of any family: its weights, description and training log. Each family names the rule that
runs it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workflow_src.config.resolved import System
from workflow_src.config.texts import weights_of
from workflow_src.config.training import TrainingConfig
from workflow_src.data.encoded import EncodedCorpus, check_positions
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.jobs import DeviceJobInputs, log, recorded, start
from workflow_src.records.atomic import sha256
from workflow_src.records.provenance import provenance
from workflow_src.registry import import_object
from workflow_src.runtime import torchrun
from workflow_src.spec import Family, compared
from workflow_src.training.pairs import TrainingPairs, sized, texts_words, training_pairs

if TYPE_CHECKING:
    from torch import nn

    from workflow_src.data.batching import Pairs
    from workflow_src.runtime.processes import Group
    from workflow_src.training.dev import Validation
    from workflow_src.training.state import Progress, StateFolder
    from workflow_src.training.update import Task


class Inputs(DeviceJobInputs):
    settings: System = Field(description="all that changes its weights, beside its seed and the files below")
    seed: int
    train: tuple[Path, ...] = Field(min_length=1, description="prefixes of the encoded texts, in the order of names")
    dev: Path = Field(description="prefix of the encoded dev pairs")
    subwords: Path = Field(description="folder of learn_subwords")
    reference: Path = Field(description="dev references, one a line")
    corpus_summary: Path = Field(description="corpus.json")
    base: Path | None = Field(None, description="weights of the system that this one is built on")
    roles: dict[str, Path] = Field({}, description="weights in other roles of the family")
    initial: Path | None = Field(None, description="weights to start from where names and shapes agree")
    state: Path = Field(description="folder of the states of this system and seed")
    output_folder: Path
    compile: bool = False
    log_every: int = Field(100, gt=0, description="updates")
    save_minutes: float = Field(5.0, gt=0, description="minutes between saved states")

    @property
    def title(self) -> str:
        return f"{self.settings.name}, seed {self.seed}"

    @property
    def computes(self) -> bool:
        """Families that are counted need no device."""
        return not self.settings.family.fit

    @property
    def files(self) -> dict[str, Path]:
        """Input files by the names that records give them."""
        from workflow_src.training.systems import role_input

        names = ["train"] if len(self.train) == 1 else [f"train {name}" for name in weights_of(self.settings.data)]
        files = {name: description_of(prefix) for name, prefix in zip(names, self.train, strict=True)}
        files |= {
            "dev": description_of(self.dev),
            "subwords": self.subwords / "subwords.json",
            "reference": self.reference,
        }
        files |= {role_input(role): path for role, path in self.roles.items()}
        return files | {name: path for name, path in (("base", self.base), ("initial", self.initial)) if path}


def description_of(prefix: Path) -> Path:
    return prefix.with_name(prefix.name + ".json")


def run(inputs: Inputs) -> str | None:
    """Train one system and write model.safetensors, config.json and training.jsonl. Returns a summary.

    Started by torchrun, every process calls this; the first one writes, and has the summary.
    """
    from workflow_src.runtime import processes
    from workflow_src.runtime.device import keep_memory, set_threads
    from workflow_src.runtime.processes import Group
    from workflow_src.training.devices import own_device

    keep_memory()
    family = inputs.settings.family
    if not torchrun.started():
        return _count(family, inputs) if family.fit else _train(family, inputs, inputs.machine.device, Group())
    set_threads(max(1, inputs.machine.threads // torchrun.local_size()))
    group = processes.Processes()
    device = own_device(inputs.machine.device, group)
    if family.fit:
        summary = _count(family, inputs) if group.first else None
    else:
        summary = _train(family, inputs, device, group)
    # After an error the group stays open: this process reports it and ends, and the others notice.
    group.close()
    return summary


def _count(family: Family, inputs: Inputs) -> str:
    """Count a system at once: its weights, description and figures on dev."""
    from workflow_src.families.build import build, sizes_of

    began, settings = time.perf_counter(), inputs.settings
    corpus, dev = EncodedCorpus.open(inputs.train[0]), EncodedCorpus.open(inputs.dev)
    corpus.verify()
    dev.verify()
    subwords = Subwords.load(inputs.subwords)
    model = build(family.name, settings.model, sizes_of(family.name, subwords))
    assert family.fit
    figures = import_object(family.fit)(model, corpus, dev, subwords, inputs.initial)
    description = {
        **_description(inputs, System.COUNTED, model, subwords),
        "steps": 0,
        "minutes": _minutes(time.perf_counter() - began),
        "device": "cpu",
        "precision": "float32",
    }
    _write(inputs, model, description, [{"step": 0, **figures}])
    return ", ".join(f"{name} {value:.6g}" for name, value in figures.items())


def _train(family: Family, inputs: Inputs, device: str, group: Group) -> str | None:
    """Train a system by updates. Returns a summary in the first process of the group."""
    import torch

    from workflow_src.families.build import build, build_objective, sizes_of
    from workflow_src.runtime.device import choose, set_threads
    from workflow_src.training.loop import Trainer
    from workflow_src.training.systems import load_base, load_roles, start_from
    from workflow_src.training.update import Task
    from workflow_src.types import max_positions

    settings, machine = inputs.settings, inputs.machine
    if group.size == 1:
        set_threads(machine.threads)
    runtime = choose(device, machine.precision, inputs.compile)
    texts, dev_corpus, subwords = _open_texts(inputs)
    torch.manual_seed(inputs.seed)
    model = build(family.name, settings.model, sizes_of(family.name, subwords))
    check_positions(max_positions(model), dev_corpus)
    pairs = training_pairs(texts, settings, max_positions(model))
    dev_corpus.verify()
    if settings.reversed:
        dev_corpus = dev_corpus.reversed()
    config = sized(settings.training, pairs.corpus, inputs.seed, group.size)
    base, roles = load_base(family, inputs.base), load_roles(family, inputs.roles, subwords)
    start_from(
        family,
        model,
        subwords,
        base=base,
        initial=inputs.initial,
        objective=settings.objective,
        untrained=config.max_steps == 0,
    )
    states = _states(inputs, config, group, pairs.corpus, dev_corpus, subwords) if group.first else None
    objective = build_objective(family.name, settings.objective)
    task = Task(model, objective, pairs.corpus, config, inputs.seed, runtime, group, base, roles)
    validation = _validation(family, inputs, task, dev_corpus, subwords)
    _log_start(inputs, task, pairs)
    trainer = Trainer(
        task,
        validation,
        states,
        log_every=inputs.log_every,
        save_minutes=inputs.save_minutes,
        # With keep: best, a system that continues a trained one must not end worse than it began.
        validate_start=family.continues(settings.objective) is not None,
    )
    progress = trainer.run()
    if states is None:
        return None
    # A finished training that runs again only writes its system once more: the machine that trained it is recorded.
    trained_on = states.finished_on() or {
        "device": str(runtime.device),
        "processes": group.size,
        "precision": _precision(task),
        "threads": machine.threads,
    }
    description = {
        **_description(inputs, System.COUNTED | {"objective"}, model, subwords),
        **_training_description(config, progress, pairs),
        **trained_on,
    }
    _write(inputs, model, description, progress.history)
    states.finish(trained_on)
    return _summary(validation, progress)


def _open_texts(inputs: Inputs) -> tuple[list[EncodedCorpus], EncodedCorpus, Subwords]:
    """The training texts, the dev pairs, and the subwords in the direction of the system.

    Raises ArtifactError for a text that was encoded with other subwords.
    """
    texts = [EncodedCorpus.open(prefix) for prefix in inputs.train]
    dev = EncodedCorpus.open(inputs.dev)
    subwords = Subwords.load(inputs.subwords)
    for corpus in (*texts, dev):
        if corpus.summary.get("subwords_digest", subwords.digest) != subwords.digest:
            problem = f"was encoded with other subwords than {inputs.subwords}"
            raise ArtifactError(corpus.prefix, problem, "encode it again")
    # The model is built with these: vocabularies that are not joint may differ in size.
    return texts, dev, subwords.reversed() if inputs.settings.reversed else subwords


def _validation(family: Family, inputs: Inputs, task: Task, dev: EncodedCorpus, subwords: Subwords) -> Validation:
    from workflow_src.families.build import build_validation
    from workflow_src.training.dev import open_dev

    settings = inputs.settings
    opened = open_dev(
        dev,
        inputs.reference,
        inputs.corpus_summary,
        subwords,
        task.runtime,
        task.group,
        sentences=task.config.dev_sentences,
        tokeniser=settings.bleu_tokeniser,
        reversed=settings.reversed,
    )
    return opened.validation(build_validation(family.name, settings.objective, task.frozen, task.roles))


def _precision(task: Task) -> str:
    return str(task.runtime.dtype).removeprefix("torch.")


def _log_start(inputs: Inputs, task: Task, pairs: TrainingPairs) -> None:
    """Log the system, the pairs, and the machine of a training."""
    from workflow_src.nn.weights import count_parameters

    log.info(
        "training %s (%s, %d parameters) on %d pairs, %s%s, %s",
        inputs.settings.name,
        inputs.settings.family.name,
        count_parameters(task.model),
        len(pairs.corpus),
        "" if task.group.size == 1 else f"{task.group.size} processes, ",
        task.runtime.device,
        _precision(task),
    )
    if pairs.corpus is pairs.mixture:
        log.info("%s", texts_words(pairs.mixture.counts()))
    if task.group.first and task.max_steps:
        if task.config.warm_up_warning:
            log.warning("warning: %s", task.config.warm_up_warning)
        _warn_of_long_pairs(task)


def _warn_of_long_pairs(task: Task) -> None:
    """Log where a pair takes more memory than settings of a training say."""
    longest = 1 + int(
        max(lengths.max(initial=0) for lengths in (task.corpus.source_lengths, task.corpus.target_lengths))
    )
    if longest > task.part_tokens:
        parts = f"training.accumulate ({task.config.accumulate}) or " if task.config.accumulate > 1 else ""
        log.warning(
            "warning: the longest pair has %d subwords, and a part of an update has %d: the pair makes a larger part; "
            "raise training.batch_tokens (%d), or lower %srecipe.max_length",
            longest,
            task.part_tokens,
            task.config.batch_tokens,
            parts,
        )


def _training_description(config: TrainingConfig, progress: Progress, pairs: TrainingPairs) -> dict[str, Any]:
    """Settings and counts of a training, as the system's description has them."""
    return {
        "training": config.model_dump(mode="json", exclude={"save_every", "max_skipped"}),
        "steps": progress.step,
        "skipped": progress.skipped,
        "target_tokens_seen": progress.target_tokens,
        "minutes": _minutes(progress.seconds),
        **({"texts": pairs.mixture.counts()} if pairs.corpus is pairs.mixture else {}),
        "longest_source": int(pairs.corpus.source_lengths.max()),
        "without_positions": pairs.without_positions,
    }


def _write(inputs: Inputs, model: nn.Module, description: dict[str, Any], history: list[dict[str, Any]]) -> None:
    from workflow_src.training.systems import write_system

    settings, files = recorded(inputs.settings), inputs.files
    write_system(
        inputs.output_folder, model, description, history, lambda outputs: provenance(settings, files, outputs)
    )


def _summary(validation: Validation, progress: Progress) -> str:
    """Summary of a training in a line; a fault that the figures of its weights show is logged."""
    kept = progress.history[progress.chosen] if progress.history else {}
    if validation.fault and kept and (fault := validation.fault(kept)):
        log.warning("warning: %s", fault)
    figures = {name: round(value, 3) for name, value in kept.items() if name.startswith("dev_")}
    minutes = _minutes(progress.seconds)
    return f"{progress.step} updates in {minutes} minutes, {figures}"


def _minutes(seconds: float) -> float:
    return round(seconds / 60, 2)


def _identity(system: System, config: TrainingConfig) -> dict[str, Any]:
    """Settings that tell a saved state from those of other trainings, as Snakemake compares them (`config/plan/`).

    Without values that are defaults, so that a setting that a new version adds abandons no state, and without the
    preset's name, whose values the model has.
    """
    settings = system.model_copy(update={"training": config})
    return compared(settings, include=System.LEARNT, exclude=System.WITHOUT_EFFECT)


def _description(inputs: Inputs, fields: set[str], model: nn.Module, subwords: Subwords) -> dict[str, Any]:
    """Settings (`fields` of the system), seed, sizes and subwords, as the system's description has them."""
    from workflow_src.families.build import sizes_of
    from workflow_src.nn.weights import count_parameters

    settings = inputs.settings.model_dump(mode="json", include=fields - {"name", "reversed"})
    return {
        "system": inputs.settings.name,
        **settings,
        **({"reversed": True} if inputs.settings.reversed else {}),
        "seed": inputs.seed,
        "sizes": sizes_of(inputs.settings.family.name, subwords),
        "subwords": subwords.digest,
        "parameters": count_parameters(model),
    }


def _states(
    inputs: Inputs, config: TrainingConfig, group: Group, corpus: Pairs, dev: EncodedCorpus, subwords: Subwords
) -> StateFolder:
    """The folder of the state, which settings, seed and contents of inputs tell from others."""
    from workflow_src.training.state import StateFolder
    from workflow_src.training.systems import role_input

    # Contents, not files: encoding the same text again changes times in a JSON file, but nothing that matters here.
    contents = {"train": corpus.digest, "dev": dev.digest, "subwords": subwords.digest}
    names = ("reference", "base", "initial", *map(role_input, inputs.roles))
    contents |= {name: sha256(path) for name, path in inputs.files.items() if name in names}
    identity = {"settings": _identity(inputs.settings, config), "seed": inputs.seed, "inputs": contents}
    parts = config.parts(group.size)
    # The configured number of parts gives the same parts, whatever the number of processes.
    if parts != config.accumulate:
        identity["parts"] = parts
    return StateFolder(inputs.state, identity)


if __name__ == "__main__":
    start(run, Inputs, __doc__)
