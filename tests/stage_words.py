"""Jobs of stages from words such as `--source a.de`, in place of a document that each test would write."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import pydantic

from workflow_src import jobs
from workflow_src.records.documents import JobDocument


def content_of(kind: type[jobs.JobInputs], words: Sequence[str]) -> dict[str, Any]:
    """The content of a document from words: JSON for a section, NAME=VALUE for each entry of a mapping."""
    values: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            values[word.removeprefix("--").replace("-", "_")] = listed = []
        else:
            listed.append(word)
    return {name: _value(kind, name, listed) for name, listed in values.items()}


def _value(kind: type[jobs.JobInputs], name: str, words: list[str]) -> Any:
    field = kind.model_fields.get(name)
    annotation = field.annotation if field else str
    if name == "settings":
        return json.loads(words[0])
    if get_origin(annotation) is dict and words[0].startswith("{"):
        return json.loads(words[0])
    if get_origin(annotation) is dict:
        return dict(word.split("=", 1) for word in words)
    if get_origin(annotation) is tuple:
        return words
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return json.loads(words[0])
    return words[0]


def inputs_of(kind: type[jobs.JobInputs], words: Sequence[str]) -> Any:
    """The inputs that the words stand for."""
    with tempfile.TemporaryDirectory() as folder:
        return jobs.read_inputs(kind, document_of(kind, words, Path(folder)))


def document_of(kind: type[jobs.JobInputs], words: Sequence[str], folder: Path) -> Path:
    """A document with the words in a folder."""
    document = JobDocument(folder, content_of(kind, words))
    document.write()
    return document.path


def line_of(kind: type[jobs.JobInputs], words: Sequence[str], folder: Path) -> list[str]:
    """The words of a stage's command line, with a document in a folder; `--log` stays on the line."""
    line, words = [], list(words)
    if "--log" in words:
        at = words.index("--log")
        line, words = words[at : at + 2], words[:at] + words[at + 2 :]
    return ["--job", str(document_of(kind, words, folder)), *line]


def stage_line(stage: str, words: Sequence[str], folder: Path) -> list[str]:
    """`line_of` for a stage by its name."""
    return line_of(importlib.import_module(f"workflow_src.stages.{stage}").Inputs, words, folder)


def start(run: Callable[[Any], str | None], kind: type[jobs.JobInputs], words: Sequence[str]) -> None:
    """`jobs.start` with a document that has the words."""
    with tempfile.TemporaryDirectory() as folder:
        jobs.start(run, kind, words=line_of(kind, words, Path(folder)))


def start_stage(stage: ModuleType, words: Sequence[str]) -> None:
    start(stage.run, stage.Inputs, words)


def distill_words(
    model: Path, subwords: Path, source: Path, output: Path, shard: int = 0, shards: int = 1, **settings: Any
) -> list[str]:
    """Words of the stage distill, by default on a CPU."""
    content = {"beam": 2, "length_penalty": 1.0, "batch": 7} | settings
    words = ["--settings", json.dumps(content), "--device", "cpu", "--model", str(model), "--subwords", str(subwords)]
    words += ["--source", str(source), "--shard", str(shard), "--shards", str(shards)]
    return [*words, "--output", str(output)]
