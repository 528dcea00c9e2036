"""The n-gram language model as a network that is saved, exported and loaded like all others."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.arpa import ABSENT, read_arpa
from workflow_src.decoding.ngram import NgramModel, Table, estimate
from workflow_src.errors import ArtifactError
from workflow_src.families.ngram import NgramConfig

log = logging.getLogger("continuum")

COLUMNS = ("context", "words", "logp", "backoff", "suffix")


class NgramLanguageModel(nn.Module):
    """Tables of n-grams as parameters that have no gradient: `order-2.logp` and so on."""

    def __init__(self, config: NgramConfig, _source_size: int, _target_size: int, _joint: bool):
        super().__init__()
        self.config = config
        for n in range(1, config.order + 1):
            self.add_module(f"order-{n}", nn.Module())

    def reshape(self, weights: dict[str, Tensor]) -> None:
        """Give the parameters the shapes of `weights`: the number of n-grams follows from the text."""
        for name, tensor in weights.items():
            module_name, _, column = name.rpartition(".")
            module = dict(self.named_children()).get(module_name)
            if module is not None and column in COLUMNS:
                module.register_parameter(column, nn.Parameter(torch.empty_like(tensor), requires_grad=False))

    def hold(self, model: NgramModel) -> None:
        """Take the tables of `model`."""
        for n, table in enumerate(model.tables, 1):
            for column in COLUMNS:
                values = torch.from_numpy(np.ascontiguousarray(getattr(table, column)))
                # Single precision is finer than what ARPA files have; rows fit into 32 bits.
                values = values.float() if values.is_floating_point() else values.int()
                module = self.get_submodule(f"order-{n}")
                module.register_parameter(column, nn.Parameter(values, requires_grad=False))

    @functools.cached_property
    def scorer(self) -> NgramModel:
        """The tables as a language model of searches."""
        tables = []
        for n in range(1, self.config.order + 1):
            module = self.get_submodule(f"order-{n}")
            columns = {name: getattr(module, name).cpu().numpy() for name in COLUMNS}
            tables.append(
                Table(**{k: v.astype(np.float64 if v.dtype.kind == "f" else np.int64) for k, v in columns.items()})
            )
        return NgramModel(tables)


def fit(
    model: NgramLanguageModel, train: EncodedCorpus, dev: EncodedCorpus, subwords: Subwords, initial: Path | None
) -> dict[str, float]:
    """Count the target side of `train`, or read an ARPA file of subwords; returns figures on dev.

    Raises ArtifactError for a file of another form, or of another order than the model's.
    """
    targets = [dev.target(row).tolist() for row in range(len(dev))]
    if initial is not None:
        counted = _from_file(initial, model.config.order, subwords)
    else:
        counted_rows = evenly(len(train), model.config.max_sentences)
        rows = [train.target(row) for row in counted_rows]
        offsets = np.cumsum([0, *map(len, rows)])
        counted = estimate(
            np.concatenate(rows) if rows else np.zeros(0), offsets, subwords.target_size, model.config.order
        )
    model.hold(counted)
    sizes = {f"ngrams_{n}": len(table) for n, table in enumerate(counted.tables, 1)}
    return {**sizes, "dev_perplexity": counted.perplexity(targets)}


def evenly(count: int, limit: int | None) -> Sequence[int]:
    """At most `limit` of `count` rows, evenly spread, each once; all without a limit."""
    if limit is None or limit >= count:
        return range(count)
    return [row * count // limit for row in range(limit)]


def _from_file(path: Path, order: int, subwords: Subwords) -> NgramModel:
    pieces = subwords.names()["target"]
    arpa = read_arpa(path, {piece: i for i, piece in enumerate(pieces)}, subwords.target_size)
    if arpa.model.order != order:
        raise ArtifactError(
            path,
            f"has n-grams of up to {arpa.model.order} words, model.order is {order}",
            f"set model.order to {arpa.model.order}",
        )
    if arpa.left_out:
        log.info("%d n-grams of %s were left out: the subwords lack a word of them", arpa.left_out, path)
    if arpa.absent:
        log.warning(
            "warning: %s has neither <unk> nor %d of the %d target subwords, such as %s; they get log10 p = %g, as in "
            "KenLM, and will hardly be put out: estimate the file on text in these subwords, with an <unk>",
            path,
            len(arpa.absent),
            len(pieces),
            pieces[arpa.absent[0]],
            ABSENT,
        )
    return arpa.model
