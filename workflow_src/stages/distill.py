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
from typing import TYPE_CHECKING, Any

from pydantic import Field

from workflow_src.config.experiment import DistillationConfig
from workflow_src.data.lines import count_lines, read_lines
from workflow_src.data.placeholders import outcome_words
from workflow_src.data.shards import SCORE, bounds, distillation_files, write_shard
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.jobs import DeviceJobInputs, log, log_progress, start
from workflow_src.registry import default_engine, distilling_engines, distilling_search, families, import_object
from workflow_src.runtime.workers import blocks_of
from workflow_src.serving.bundle import DESCRIPTION
from workflow_src.spec import AUTOREGRESSIVE, MODEL, Engine, Family

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
            sources = teacher.encode(chunk)
            fits = [len(source) <= teacher.longest for source in sources]
            hypotheses = teacher.search([source if fit else [] for source, fit in zip(sources, fits, strict=True)])
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
    """How a teacher cuts normalised lines into its subwords, its search, and the longest source that it reads."""

    encode: Callable[[list[str]], list[list[int]]]
    search: Translate
    longest: int
    device: str
    precision: str


def _imported(inputs: Inputs, subwords: Subwords) -> Teacher:
    """A teacher that was made elsewhere, as its engine computes it. Raises ArtifactError for other subwords."""
    from workflow_src.serving.translator import Translator

    machine = inputs.machine
    translator = Translator.load(inputs.model.parent, machine.device, AUTO, machine.threads)
    if translator.subwords.digest != subwords.digest:
        raise ArtifactError(inputs.model, f"has other subwords than {inputs.subwords}", "import the model again")
    request = translator.request(
        inputs.settings.search_settings(), batch=inputs.settings.batch, normalised=True, return_scores=True
    )
    log.info("translating with %s, %s", translator.description.engine, translator.precision)
    return Teacher(
        encode=translator.encoded,
        search=lambda sources: translator.search_ids(sources, request),
        longest=translator.longest_source,
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
    return Teacher(
        encode=subwords.encode_source,
        search=_search(inputs, model, families()[description["family"]], subwords, runtime),
        longest=max_positions(model) - 1,
        device=str(runtime.device),
        precision=str(runtime.dtype).removeprefix("torch."),
    )


def _search(inputs: Inputs, model: nn.Module, family: Family, subwords: Subwords, runtime: Runtime) -> Translate:
    """The reference search over many sources, by our own code or, with the same outputs, by an engine that distils."""
    from workflow_src.decoding.batches import search_rows
    from workflow_src.engines.choose import open_session
    from workflow_src.engines.session import Request, SessionConfig

    mode, declared, distils = _chosen(inputs, family, runtime)
    config = SessionConfig(str(runtime.device), mode, inputs.machine.threads, {family.name: model}, subwords=subwords)
    session = import_object(declared.distil)(config) if distils and declared.distil else open_session(declared, config)
    eager = open_session(default_engine(), config)
    if declared is not default_engine():
        log.info("translating with %s, %s", declared.title, mode)
    batch = inputs.settings.batch
    request = Request(inputs.settings.search_settings(), {MODEL: model}, batch, return_scores=True)

    def translate(sources: list[list[int]]) -> Hypotheses:
        at_once = session.concurrent_batches
        hypotheses = search_rows(lambda rows: session.search(rows, request), sources, batch, threads=at_once)
        # There the library stops, and our own search goes on.
        cut = [row for row, is_cut in enumerate(hypotheses.cut or ()) if is_cut]
        own = search_rows(lambda rows: eager.search(rows, request), [sources[row] for row in cut], batch)
        for row, tokens, score in zip(cut, own.tokens, own.scores, strict=True):
            hypotheses.tokens[row], hypotheses.scores[row] = tokens, score
        return hypotheses

    return translate


def _chosen(inputs: Inputs, family: Family, runtime: Runtime) -> tuple[str, Engine, bool]:
    """The mode and the engine that translates, and whether it is opened for distillation."""
    import torch

    from workflow_src.engines.choose import EAGER, choose

    search, settings, engine = distilling_search(), inputs.settings.search_settings(), inputs.settings.engine
    precision = str(runtime.dtype).removeprefix("torch.")
    if engine == default_engine().name:
        return EAGER, default_engine(), False
    distilling = {engine.name: engine for engine in distilling_engines()}
    library = distilling[engine] if engine != AUTO else next(iter(distilling.values()))
    exact = runtime.device.type == "cpu" and runtime.dtype == torch.float32
    if engine != AUTO or (exact and not library.serves(family, search, settings) and library.installed()):
        return "float32", library, True
    return (*choose(AUTO, runtime.device.type, precision, family, [search.name]), False)


if __name__ == "__main__":
    start(run, Inputs, __doc__)
