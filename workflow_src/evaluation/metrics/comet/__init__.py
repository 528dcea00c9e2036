"""COMET (Rei et al. 2020): a trained network's estimate of how good translations are, times 100."""

import os
from pathlib import Path

from pydantic import Field, model_validator

from workflow_src.errors import ConfigError
from workflow_src.spec import Corpus, Frozen, Metric, Program


class Settings(Frozen):
    checkpoint: str | None = Field(
        None,
        pattern=r"^[^{}\x00-\x1f]+$",
        description="a .ckpt file as COMET saves it; hparams.yaml is in the folder above its own",
    )
    download: str | None = Field(
        None, min_length=1, description="in its place the name of a model that COMET downloads: Unbabel/wmt22-comet-da"
    )

    @model_validator(mode="after")
    def _one_model(self):
        if self.checkpoint and self.download:
            raise ConfigError("download", self.download, problem="checkpoint is set too", hint="remove one of the two")
        return self


def conflict(corpus: Corpus, settings: Settings) -> str | None:
    if corpus.altered:
        return f"reads sources as they are written, and normalisation alters them ({', '.join(corpus.altered)})"
    if settings.checkpoint or settings.download:
        return None
    return "has no model: it needs checkpoint, a .ckpt file, or download, the name of a model"


def files(settings: Settings) -> dict[str, str]:
    """The checkpoint, and its settings in the folder above, where COMET looks for them."""
    if not settings.checkpoint:
        return {}
    above = os.path.normpath(os.path.join(os.path.dirname(settings.checkpoint), os.pardir))
    return {"checkpoint": settings.checkpoint, "hparams": os.path.join(above, "hparams.yaml")}


METRIC = Metric(
    name="comet",
    title="COMET",
    segments="workflow_src.evaluation.metrics.comet.measure:segments",
    score="workflow_src.evaluation.metrics.comet.measure:score",
    settings=Settings,
    program=Program(
        file=Path(__file__).with_name("program.py"),
        environment=Path(__file__).parents[4] / "envs" / "comet.yaml",
        files=files,
        memory=10_000,
    ),
    conflict=conflict,
    order=55,
    about="times 100",
    leaderboard=True,
)
