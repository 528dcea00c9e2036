"""The content of speed.json: under each protocol rows with their figures, and the cost of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.evaluation.manifest import Key
from workflow_src.records.atomic import read_json
from workflow_src.records.checked import Lenient, check_format, checked

FORMAT = 4
AGAIN = "measure speed again"


class LengthGroup(Lenient):
    """Sentences of similar length, in subwords; milliseconds are their median."""

    shortest: int
    longest: int
    mean_length: float
    latency_ms: float


class FailedBatch(Lenient):
    """A size of batch at which the search for the fastest one ended because it failed, and why."""

    size: int
    reason: str


class RowName(Lenient):
    """The system and the decode of a row."""

    system: str
    name: str

    @property
    def key(self) -> Key:
        return self.system, self.name


class NotTimed(RowName):
    """A row that could not be timed, with the size of the batch that failed, if known, and the error's first line."""

    engine: str
    batch: int | None
    reason: str


class TimedRow(RowName):
    """A decode of a system and its figures; None where they were not measured.

    A sentence's time is its median over rounds. `latency_ms` is the median over sentences, `latency_mean` the mean,
    `latency_std` the standard deviation (n - 1) over sentences, which differ in length; `latency_rounds` the median
    over sentences of each round by itself, whose range shows how well the measurement repeats; `sentences_per_second`
    uses the median round in batches of `batch`; `failed_batch` is a larger size that failed; `speedup` is that of
    median latency over the baseline; `subword_share` is the share of time in subwords.
    """

    latency_ms: float = Field(gt=0)
    latency_mean: float
    latency_std: float
    latency_rounds: tuple[float, ...] = Field(min_length=1)
    sentences_per_second: float = Field(gt=0)
    batch: int
    failed_batch: FailedBatch | None
    speedup: float | None
    subword_share: float | None
    by_length: tuple[LengthGroup, ...]


class MeasuredProtocol(Lenient):
    """A protocol with the circumstances of its measurement."""

    name: str
    device: str
    device_name: str | None
    threads: int
    precision: str
    engines: dict[str, str]
    not_timed: tuple[NotTimed, ...]
    sentences: int
    warmup: int
    repeats: int
    baseline: RowName | None
    other_load_cores: tuple[float, ...]
    redone_rounds: int
    disturbed_above_cores: float

    @property
    def disturbed(self) -> tuple[int, ...]:
        """The numbers, from 1, of the rounds that other load disturbed."""
        loads = enumerate(self.other_load_cores, 1)
        return tuple(number for number, load in loads if load > self.disturbed_above_cores)


class StepCost(Lenient):
    """Milliseconds of one step: the median over sentences of the slope of a sentence's time over steps."""

    system: str
    search: str
    ms_per_step: float


class Ratio(Lenient):
    """The time of a step of `control`, in steps of `search`: as measured, and as predicted from operations.

    None where it is unknown, or where noise was larger than a step.
    """

    control: str
    search: str
    measured: float | None
    predicted: float | None


class StepCosts(Lenient):
    """What a step costs; `failure` says why it was not measured, where that failed."""

    failure: str | None
    costs: tuple[StepCost, ...]
    ratios: tuple[Ratio, ...]


class Measurement(Lenient):
    """All figures under one protocol."""

    rows: tuple[TimedRow, ...]
    protocol: MeasuredProtocol
    step_costs: StepCosts


class Speed(Lenient):
    """The content of speed.json: figures under each protocol. Tables show the first one that timed a row."""

    protocols: tuple[Measurement, ...] = Field(min_length=1)
    provenance: dict[str, Any]

    @property
    def main(self) -> Measurement:
        return next((measurement for measurement in self.protocols if measurement.rows), self.protocols[0])

    @property
    def rows(self) -> tuple[TimedRow, ...]:
        return self.main.rows

    @property
    def protocol(self) -> MeasuredProtocol:
        return self.main.protocol

    @property
    def step_costs(self) -> StepCosts:
        return self.main.step_costs

    @property
    def processor(self) -> str | None:
        return self.provenance.get("hardware", {}).get("processor")


def read_speed(path: str | Path) -> Speed:
    """Read speed.json. Raises ArtifactError that names the first wrong key, also for a file of another kind."""
    content = read_json(path)
    check_format(content, FORMAT, str(path), AGAIN)
    return checked(Speed, content, str(path), AGAIN)
