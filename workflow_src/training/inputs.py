"""What a training reads beside its corpus: the dev set's references, frozen systems, weights to start from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torch import nn

from workflow_src.config.datasets import NormalisationConfig
from workflow_src.config.experiment import TrainingConfig
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.lines import read_lines
from workflow_src.data.normalise import Normaliser
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.jobs import log
from workflow_src.nn.weights import copy_matching
from workflow_src.records.atomic import load_tensors, read_json
from workflow_src.registry import families, import_object
from workflow_src.runtime.device import Runtime
from workflow_src.runtime.processes import Group
from workflow_src.spec import BASE, Family
from workflow_src.training.dev import Dev
from workflow_src.training.systems import (
    check_digest,
    check_subwords,
    description_if_any,
    load_system,
    named_files,
    role_input,
)


def input_files(given: argparse.Namespace) -> dict[str, Path]:
    """Files of the inputs, by what records call them."""
    inputs = {
        "train": given.train.with_name(given.train.name + ".json"),
        "dev": given.dev.with_name(given.dev.name + ".json"),
        "subwords": given.subwords / "subwords.json",
        "reference": given.reference,
    }
    inputs |= {"test": given.test.with_name(given.test.name + ".json")} if given.test else {}
    inputs |= {role_input(role): path for role, path in named_files(given.roles).items()}
    return inputs | {name: path for name, path in (("base", given.base), ("initial", given.initial)) if path}


def check_positions(prefix: Path, corpus: EncodedCorpus, limit: int) -> None:
    """Raises ValueError now for a sentence that would stop training later."""
    longest = max(int(corpus.source_lengths.max(initial=0)), int(corpus.target_lengths.max(initial=0))) + 1
    if longest > limit:
        raise ValueError(
            f"{prefix} has a sentence of {longest} subwords, end symbol counted, the model has {limit} positions; "
            "raise model.max_positions, lower recipe.max_length (train), or leave the sentence out by "
            "recipe.normalisation.max_characters (dev, test)."
        )


def open_dev(
    corpus: EncodedCorpus,
    given: argparse.Namespace,
    subwords: Subwords,
    runtime: Runtime,
    config: TrainingConfig,
    group: Group,
) -> Dev:
    """The dev set with its references. Raises ArtifactError where they are not as many as encoded pairs."""
    references = list(read_lines(given.reference))
    if len(references) != len(corpus):
        raise ArtifactError(
            given.reference, f"has {len(references)} lines, {given.dev} has {len(corpus)} pairs", "encode again"
        )
    summary = read_json(given.corpus_summary)
    normaliser = Normaliser(NormalisationConfig.model_validate(summary["normalisation"]), _language(given.reference))
    count = min(config.dev_sentences or len(references), len(references))

    def lines(ids: list[list[int]]) -> list[str]:
        return [normaliser.detokenise(line) for line in subwords.decode_target(ids)]

    return Dev(corpus, references, lines, runtime, count, group, given.settings["bleu_tokeniser"])


def _language(path: Path) -> str:
    return path.suffix.removeprefix(".")


def load_base(family: Family, given: argparse.Namespace) -> nn.Module | None:
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


def load_roles(family: Family, given: argparse.Namespace, subwords: Subwords) -> dict[str, nn.Module]:
    """The frozen systems in the roles that a family needs beside its base. Raises ValueError, as for the base, and
    ArtifactError for one of other subwords in a role that has to agree on them."""
    files = named_files(given.roles)
    others = {name: role for name, role in family.needs.items() if name != BASE}
    if unknown := sorted(set(files) - set(others)):
        raise ValueError(f"a system of family {family.name} needs no {unknown[0]}; remove it from --roles.")
    for name, role in others.items():
        if name not in files and not role.optional:
            raise ValueError(f"a system of family {family.name} needs --roles {name}=FILE, weights of a system.")
    loaded = {name: load_system(path, others[name].trait) for name, path in files.items()}
    for name, (_, description) in loaded.items():
        if "subwords" in others[name].agree:
            check_subwords(description, subwords, files[name])
    return {name: model for name, (model, _) in loaded.items()}


def start_from(
    family: Family, model: nn.Module, base: nn.Module | None, given: argparse.Namespace, subwords: Subwords
) -> None:
    """Start from given weights, from those of the base, or at random, as the family says."""
    tensors = description = None
    if given.initial:
        tensors, description = load_tensors(given.initial), description_if_any(given.initial)
    if description:
        check_digest(description, given.initial)
    other = description["family"] if description else None
    if family.start is not None:
        took = import_object(family.start)(model, tensors, other, base)
    elif tensors is not None:
        took = copy_matching(model, tensors, families()[other].symbols if other in families() else None)
    else:
        took = None
    if took is not None:
        _check_start(family, took, model, given)
        if description and _is_whole(family, given):
            _check_alike(family, description, model, given)
            check_subwords(description, subwords, given.initial)
        log.info("starts from %s: %d tensors", given.initial or given.base, len(took))
    elif family.continues is not None:
        raise ValueError(
            f"a system of family {family.name} continues one that is trained; give its weights by --initial."
        )


def _is_whole(family: Family, given: argparse.Namespace) -> bool:
    """Whether given weights are used without training, or continued: they are then all of the model's."""
    return given.settings["training"]["max_steps"] == 0 or family.continues is not None


def _check_alike(family: Family, description: dict[str, Any], model: nn.Module, given: argparse.Namespace) -> None:
    """A family has the network that it continues, and settings that shape no tensor change what weights compute too.

    Raises ArtifactError where they differ.
    """
    before, own = description["model"], model.config.model_dump(mode="json")
    for name in family.continues or ():
        if name in before and name in own and before[name] != own[name]:
            raise ArtifactError(
                given.initial, f"has model.{name} {before[name]}, this model has {own[name]}", "they must agree"
            )


def _check_start(family: Family, took: list[str], model: nn.Module, given: argparse.Namespace) -> None:
    """Raises ArtifactError when the given weights do not serve."""
    shapes = {name: tensor.shape for name, tensor in model.named_parameters()}
    names = list(shapes)
    # Of another kind of network nothing but vectors, such as a bias, may fit.
    some = any(len(shapes[name]) > 1 for name in took if name in shapes) or set(names) == set(took)
    if given.initial and (not some or (_is_whole(family, given) and set(names) - set(took))):
        raise ArtifactError(
            given.initial,
            f"has {len(took)} of this model's {len(names)} tensors in their shapes",
            "give weights of this family and size",
        )
