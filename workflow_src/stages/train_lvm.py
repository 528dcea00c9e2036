"""Stage train_lvm: the latent-variable model, as a rule started from the teacher's weights."""

from __future__ import annotations

from workflow_src.families.lvm.validation import validate_lvm
from workflow_src.jobs import start
from workflow_src.training.job import arguments, initial_tensors, objective_config, told, train
from workflow_src.training.systems import family_of


def prepare(model, given):
    if given.initial:
        weights = initial_tensors(given)
        family = family_of(given.initial)
        took = model.start_from(weights, family)
        told(took, model, given)


def run(given) -> str:
    return train(given, prepare, lambda dev, settings, frozen: validate_lvm(dev, objective_config(settings)))


if __name__ == "__main__":
    start(run, arguments(__doc__))
