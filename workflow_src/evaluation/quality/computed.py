"""Figures of sentences that programs of metrics compute: the process, the cache, and the files."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from workflow_src.errors import ArtifactError, ConfigError, DeclarationError, InputError, short_repr
from workflow_src.records.atomic import read_json, room_for
from workflow_src.records.checked import check_format
from workflow_src.spec import Computed, Metric

# Format of files of computed figures.
FORMAT = 1
AGAIN = "delete it and make it again"
# Seconds that a program may take to end after the last request, or after it has closed its output.
ENDING = 60
# Characters of a program's stderr that the log keeps.
KEPT = 20_000
log = logging.getLogger("continuum")


class RunningProgram:
    """A metric's program that runs in `python` and answers JSON lines, as a context.

    Raises ConfigError for a Python that cannot be started.
    """

    def __init__(self, metric: Metric, python: str) -> None:
        assert metric.program, f"{metric.name} has no program"
        self.metric = metric
        self.stderr: IO[bytes] = tempfile.TemporaryFile()
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                [python, str(metric.program.file)],
                stdin=pipe,
                stdout=pipe,
                stderr=self.stderr,
                encoding="utf-8",
                # What is no UTF-8 is no answer either, and an error shows it.
                errors="replace",
            )
        except OSError as failure:
            raise ConfigError(
                f"runtime.pythons.{metric.name}",
                python,
                problem=f"it cannot be started ({failure.strerror})",
                hint="name the Python of an environment that has what the metric needs",
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        # Without further lines to read, it ends.
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._wait()
        self.stderr.close()

    def _wait(self) -> int | None:
        """Wait until the program has ended; returns its exit code, and None where it had to be killed."""
        try:
            return self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None

    @property
    def _stdin(self) -> IO[str]:
        assert self.process.stdin
        return self.process.stdin

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request. Raises InputError where the program refuses it, or ends."""
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps(request) + "\n")
            self._stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            status, last = self._wait(), self._log_stderr()
            ended = "closed its output and did not end" if status is None else f"ended with {status}"
            raise InputError(f"metrics.{self.metric.name}:", f"its program {ended}: {last}", "the log has the rest")
        try:
            answer = json.loads(line)
        except json.JSONDecodeError:
            answer = line.strip()
        if not isinstance(answer, dict):
            raise self._wrong(f"answers {short_repr(answer)}", "answer a JSON object")
        if "problem" in answer:
            self._log_stderr()
            raise InputError(f"metrics.{self.metric.name}:", str(answer["problem"]), str(answer.get("fix", "")))
        return answer

    def describe(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The description of the model that the program answers the first request with."""
        answer = self.ask(request)
        if not isinstance(answer.get("model"), dict) or not isinstance(answer.get("signature"), str):
            raise self._wrong(f"describes its model by {short_repr(answer)}", "answer model and signature")
        return answer

    def score(self, sentences: Sequence[Sequence[str]]) -> list[float]:
        """Figures of (source, hypothesis, reference) sentences."""
        figures = self.ask({"sentences": sentences}).get("figures")
        if not isinstance(figures, list) or len(figures) != len(sentences):
            raise self._wrong(
                f"answers {short_repr(figures)} to {len(sentences)} sentences", "answer a figure for each"
            )
        for figure in figures:
            if not is_figure(figure):
                raise self._wrong(f"computes {short_repr(figure)}", "compute finite numbers")
        return figures

    def _wrong(self, problem: str, fix: str) -> DeclarationError:
        return DeclarationError(f'the program of metric "{self.metric.name}"', problem, fix)

    def _log_stderr(self) -> str:
        """Put the program's stderr into the log; returns its last line."""
        self.stderr.seek(0)
        text = self.stderr.read().decode(errors="replace").strip()
        log.debug("%s wrote:\n%s", self.metric.name, text[-KEPT:])
        return text.rpartition("\n")[2] or "it wrote nothing"


class FigureCache:
    """Figures by `sentence_key` in a folder, in lines ["KEY", FIGURE] of files that only grow.

    Each job adds to a file of its own, `name`, so that jobs may run side by side. Incomplete lines of killed jobs are
    not read.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.own = folder, folder / f"{name}.jsonl"

    def read(self, keys: Collection[str]) -> dict[str, float]:
        """The figures that are there of `keys`."""
        figures: dict[str, float] = {}
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    with contextlib.suppress(ValueError, TypeError):
                        key, figure = json.loads(line)
                        if key in keys and is_figure(figure):
                            figures[key] = figure
        return figures

    def add(self, figures: Mapping[str, float]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # After half a line a new one begins.
        lines = "".join(f"\n{json.dumps(entry)}" for entry in figures.items())
        with room_for(self.own), self.own.open("a", encoding="utf-8") as file:
            file.write(f"{lines}\n")


def is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_computed(paths: Iterable[Path]) -> dict[str, Computed]:
    """Figures that programs computed, from all files together, by metric.

    Raises ArtifactError for a file without such figures, and where models of one metric differ.
    """
    figures: dict[str, dict[str, float]] = {}
    signatures: dict[str, str] = {}
    for path in paths:
        content = read_json(path)
        check_format(content, FORMAT, str(path), AGAIN)
        if not {"metric", "figures", "signature"} <= content.keys():
            raise ArtifactError(path, "has no computed figures", AGAIN)
        metric, signature = content["metric"], content["signature"]
        other = signatures.setdefault(metric, signature)
        if other != signature:
            raise ArtifactError(path, f"has {metric} by {signature}, another file by {other}", "compute both again")
        figures.setdefault(metric, {}).update(content["figures"])
    return {metric: Computed(by_key, signatures[metric]) for metric, by_key in figures.items()}
