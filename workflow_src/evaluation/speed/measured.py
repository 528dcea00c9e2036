"""The content of speed.json: rows with their figures, under one protocol or several, and the cost of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from workflow_src.evaluation.speed.rows import Key
from workflow_src.records.atomic import read_json
from workflow_src.records.checked import Lenient, check_format, checked

FORMAT = 1
AGAIN = "measure speed again"


class LengthGroup(Lenient):
    """Sentences of similar length, in subwords; milliseconds are their median."""

    shortest: int
    longest: int
    mean_length: float
    latency_ms: float


class TimedRow(Lenient):
    """A decode of a system and its figures (`summary.summarise`); what is None was not measured.

    The settings that it was timed with are not read again.
    """

    system: str
    name: str
    latency_ms: float
    latency_mean: float
    latency_std: float
    latency_rounds: tuple[float, ...]
    sentences_per_second: float
    batch: int
    speedup: float | None
    subword_share: float | None
    by_length: tuple[LengthGroup, ...]

    @property
    def key(self) -> Key:
        return self.system, self.name


class Reference(Lenient):
    """The row that speed-ups refer to."""

    system: str
    name: str


class Where(Lenient):
    """A protocol as it was carried out."""

    name: str
    device: str
    device_name: str | None
    threads: int
    precision: str
    engines: dict[str, str]
    left_out: dict[str, str]
    sentences: int
    warmup: int
    repeats: int
    batch: int
    baseline: Reference | None
    other_load_cores: tuple[float, ...]
    disturbed_rounds: int
    redone_rounds: int
    disturbed_above_cores: float


class StepCost(Lenient):
    system: str
    search: str
    ms_per_step: float


class Ratio(Lenient):
    """What a step of `control` takes, in steps of `search`: as measured, and as operations predict."""

    control: str
    search: str
    measured: float | None
    predicted: float | None


class StepCosts(Lenient):
    costs: tuple[StepCost, ...]
    ratios: tuple[Ratio, ...]


class Measurement(Lenient):
    """Everything that was measured under one protocol."""

    rows: tuple[TimedRow, ...]
    protocol: Where
    step_costs: StepCosts


class Speed(Measurement):
    """The file: its own rows are those of the first protocol."""

    protocols: tuple[Measurement, ...]
    provenance: dict[str, Any]

    @property
    def processor(self) -> str | None:
        return self.provenance.get("hardware", {}).get("processor")


class Read(NamedTuple):
    """The file as it is checked, and as it is."""

    speed: Speed
    content: dict[str, Any]


def check(content: Any, where: str | Path) -> Speed:
    """`content` as checked figures. Raises ArtifactError that names the first key that is wrong, and `where`."""
    check_format(content, FORMAT, str(where), AGAIN)
    return checked(Speed, content, str(where), AGAIN)


def read_speed(path: str | Path) -> Read:
    """Raises ArtifactError for a file that is missing, damaged or not of this kind."""
    content = read_json(path)
    return Read(check(content, path), content)
