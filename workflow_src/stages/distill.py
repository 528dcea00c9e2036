"""Stage distill: one shard of the training source, translated by the teacher: a JSON line a sentence, text and score.

Sentences that are longer than the teacher's positions get an empty text; encoding drops them by reason.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import Field

from workflow_src.config.experiment import DistillationConfig
from workflow_src.data.lines import count_lines, read_lines
from workflow_src.data.placeholders import outcome_words
from workflow_src.data.shards import SCORE, bounds, distillation_files, write_shard
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.jobs import DeviceJobInputs, log, log_progress, start
from workflow_src.registry import (
    default_engine,
    distilling_engines,
    distilling_search,
    families,
    import_object,
)
from workflow_src.runtime.workers import blocks_of
from workflow_src.serving.bundle import DESCRIPTION
from workflow_src.spec import AUTOREGRESSIVE, MODEL, Family

if TYPE_CHECKING:
    from torch import nn

    from workflow_src.runtime.device import Runtime
    from workflow_src.types import Hypotheses

    Translate = Callable[[list[list[int]]], Hypotheses]

CHUNK = 16384
AUTO = "auto"


class Inputs(DeviceJobInputs):
    settings: DistillationConfig = Field(description="settings of the search, and what computes it")
    model: Path = Field(description="weights of the teacher, or the bundle.json of one that was made elsewhere")
    subwords: Path = Field(description="folder of learn_subwords")
    source: Path = Field(description="training text, normalised")
    shard: int = Field(description="number of the part to translate, from 0")
    shards: int = Field(gt=0, description="number of parts")
    output: Path = Field(description="JSON lines")


def run(inputs: Inputs) -> str:
    from workflow_src.runtime.device import keep_memory, set_threads

    keep_memory()
    set_threads(inputs.machine.threads)
    first, end = bounds(count_lines(inputs.source), inputs.shard, inputs.shards)
    subwords = Subwords.load(inputs.subwords)
    teacher = (_imported if inputs.model.name == DESCRIPTION else _trained)(inputs, subwords)
    counts: Counter[str] = Counter()
    placeholders: Counter[str] = Counter()

    def translations() -> Iterator[dict[str, Any]]:
        began = time.perf_counter()
        for chunk in blocks_of(itertools.islice(read_lines(inputs.source), first, end), CHUNK):
            fits = [length <= teacher.longest for length in teacher.lengths(chunk)]
            hypotheses = teacher.search([line if fit else "" for line, fit in zip(chunk, fits, strict=True)])
            outcomes = subwords.placeholder_outcomes(hypotheses.tokens, chunk) or ()
            for outcome in itertools.compress(outcomes, fits):
                placeholders.update(outcome)
            # A model may spell a line break, character by character; a line must stay a line.
            for text, score in zip(subwords.decode_target(hypotheses.tokens, chunk), hypotheses.scores, strict=True):
                yield {"text": " ".join(text.split()), SCORE: score}
            counts.update(translated=len(chunk), skipped=fits.count(False))
            log_progress(counts["translated"], end - first, began, "sentences")

    files = distillation_files(inputs.model, inputs.subwords, inputs.source)
    search = inputs.settings.search_settings().model_dump(mode="json")
    shard = inputs.shard, inputs.shards
    write_shard(inputs.output, translations(), search, files, *shard, teacher.device, teacher.precision)
    note = f", {counts['skipped']} too long and left empty" if counts["skipped"] else ""
    note += f"; {outcome_words(placeholders)}" if placeholders else ""
    return f"shard {inputs.shard} of {inputs.shards}: {counts['translated']} sentences{note}"


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A teacher's search over normalised lines, and the longest line that it reads, in its own subwords (`lengths`)."""

    search: Callable[[list[str]], Hypotheses]
    lengths: Callable[[list[str]], list[int]]
    longest: int
    device: str
    precision: str


def _imported(inputs: Inputs, subwords: Subwords) -> Teacher:
    """A teacher that was made elsewhere, as its engine computes it. Raises ArtifactError for other subwords."""
    from workflow_src.serving.translator import Translator
    from workflow_src.types import ImportedNetwork

    machine = inputs.machine
    translator = Translator.load(inputs.model.parent, machine.device, AUTO, machine.threads)
    if translator.subwords.digest != subwords.digest:
        raise ArtifactError(inputs.model, f"has other subwords than {inputs.subwords}", "import the model again")
    settings, network = inputs.settings.search_settings(), cast(ImportedNetwork, translator.network)
    log.info("translating with %s, %s", translator.description.engine, translator.precision)
    return Teacher(
        search=lambda lines: network.translate(lines, settings, inputs.settings.batch),
        lengths=network.lengths,
        longest=network.longest_source,
        device=translator.device,
        precision=translator.precision,
    )


def _trained(inputs: Inputs, subwords: Subwords) -> Teacher:
    from workflow_src.runtime.device import choose
    from workflow_src.training.systems import check_subwords, load_system
    from workflow_src.types import max_positions

    runtime = choose(inputs.machine.device, inputs.machine.precision, training=False)
    model, description = load_system(inputs.model, AUTOREGRESSIVE)
    model = model.to(device=runtime.device, dtype=runtime.dtype)
    check_subwords(description, subwords, inputs.model)
    search = _search(inputs, model, families()[description["family"]], subwords, runtime)
    return Teacher(
        search=lambda lines: search(subwords.encode_source(lines)),
        lengths=lambda lines: list(map(len, subwords.encode_source(lines))),
        longest=max_positions(model) - 1,
        device=str(runtime.device),
        precision=str(runtime.dtype).removeprefix("torch."),
    )


def _search(inputs: Inputs, model: nn.Module, family: Family, subwords: Subwords, runtime: Runtime) -> Translate:
    """The reference search over many sources, by our own code or, with the same outputs, by an engine that distils.

    Raises ConfigError for an unknown engine, and for one that does not compute such a model.
    """
    import torch

    from workflow_src.decoding.batches import search_all
    from workflow_src.decoding.search import open_search

    search = distilling_search()
    settings = inputs.settings.search_settings()
    module = open_search({MODEL: model}, settings)

    def eagerly(sources: list[list[int]]) -> Hypotheses:
        return search_all(module.translate, sources, inputs.settings.batch, runtime.device)

    if inputs.settings.engine == default_engine().name:
        return eagerly
    engine = inputs.settings.engine
    explicit = engine != AUTO
    distilling = {engine.name: engine for engine in distilling_engines()}
    if explicit and engine not in distilling:
        raise ConfigError("engine", engine, allowed=[AUTO, default_engine().name, *distilling])
    library = distilling[engine] if explicit else next(iter(distilling.values()))
    refusal = library.serves(family, search, settings)
    if explicit and refusal:
        raise ConfigError("engine", library.name, problem=f"it {refusal}")
    exact = runtime.device.type == "cpu" and runtime.dtype == torch.float32
    if not explicit and (refusal or not (exact and library.installed())):
        return _captured(inputs, model, family, runtime) or eagerly
    assert library.distil
    translate = import_object(library.distil)(model, subwords, runtime, inputs.machine.threads)
    log.info("translating with %s, float32", library.title)

    def by_engine(sources: list[list[int]]) -> Hypotheses:
        hypotheses, remaining = translate(sources, settings, inputs.settings.batch)
        own_hypotheses = eagerly([sources[i] for i in remaining])
        for index, i in enumerate(remaining):
            hypotheses.tokens[i], hypotheses.scores[i] = own_hypotheses.tokens[index], own_hypotheses.scores[index]
        return hypotheses

    return by_engine


def _captured(inputs: Inputs, model: nn.Module, family: Family, runtime: Runtime) -> Translate | None:
    """The reference search in captured graphs; None where the device or the model has none."""
    from workflow_src.decoding.batches import search_rows
    from workflow_src.engines.choose import choose_mode, open_engine

    settings = inputs.settings.search_settings()
    precision = str(runtime.dtype).removeprefix("torch.")
    mode, declared = choose_mode(AUTO, runtime.device.type, precision, family, [distilling_search().name])
    if declared is None:
        return None
    engine = open_engine(declared, {family.name: model}, mode, runtime.device)
    log.info("translating with %s, %s", declared.title, precision)
    return lambda sources: search_rows(
        lambda batch: engine.search(batch, settings, scored=True), sources, inputs.settings.batch
    )


if __name__ == "__main__":
    start(run, Inputs, __doc__)
