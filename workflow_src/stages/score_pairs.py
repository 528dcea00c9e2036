"""Stage: one shard of the encoded training pairs, scored by an autoregressive system: a JSON line a pair.

The score is -log p(target | source) in nats a target subword, the end symbol counted; under a reversed system
-log p(source | target) in nats a source subword.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import numpy as np
from pydantic import Field

from workflow_src.config.experiment import LikelihoodConfig
from workflow_src.data.encoded import EncodedCorpus, check_positions
from workflow_src.data.shards import SCORE, bounds, scoring_files, write_shard
from workflow_src.data.subwords import Subwords
from workflow_src.jobs import DeviceJobInputs, log_progress, start
from workflow_src.spec import SCORER

CHUNK = 16384


class Inputs(DeviceJobInputs):
    settings: LikelihoodConfig = Field(description="how many pairs are scored together, which changes no score")
    model: Path = Field(description="weights of the system")
    subwords: Path = Field(description="folder of learn_subwords")
    pairs: Path = Field(description="prefix of the encoded training pairs")
    shard: int = Field(description="number of the part to score, from 0")
    shards: int = Field(gt=0, description="number of parts")
    output: Path = Field(description="JSON lines")


def run(inputs: Inputs) -> str:
    import torch

    from workflow_src.data.batching import collate
    from workflow_src.decoding.ranking import Scoring
    from workflow_src.nn.models import Scorer
    from workflow_src.runtime.device import choose, keep_memory, set_threads
    from workflow_src.training.systems import check_subwords, load_system
    from workflow_src.types import max_positions

    keep_memory()
    set_threads(inputs.machine.threads)
    corpus, subwords = EncodedCorpus.open(inputs.pairs), Subwords.load(inputs.subwords)
    first, end = bounds(len(corpus), inputs.shard, inputs.shards)
    runtime = choose(inputs.machine.device, inputs.machine.precision, training=False)
    model, description = load_system(inputs.model, SCORER)
    scoring = Scoring(cast(Scorer, model.to(device=runtime.device, dtype=runtime.dtype)))
    if description.get("reversed"):
        corpus, subwords = corpus.reversed(), subwords.reversed()
    check_subwords(description, subwords, inputs.model)
    check_positions(max_positions(model), corpus)
    longest = np.maximum(corpus.source_lengths, corpus.target_lengths)

    def lines() -> Iterator[dict[str, float]]:
        began = time.perf_counter()
        for begin in range(first, end, CHUNK):
            chunk = np.arange(begin, min(begin + CHUNK, end))
            scores = np.zeros(len(chunk))
            order = np.argsort(longest[chunk], kind="stable")
            for offset in range(0, len(chunk), inputs.settings.batch):
                indices = order[offset : offset + inputs.settings.batch]
                batch = collate(corpus, chunk[indices]).to(runtime.device)
                rows = torch.arange(len(indices), device=runtime.device)
                log_p = scoring(batch.source, rows, batch.target)
                scores[indices] = -log_p.double().cpu().numpy() / (corpus.target_lengths[chunk[indices]] + 1)
            yield from ({SCORE: round(score, 6)} for score in scores.tolist())
            log_progress(int(chunk[-1]) + 1 - first, end - first, began, "pairs")

    files = scoring_files(inputs.model, inputs.subwords, inputs.pairs)
    machine = str(runtime.device), str(runtime.dtype).removeprefix("torch.")
    with torch.inference_mode():
        write_shard(inputs.output, lines(), {}, files, inputs.shard, inputs.shards, *machine)
    return f"shard {inputs.shard} of {inputs.shards}: {end - first} pairs"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
