"""Stage: the encoded training pairs that are likely under one or two systems, by scores of score_pairs, as a text."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from workflow_src.config.experiment import LikelihoodConfig
from workflow_src.data import encoded
from workflow_src.data.cleaning import EXAMPLES, Example, step_as_json
from workflow_src.data.drops import left_out
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.placeholders import PLACEHOLDERS
from workflow_src.data.shards import SCORE, by_number, read_shards, scoring_files
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError
from workflow_src.jobs import JobInputs, log, recorded, start
from workflow_src.records.provenance import numbered, provenance


class Inputs(JobInputs):
    settings: LikelihoodConfig = Field(description="which pairs are kept")
    system: str = Field(description="that scored the pairs")
    shards: tuple[Path, ...] = Field(min_length=1, description="outputs of score_pairs, in order")
    model: Path = Field(description="weights of the system")
    backward_shards: tuple[Path, ...] = Field((), description="outputs of score_pairs by the reversed system, in order")
    backward_model: Path | None = Field(None, description="weights of the reversed system")
    subwords: Path = Field(description="folder of learn_subwords")
    pairs: Path = Field(description="prefix of the encoded training pairs")
    output_prefix: Path


def reasons(scores: np.ndarray, keep: float, maximum: float | None) -> list[str | None]:
    """Why each pair is left out, by setting; None: it is kept. Of pairs with equal scores the earlier ones are kept."""
    kept_count = max(1, round(keep * len(scores)))
    verdicts: list[str | None] = [None] * len(scores)
    for rank, row in enumerate(np.argsort(scores, kind="stable").tolist()):
        if maximum is not None and not scores[row] <= maximum:
            verdicts[row] = "maximum"
        elif rank >= kept_count:
            verdicts[row] = "keep"
    return verdicts


def dual_cross_entropy(forward: np.ndarray, backward: np.ndarray) -> np.ndarray:
    """Scores (N,) of pairs by both directions' scores (N,): large where a direction is, or where the two disagree.

    The dual conditional cross-entropy (Junczys-Dowmunt 2018): |H(y|x) - H(x|y)| + (H(y|x) + H(x|y)) / 2.
    """
    return np.abs(forward - backward) + (forward + backward) / 2


def drawn_examples(corpus: EncodedCorpus, subwords: Subwords, scores: np.ndarray, rows: list[int]) -> list[Example]:
    """Random examples of pairs with their scores, numbered from 1 among the encoded pairs."""
    sampled = sorted(random.Random(len(rows)).sample(rows, min(EXAMPLES, len(rows))))
    # Encoded pairs have no text of placeholders, which examples leave out.
    unknown = [""] * len(sampled)
    sources = subwords.decode_source([corpus.source(row).tolist() for row in sampled], unknown)
    targets = subwords.decode_target([corpus.target(row).tolist() for row in sampled], unknown)
    return [
        Example(row + 1, source, target, f"{scores[row]:.2f} nats")
        for row, source, target in zip(sampled, sources, targets, strict=True)
    ]


def _read_scores(inputs: Inputs, model: Path, shards: Sequence[Path], pairs: int) -> np.ndarray:
    """Scores (N,) of all pairs by one system."""
    # Scores depend on no settings.
    lines = read_shards(list(shards), {}, scoring_files(model, inputs.subwords, inputs.pairs), pairs=pairs)
    return np.array([line[SCORE] for line in lines], np.float64)


def run(inputs: Inputs) -> str:
    settings = inputs.settings
    corpus = EncodedCorpus.open(inputs.pairs)
    scores = _read_scores(inputs, inputs.model, inputs.shards, len(corpus))
    if inputs.backward_model:
        scores = dual_cross_entropy(
            scores, _read_scores(inputs, inputs.backward_model, inputs.backward_shards, len(corpus))
        )
    systems = " and ".join(filter(None, [inputs.system, settings.backward]))
    subwords = Subwords.load(inputs.subwords)
    verdicts = reasons(scores, settings.share, settings.maximum)
    rows = [row for row, verdict in enumerate(verdicts) if verdict is None]
    dropped = Counter(filter(None, verdicts))
    if not rows:
        raise ArtifactError(
            inputs.pairs,
            f"has no pair with at most {settings.maximum} nats a subword under {systems}; the likeliest has "
            f"{scores.min():.2f}",
            f"raise likelihood.{inputs.system}.maximum",
        )
    threshold = float(scores[rows].max())
    unlikely = [row for row, verdict in enumerate(verdicts) if verdict]
    description = {
        name: corpus.summary[name]
        for name in ("split", "max_length", "subwords_digest", "source_vocabulary", "target_vocabulary")
    }
    examples = drawn_examples(corpus, subwords, scores, unlikely)
    step = step_as_json("likelihood", f"Likelihood under {systems}", len(corpus), dropped, examples)
    if PLACEHOLDERS in corpus.summary:
        # The counts of all encoded pairs: ids do not distinguish spans without partner from other text.
        description[PLACEHOLDERS] = corpus.summary[PLACEHOLDERS]
    files = scoring_files(inputs.model, inputs.subwords, inputs.pairs) | by_number(inputs.shards)
    if inputs.backward_model:
        files |= {"backward model": inputs.backward_model} | numbered("backward shard", list(inputs.backward_shards))
    summary = {
        **description,
        "dropped": corpus.summary["dropped"] | ({"unlikely": len(unlikely)} if unlikely else {}),
        "likelihood": step | {"largest_kept": threshold, "mean": float(scores.mean())},
        "provenance": provenance(recorded(settings), files),
    }
    vocabulary = max(subwords.source_size, subwords.target_size)
    pairs = ((corpus.source(row).tolist(), corpus.target(row).tolist()) for row in rows)
    encoded.write(inputs.output_prefix, pairs, summary, vocabulary)
    log.info(
        "scores in nats a subword: mean %.2f, of pairs that are kept at most %.2f; left out by %s",
        scores.mean(),
        threshold,
        ", ".join(f"{name} {count:,}" for name, count in dropped.items()) or "nothing",
    )
    return f"kept {len(rows):,} of {len(corpus):,} pairs{left_out({'unlikely': len(unlikely)})}"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
