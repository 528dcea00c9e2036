"""Stage train_lvm: a model with latents, as a rule started from the teacher's weights."""

from workflow_src.jobs import start
from workflow_src.training.job import arguments, run

__all__ = ["arguments", "run"]

if __name__ == "__main__":
    start(run, arguments(__doc__))
