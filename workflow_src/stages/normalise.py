"""Stage: normalise raw text, drop pairs that cannot be used, and count every drop by reason."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import IO

from workflow_src import jobs
from workflow_src.config.base import ConfigError, parse
from workflow_src.config.datasets import NormalisationConfig
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.data.normalise import Normaliser, clean, drop_reason
from workflow_src.evaluation.quality import metrics
from workflow_src.records.atomic import ArtifactError, atomic, write_json
from workflow_src.records.provenance import digests, provenance

SPLITS = ("train", "dev", "test")
REASONS = {"train": ("empty", "max_words", "length_ratio"), "dev": ("empty",), "test": ("empty",)}


def normalise_split(
    split: str,
    raw: tuple[Path, Path],
    normalisers: tuple[Normaliser, Normaliser],
    outputs: list[IO[str]],
    limit: int | None = None,
) -> dict:
    """Stream one split from `raw` (source, target) to `outputs` (source, target, and the reference where there is one).

    Counts: pairs read, dropped by reason, and kept, and words of each side. With a reference, `round_trip_bleu` too:
    BLEU of the targets as outputs would be put together, against the references as given (None without one). Stops
    after `limit` kept pairs.
    """
    source_side, target_side = normalisers
    settings = source_side.settings
    check_parallel(*raw)
    dropped = dict.fromkeys(REASONS[split], 0)
    words = [0, 0]
    read = kept = 0
    perfect: list[str] = []
    references: list[str] = []
    for source_text, target_text in zip(read_lines(raw[0]), read_lines(raw[1]), strict=True):
        if kept == limit:
            break
        read += 1
        source, target = source_side.line(source_text), target_side.line(target_text)
        reason = drop_reason(source, target, settings, training=split == "train")
        if reason is not None:
            dropped[reason] += 1
            continue
        kept += 1
        words[0] += source.count(" ") + 1
        words[1] += target.count(" ") + 1
        outputs[0].write(source + "\n")
        outputs[1].write(target + "\n")
        if len(outputs) > 2:
            outputs[2].write(target_side.reference(target_text) + "\n")
            perfect.append(target_side.detokenise(target))
            references.append(clean(target_text, settings.unicode))
    if not kept:
        told = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        raise ArtifactError(
            f"no pair of {split} is left after normalisation of {raw[0]} and {raw[1]} ({told}); check the texts and "
            "recipe.normalisation."
        )
    return {
        "read": read, "dropped": dropped, "pairs": kept, "limit": limit,
        "round_trip_bleu": round_trip_bleu(perfect, references) if references else None,
        "words": {source_side.language: words[0], target_side.language: words[1]},
    }  # fmt: skip


def round_trip_bleu(perfect: list[str], references: list[str]) -> float:
    """BLEU of `perfect` in [0, 100]; 100 where nothing differs, although texts without any four words have BLEU 0."""
    return 100.0 if perfect == references else metrics.bleu(perfect, references)


def warn_of_losses(round_trip: dict[str, float], rules: NormalisationConfig) -> None:
    """Warn where normalisation alone costs too much. `round_trip`: split -> `round_trip_bleu`."""
    low = [f"{bleu:.1f} on {split}" for split, bleu in round_trip.items() if bleu < metrics.LEAST_ROUND_TRIP]
    if low and rules.references == "given":
        jobs.log.warning(
            "warning: references that are normalised and put together again have BLEU %s against themselves, and no "
            "system can have more; set recipe.normalisation.references: normalised, or normalise less.",
            " and ".join(low),
        )


def run(arguments: argparse.Namespace) -> str:
    settings = arguments.settings
    missing = [name for name in ("source", "target", "normalisation") if name not in settings]
    if missing:
        raise ConfigError(f"missing setting {missing[0]} in --settings: add it.")
    rules: NormalisationConfig = parse(NormalisationConfig, settings["normalisation"], "recipe.normalisation")
    codes = (settings["source"], settings["target"])
    limits = settings.get("limits", {})
    normalisers = (Normaliser(rules, codes[0]), Normaliser(rules, codes[1]))
    folder: Path = arguments.output_folder
    inputs = {f"{split}.{code}": arguments.raw_folder / f"{split}.{code}" for split in SPLITS for code in codes}
    summary = folder / "corpus.json"
    splits, names = {}, []
    # All texts get their names together, after the last one is written; the summary, which vouches for them, last.
    with contextlib.ExitStack() as stack:
        for split in SPLITS:
            made = [f"{split}.{code}" for code in codes]
            made += [f"{split}.reference.{codes[1]}"] if split != "train" else []
            outputs = [stack.enter_context(atomic(folder / name)) for name in made]
            raw = (inputs[f"{split}.{codes[0]}"], inputs[f"{split}.{codes[1]}"])
            splits[split] = normalise_split(split, raw, normalisers, outputs, limits.get(split))
            names += made
            told = ", ".join(f"{count:,} {reason}" for reason, count in splits[split]["dropped"].items() if count)
            jobs.log.info("%s: %s pairs, dropped: %s", split, f"{splits[split]['pairs']:,}", told or "none")
        summary.unlink(missing_ok=True)
    round_trip = {split: splits[split]["round_trip_bleu"] for split in SPLITS if split != "train"}
    warn_of_losses(round_trip, rules)
    sums = digests(folder, names)
    write_json(summary, {
        "source": codes[0],
        "target": codes[1],
        "pairs": {split: counts["pairs"] for split, counts in splits.items()},
        "words": {split: counts["words"] for split, counts in splits.items()},
        "dropped": {split: counts["dropped"] for split, counts in splits.items()},
        "read": {split: counts["read"] for split, counts in splits.items()},
        "limits": limits,
        "round_trip_bleu": round_trip,
        "normalisation": rules.model_dump(mode="json"),
        "sha256": sums,
        "provenance": provenance(settings, inputs, sums),
    })  # fmt: skip
    total = sum(sum(counts["dropped"].values()) for counts in splits.values())
    return f"{sum(counts['pairs'] for counts in splits.values()):,} pairs normalised, {total:,} dropped"


def main(words: list[str] | None = None) -> None:
    made = jobs.parser(__doc__)
    made.add_argument("--raw-folder", type=Path, required=True)
    made.add_argument("--output-folder", type=Path, required=True)
    jobs.start(run, made, words)


if __name__ == "__main__":
    main()
