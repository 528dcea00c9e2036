"""Stage train_refiner: a score or energy network in the latent space of a frozen latent-variable model."""

from __future__ import annotations

from workflow_src.families.refiners import validate_refiner
from workflow_src.jobs import start
from workflow_src.nn.weights import copy_matching, weights_of
from workflow_src.training.job import arguments, initial_tensors, objective_config, told, train
from workflow_src.training.systems import family_of, load_system


def prepare(model, given):
    """Start from given weights, from the decoder of the base, or at random; the trainer keeps the base frozen."""
    if given.base is None:
        raise ValueError("a refiner needs --base, the weights of a latent-variable model.")
    base, _ = load_system(given.base, "lvm")
    if not given.initial and model.config.start == "random":
        return base
    if not given.initial:
        took = model.start_from_lvm(weights_of(base))
    elif family_of(given.initial) == "lvm":
        took = model.start_from_lvm(initial_tensors(given))
    else:
        took = copy_matching(model, initial_tensors(given))
    told(took, model, given)
    return base


def run(given) -> str:
    return train(
        given,
        prepare,
        lambda dev, settings, frozen: validate_refiner(dev, settings["family"], objective_config(settings), frozen),
    )


if __name__ == "__main__":
    start(run, arguments(__doc__))
