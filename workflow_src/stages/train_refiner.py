"""Stage train_refiner: a network in the latent space of a frozen base."""

from workflow_src.jobs import start
from workflow_src.training.job import arguments, run

__all__ = ["arguments", "run"]

if __name__ == "__main__":
    start(run, arguments(__doc__))
