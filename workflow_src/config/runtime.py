"""Settings of the machine that an experiment runs on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from workflow_src.config.base import matching
from workflow_src.config.parts import FilePath
from workflow_src.errors import ConfigError
from workflow_src.spec import Frozen

Partition = Annotated[str, matching(r"[A-Za-z0-9_.,-]+", "letters, digits, -, _ and .")]
Device = Annotated[str, matching(r"auto|cpu|cuda(:(0|[1-9][0-9]*))?", ("auto", "cpu", "cuda", "cuda:N"))]


class RuntimeConfig(Frozen):
    """The machine, never the result: no rule reruns when these change.

    Rounding is the machine's; so is how an update's batch is cut, where `accumulate` is no multiple of the processes.
    """

    device: Device = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    training_threads: int = Field(2, gt=0, description="CPU threads of a training process")
    devices: int = Field(1, gt=0, description="GPUs (on CPUs: processes) that a training uses on each node")
    nodes: int = Field(1, gt=0, description="nodes that a training uses, under Slurm")
    speed_threads: int = Field(8, gt=0, description="CPU threads that a cluster is asked for to measure speed")
    jobs_per_gpu: int = Field(1, gt=0, description="jobs that share a GPU of this machine, but for measuring speed")
    log_every: int = Field(100, gt=0)
    save_minutes: float = Field(
        5.0, gt=0, allow_inf_nan=False, description="minutes between saved states of a training, beside save_every"
    )
    partition: Partition | None = Field(None, description="of a cluster; none: its default")
    gpu_partition: Partition | None = Field(None, description="of jobs on GPUs; none: partition")
    longest_job: int = Field(1440, gt=0, description="minutes that a cluster lets a job run")
    largest_job: int | None = Field(None, gt=0, description="MB that no job asks for more of; none: no such limit")
    pythons: dict[str, FilePath] = Field(
        {}, description="Pythons that run programs of metrics, by metric; default: the one of the rule's environment"
    )
    scoring_batch: int = Field(16, gt=0, description="sentences that the program of a metric computes together")
    download_attempts: int = Field(4, gt=0, description="times that a file is asked for before giving up")
    download_wait: float = Field(1.0, ge=0, description="seconds before the second time; then twice as long each time")
    download_timeout: float = Field(60.0, gt=0, description="seconds in which bytes must come")

    @model_validator(mode="after")
    def _one_device_by_number(self):
        if self.devices > 1 and ":" in self.device:
            raise ConfigError("device", self.device, problem=f"devices is {self.devices}", allowed=["auto", "cuda"])
        return self

    @property
    def launch(self) -> str:
        """How a training's command begins, before the module: Python, or torchrun where several processes work."""
        if self.devices * self.nodes == 1:
            return "python -m"
        # torchrun forwards signals to trainings, which save their state; versions without these options ignore them.
        options = "PET_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 PET_SHUTDOWN_TIMEOUT=300"
        torchrun = f"python -m torch.distributed.run --nproc-per-node {self.devices}"
        # Without `--` torchrun would take the module's own options for abbreviations of its own.
        module = "-m --"
        if self.nodes == 1:
            return f"{options} {torchrun} --standalone {module}"
        # The first node's name and a port by chance are expanded there, before srun starts the others.
        return (
            f"{options} srun --nodes={self.nodes} --ntasks={self.nodes} --ntasks-per-node=1 {torchrun} "
            f"--nnodes {self.nodes} --rdzv-backend c10d --rdzv-endpoint $(hostname):$((20000 + RANDOM % 20000)) "
            f"--rdzv-id $RANDOM {module}"
        )
