"""Stage train: a system of any family. Each family names the rule that runs it."""

from workflow_src.jobs import start
from workflow_src.training.job import arguments, run

__all__ = ["arguments", "run"]

if __name__ == "__main__":
    start(run, arguments(__doc__))
