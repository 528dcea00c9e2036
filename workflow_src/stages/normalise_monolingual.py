"""Stage: clean and normalise text of the source language as the source side of training pairs.

Lines that cannot be used, came before, or are in dev or test are left out and counted.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.config.cleaning import filter_settings
from workflow_src.config.datasets import NormalisationConfig
from workflow_src.config.recipe import PlaceholderKind, TokenisedKind
from workflow_src.config.texts import MONOLINGUAL
from workflow_src.data.cleaning import BATCH, Step, clean, report, steps_of
from workflow_src.data.drops import left_out, words
from workflow_src.data.lines import read_lines
from workflow_src.data.normalise import Normaliser, drop_reason
from workflow_src.data.repeats import Counts, hashes
from workflow_src.data.splits import key
from workflow_src.errors import ArtifactError
from workflow_src.jobs import JobInputs, recorded, start
from workflow_src.records.atomic import atomic, read_json, write_json
from workflow_src.records.provenance import digests, provenance
from workflow_src.runtime.workers import Workers, blocks_of
from workflow_src.spec import Frozen, Pair


class MonolingualSettings(Frozen):
    language: str
    limit: int | None = Field(description="largest number of lines that are kept, the first ones")
    normalisation: NormalisationConfig
    placeholders: tuple[PlaceholderKind, ...] = Field((), description="kinds of spans that stay as they are")
    tokenised: TokenisedKind | None = Field(None, description="how the text is tokenised; null: it is ordinary text")
    clean: tuple[tuple[str, dict[str, Any]], ...] = Field(description="filters by name with settings, in their order")


class Inputs(JobInputs):
    settings: MonolingualSettings = Field(description="language, filters, normalisation, limit")
    raw_folder: Path = Field(description="output folder of download_monolingual")
    held_out: tuple[Path, ...] = Field(description="sources of dev and test, normalised")
    output_folder: Path
    threads: int = 1


def normalising(
    settings: MonolingualSettings, held_out: set[str]
) -> Callable[[list[str]], list[tuple[str, str | None]]]:
    """A function of lines: each normalised, and why it cannot be used or None. `held_out` has keys of sentences."""
    normaliser = Normaliser(settings.normalisation, settings.language, settings.placeholders, settings.tokenised)
    languages = settings.language, settings.language

    def normalise(lines: list[str]) -> list[tuple[str, str | None]]:
        normalised = list(map(normaliser.line, lines))
        reasons = [drop_reason(line, line, settings.normalisation, languages, training=True) for line in normalised]
        return [
            (line, "held_out" if reason is None and key(line) in held_out else reason)
            for line, reason in zip(normalised, reasons, strict=True)
        ]

    return normalise


def usable(
    lines: Iterable[str], steps: list[Step], workers: Workers, dropped: Counter[str]
) -> Iterator[tuple[str, list[Step]]]:
    """Normalised lines, each once, with copies of the `steps` that clean them; others are counted in `dropped`.

    The copies have counts up to the lines of this block: workers read ahead, by their number.
    """
    counts = Counts()
    copies: deque[list[Step]] = deque()

    def blocks() -> Iterator[list[str]]:
        for block in blocks_of(lines, BATCH):
            copies.append(copy.deepcopy(steps))
            yield block

    for _, results in workers.map(blocks()):
        steps_so_far = copies.popleft()
        usable_lines = []
        for line, reason in results:
            if reason is None:
                usable_lines.append(line)
            else:
                dropped[reason] += 1
        for line, repeated in zip(
            usable_lines, counts.add(hashes(usable_lines), limit=1) if usable_lines else (), strict=True
        ):
            if repeated:
                dropped["repeated"] += 1
            else:
                yield line, steps_so_far


def run(inputs: Inputs) -> str:
    settings, folder = inputs.settings, inputs.output_folder
    languages = (settings.language, settings.language)
    name = f"{MONOLINGUAL}.{settings.language}"
    raw, summary = read_json(inputs.raw_folder / f"{MONOLINGUAL}.json"), folder / f"{MONOLINGUAL}.json"
    summary.unlink(missing_ok=True)
    steps = steps_of(filter_settings(settings.clean, languages), languages)
    held_out = {key(line) for path in inputs.held_out for line in read_lines(path)}
    line_count, kept_count = sum(raw["lines"].values()), 0
    dropped: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(atomic(folder / name))
        # A line is both sides of the pair that filters judge.
        pairs = (Pair(line, line) for line in read_lines(inputs.raw_folder / name))
        lines = (pair.source for _, pair in clean(pairs, steps, inputs.threads, line_count))
        workers = stack.enter_context(Workers(inputs.threads, line_count, normalising, settings, held_out))
        for line, steps_so_far in usable(lines, steps, workers, dropped):
            if kept_count == settings.limit:
                steps = steps_so_far
                break
            file.write(line + "\n")
            kept_count += 1
        dropped["cleaning"] = sum(step.dropped.total() for step in steps)
        dropped["limit"] = line_count - kept_count - dropped.total()
        dropped = +dropped
        if not kept_count:
            raise ArtifactError(
                inputs.raw_folder / name,
                f"has no line left to learn from ({words(dropped)})",
                "check recipe.monolingual, and recipe.clean",
            )
    for step in steps:
        report(step, "lines")
    sums = digests(folder, [name])
    files = {name: inputs.raw_folder / name} | {path.name: path for path in inputs.held_out}
    write_json(
        summary,
        {
            "language": settings.language,
            "read": line_count,
            "lines": kept_count,
            "dropped": dropped,
            "texts": raw["lines"],
            "limit": settings.limit,
            "cleaning": [step.as_json() for step in steps],
            **({"downloads": raw["downloads"]} if raw.get("downloads") else {}),
            "sha256": sums,
            "provenance": provenance(recorded(settings), files, sums),
        },
    )
    return f"{line_count:,} lines read, {kept_count:,} kept{left_out(dropped)}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
