"""Stage train_teacher: an autoregressive Transformer on encoded pairs."""

from __future__ import annotations

from workflow_src.families.transformer.validation import validate_transformer
from workflow_src.jobs import start
from workflow_src.nn.weights import copy_matching
from workflow_src.training.job import arguments, initial_tensors, told, train


def prepare(model, given):
    if given.initial:
        told(copy_matching(model, initial_tensors(given)), model, given)


def run(given) -> str:
    return train(given, prepare, lambda dev, settings, frozen: validate_transformer(dev))


if __name__ == "__main__":
    start(run, arguments(__doc__))
