"""The one schema of results: what `results.json` holds, how its rows come from measurements, and its checks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field, field_validator, model_validator

from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.evaluation.quality.metrics import VARIANTS
from workflow_src.records.atomic import ArtifactError, read_json, write_json
from workflow_src.registry import default_engine

AUTOREGRESSIVE = ("transformer",)

Percent = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Row(Strict):
    """One system, seed, search and variant. What does not apply is null; every key is always there."""

    system: str = Field(min_length=1)
    family: str = Field(min_length=1)
    preset: str = Field(min_length=1)
    data: Literal["raw", "distilled"]
    seed: int
    # Results written before a key existed lack it: hence the defaults here and below.
    name: str = Field("", description="of the decode; tells rows apart that differ in other settings")
    chosen: dict[str, float] | None = Field(None, description="settings chosen on dev")
    search: str = Field(min_length=1)
    engine: str = Field("continuum", min_length=1)
    steps: Annotated[int, Field(ge=0)] | None
    mean_steps: Annotated[float, Field(ge=0)] | None = Field(None, description="used, where sentences may stop earlier")
    beam: Annotated[int, Field(ge=1)] | None
    candidates: Annotated[int, Field(ge=1)] | None
    repetitions_removed: Removal
    bleu: Percent
    bleu_ci: tuple[Percent, Percent] | None
    bleu_tokenised: Percent | None = None
    bleu_intl_lowercase: Percent | None = None
    p_value: Share | None
    delta_difference: float | None = Field(None, description="BLEU above the delta row that differs in nothing else")
    delta_p_value: Share | None = Field(None, description="of that difference")
    chrf: Percent
    validity: Share | None
    latency_ms: Positive | None
    latency_std: Annotated[float, Field(ge=0)] | None = Field(description="over sentences")
    latency_rounds: tuple[Positive, ...] | None = Field(None, description="the median over sentences of each round")
    sentences_per_second: Positive | None
    speedup: Positive | None
    device: str | None
    threads: Annotated[int, Field(ge=1)] | None
    batch: Annotated[int, Field(ge=1)] | None

    @field_validator("repetitions_removed", mode="before")
    @classmethod
    def _earlier_results(cls, value: Any) -> Any:
        # They knew words only.
        return ("words" if value else "none") if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _interval(self):
        if self.bleu_ci and self.bleu_ci[0] > self.bleu_ci[1]:
            raise ValueError("bleu_ci must be [low, high] with low not above high")
        return self


class Results(Strict):
    """The content of results.json."""

    experiment: str = Field(min_length=1)
    dataset: str = Field(min_length=1)
    provenance: dict[str, Any]
    rows: tuple[Row, ...]


def validate(content: Any, where: str) -> Results:
    """`content` as checked Results. Raises ArtifactError naming the first wrong key, its value and what is wrong."""
    try:
        return Results.model_validate(content)
    except pydantic.ValidationError as failure:
        error = failure.errors()[0]
        key = ".".join(str(part) for part in error["loc"]) or "the whole"
        problem = error["msg"].removeprefix("Value error, ")
        value = "" if error["type"] == "missing" else f" (value {str(error['input'])[:80]!r})"
        raise ArtifactError(f"results in {where}: {key}{value}: {problem}; make the report again.") from None


def write_results(path: str | Path, content: dict[str, Any]) -> Results:
    """Check `content` against the schema, then write it as JSON. Nothing is written when a check fails."""
    results = validate(content, str(path))
    write_json(path, results.model_dump(mode="json"))
    return results


def read_results(path: str | Path) -> Results:
    """Results from a file, checked. Raises ArtifactError when it is missing, damaged or breaks the schema."""
    return validate(read_json(path), str(path))


def engine_of(settings: dict[str, Any]) -> str:
    """What computes a decode: our own code, or an engine with its compute type, such as `ctranslate2-int8`."""
    own = default_engine().name
    engine = settings.get("engine") or own
    return engine if engine == own else f"{engine}-{settings['compute_type']}"


def table_split(manifest: dict[str, Any]) -> str:
    """The split that tables are made of: test, or dev where the experiment decodes nothing else."""
    return "test" if any(row["split"] == "test" for row in manifest["rows"]) else "dev"


def build_rows(
    manifest: dict[str, Any],
    qualities: dict[str, dict[str, Any]],
    speed: dict[str, Any] | None,
    split: str,
    significance: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Schema rows, in the experiment's order.

    `qualities` maps quality files to their contents. Autoregressive rows come once, repetitions kept; others once for
    each of REMOVALS. Speed is measured once for a system and decode and stands beside each of its seeds; p-values are
    of the test split, against the row's baseline, and of networks against delta.
    """
    tested = split == "test" and (significance or {}).get("rows") or []
    p_values = {(row["system"], row["name"], row["seed"]): row["p_value"] for row in tested}
    networks = split == "test" and (significance or {}).get("against_delta") or []
    deltas = {(row["system"], row["name"], row["seed"]): row for row in networks}
    times = {(row["system"], row["name"]): row for row in (speed or {}).get("rows", [])}
    protocol = (speed or {}).get("protocol", {})
    rows = []
    for entry in manifest["rows"]:
        if entry["split"] != split:
            continue
        system, settings = manifest["systems"][entry["system"]], entry["settings"]
        timed = times.get((entry["system"], entry["name"]), {})
        delta = deltas.get((entry["system"], entry["name"], entry["seed"]), {})
        for removal in ("none",) if system["family"] in AUTOREGRESSIVE else REMOVALS:
            variant = VARIANTS[removal]
            scored = qualities[entry["quality"]][variant]
            rows.append(
                {
                    "name": entry["name"],
                    "system": entry["system"],
                    "family": system["family"],
                    "preset": system["preset"],
                    "data": "raw" if system["data"] == "raw" else "distilled",
                    "seed": entry["seed"],
                    "chosen": entry.get("picked"),
                    "search": settings["search"],
                    "engine": engine_of(settings),
                    "steps": settings.get("steps"),
                    "mean_steps": qualities[entry["quality"]].get("mean_steps")
                    if "stop_threshold" in settings
                    else None,
                    "beam": settings.get("beam"),
                    "candidates": _candidates(settings),
                    "repetitions_removed": removal,
                    "bleu": scored["bleu"],
                    "bleu_ci": scored["bleu_ci"],
                    "bleu_tokenised": scored.get("bleu_tokenised"),
                    "bleu_intl_lowercase": scored.get("bleu_intl_lowercase"),
                    "p_value": p_values.get((entry["system"], entry["name"], entry["seed"]), {}).get(variant),
                    "delta_difference": delta.get("difference", {}).get(variant),
                    "delta_p_value": delta.get("p_value", {}).get(variant),
                    "chrf": scored["chrf"],
                    "validity": scored["validity"],
                    "device": protocol.get("device") if timed else None,
                    "threads": protocol.get("threads") if timed else None,
                }
                | {
                    key: timed.get(key)
                    for key in (
                        *("latency_ms", "latency_std", "latency_rounds"),
                        *("sentences_per_second", "speedup", "batch"),
                    )
                }
            )
    return rows


def _candidates(settings: dict[str, Any]) -> int | None:
    """Candidates that latent search ranks for a sentence, before duplicates are removed."""
    if "lengths" not in settings:
        return None
    return int(settings["lengths"] * settings["samples"])
