"""Stage decode: translations, one a line; beside them a JSON line each with score, length, steps, subwords, and the
text without repeated subwords.

It translates a whole text, or with `shard` a part of it into such JSON lines, or with `join` puts all parts together.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workflow_src.config.resolved import Decode
from workflow_src.data.lines import count_lines, read_lines
from workflow_src.data.placeholders import PLACEHOLDERS
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS
from workflow_src.data.shards import bounds, by_number, read_shards, write_shard
from workflow_src.evaluation.quality.choosing import read_choice
from workflow_src.jobs import DeviceJobInputs, log, recorded, start
from workflow_src.records.atomic import atomic
from workflow_src.records.provenance import write_record
from workflow_src.serving.folders import open_role_translators, open_translator

if TYPE_CHECKING:
    from workflow_src.serving.translator import Translator

Record = dict[str, Any]


class Inputs(DeviceJobInputs):
    settings: Decode = Field(description="the search with its settings, and the engine")
    bundle: Path = Field(description="folder of the system")
    systems: dict[str, Path] = Field({}, description="bundles of the systems that the search works with, by role")
    chosen: Path | None = Field(None, description="settings chosen on dev, which replace those of settings")
    source: Path = Field(description="normalised text, one sentence a line")
    output: Path = Field(description="the translations, with details beside them in .jsonl; with shard its JSON lines")
    batch: int = Field(64, gt=0, description="sentences decoded together")
    shard: int | None = Field(None, description="number of the part to translate, from 0")
    shards: int = Field(1, gt=0, description="number of parts")
    join: tuple[Path, ...] = Field((), description="outputs of all parts in order: join them, translate nothing")

    @property
    def computes(self) -> bool:
        """Joining shards needs no device."""
        return not self.join

    @property
    def files(self) -> dict[str, Path]:
        """Files that translations are made from, by the names that records give them."""
        files = {"bundle": self.bundle / "bundle.json", "source": self.source}
        files |= {role: folder / "bundle.json" for role, folder in self.systems.items()}
        return files | ({"chosen": self.chosen} if self.chosen else {})


def opened(inputs: Inputs) -> Translator:
    machine, decode = inputs.machine, inputs.settings
    how = machine.device, machine.precision, machine.threads
    return open_translator(inputs.bundle, *how, decode.engine, decode.compute_type)


def translate(inputs: Inputs, translator: Translator, lines: list[str], first_line: int = 1) -> Iterator[Record]:
    """For each line its text, score, length in subwords, steps, candidates, subwords, outcomes of its placeholders
    where the recipe has any, and its text without repeated subwords."""
    decode = inputs.settings.with_values(read_choice(inputs.chosen).chosen if inputs.chosen else {})
    systems = open_role_translators(inputs.systems, inputs.machine, decode.engine, decode.compute_type)
    began = time.perf_counter()
    request = translator.request(decode.values, systems, batch=inputs.batch, return_scores=True, normalised=True)
    hypotheses = translator.search(lines, request, first_line=first_line)
    texts = translator.text(hypotheses.tokens, sources=lines)
    log.info("%d sentences, %.0f a second", len(lines), len(lines) / (time.perf_counter() - began))
    without_repetitions = translator.text(hypotheses.tokens, "subwords", lines)
    outcomes: Sequence[dict[str, int] | None]
    outcomes = translator.subwords.placeholder_outcomes(hypotheses.tokens, lines) or [None] * len(lines)
    steps = hypotheses.steps or [0] * len(lines)
    candidates = hypotheses.candidates or [1] * len(lines)
    columns = (texts, hypotheses.tokens, hypotheses.scores, steps, candidates, without_repetitions, outcomes)
    for text, tokens, score, count, candidate_count, shortened, placeholders in zip(*columns, strict=True):
        pieces = translator.subwords.pieces_target(tokens)
        details = {"score": score, "length": len(pieces), "steps": count, "candidates": candidate_count}
        details |= {"subwords": pieces} | ({PLACEHOLDERS: placeholders} if placeholders is not None else {})
        yield {"text": text} | details | {WITHOUT_REPEATED_SUBWORDS: shortened}


def write_translations(inputs: Inputs, records: Iterable[Record], translator: Translator | None = None) -> int:
    """Write text, details and then their record, with the machine of the `translator`; returns the number of sentences.

    Text and details get their names together, after the last line.
    """
    count = 0
    details_path, record_path = inputs.output.with_suffix(".jsonl"), inputs.output.with_suffix(".json")
    record_path.unlink(missing_ok=True)
    with atomic(inputs.output) as file, atomic(details_path) as details:
        for record in records:
            file.write(record.pop("text") + "\n")
            details.write(json.dumps(record, ensure_ascii=False) + "\n")
            count += 1
    files = inputs.files | by_number(inputs.join)
    # Joining computes nothing; the records of the shards say on which machines they were made.
    machine = {"device": translator.device, "precision": translator.precision} if translator else {}
    outputs = [inputs.output.name, details_path.name]
    write_record(record_path, recorded(inputs.settings), files, outputs, **machine)
    return count


def translate_shard(inputs: Inputs, shard: int) -> int:
    """Translate a part of the text and write its JSON lines and record; returns the number of sentences."""
    first, end = bounds(count_lines(inputs.source), shard, inputs.shards)
    lines = list(itertools.islice(read_lines(inputs.source), first, end))
    translator = opened(inputs)
    records, settings = translate(inputs, translator, lines, first + 1), recorded(inputs.settings)
    machine = translator.device, translator.precision
    write_shard(inputs.output, records, settings, inputs.files, shard, inputs.shards, *machine)
    return len(lines)


def run(inputs: Inputs) -> str:
    if inputs.shard is not None:
        return f"shard {inputs.shard} of {inputs.shards}: {translate_shard(inputs, inputs.shard)} sentences"
    if inputs.join:
        records = read_shards(list(inputs.join), recorded(inputs.settings), inputs.files)
        return f"{write_translations(inputs, records)} translated sentences from {len(inputs.join)} shards"
    translator = opened(inputs)
    count = write_translations(inputs, translate(inputs, translator, list(read_lines(inputs.source))), translator)
    return f"{count} sentences translated with {inputs.settings.search}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
