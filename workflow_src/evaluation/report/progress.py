"""Whether a training was still improving when it ended, from its validations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workflow_src.evaluation.report.markdown import signed

# A training was still improving where the last part of its updates added more than this gain in BLEU on dev. Smaller
# differences between validations also arise by chance.
LAST_PART = 0.2
LARGEST_GAIN = 1.0

RULE = (
    f"A training was still improving at its end where the best BLEU on dev of its last {LAST_PART:.0%} of updates is "
    f"more than {LARGEST_GAIN:g} above the best before them."
).replace("%", " %")


def last_gain(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Gain in BLEU on dev of the last fifth of a training's updates: its best less the best before; may be negative.

    `history` has the entries of a training.jsonl. Two bests are compared and not the last two validations, because one
    validation may be better or worse by chance, and because small steps of a schedule change little whether or not more
    updates would help. Validations of averaged weights are left out: averaging helps without any update. None where
    either part has no validation with BLEU.
    """
    measured = [
        (entry["step"], entry["dev_bleu"])
        for entry in history
        if entry.get("dev_bleu") is not None and math.isfinite(entry["dev_bleu"]) and "averaged" not in entry
    ]
    if not measured:
        return None
    border = (1 - LAST_PART) * max(step for step, _ in measured)
    earlier_bleu, last_bleu = ([bleu for step, bleu in measured if (step > border) == late] for late in (False, True))
    return max(last_bleu) - max(earlier_bleu) if earlier_bleu and last_bleu else None


def still_improving(history: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether a training was still improving when it ended; None where its validations do not show it."""
    gain = last_gain(history)
    return None if gain is None else gain > LARGEST_GAIN


def gain_words(gain: float | None) -> str:
    """A cell of a table: whether a training was still improving, with its `last_gain` in BLEU."""
    if gain is None:
        return "–"
    # Without the sign of a zero.
    return f"{'yes' if gain > LARGEST_GAIN else 'no'} ({signed(round(gain, 1) + 0.0, 1)})"


def advice(histories: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
    """The rule, and advice for systems that were still improving; empty where no training can be judged.

    `histories` are names of systems with the entries of a training.jsonl, one for each seed.
    """
    judged = [(name, improving) for name, history in histories if (improving := still_improving(history)) is not None]
    if not judged:
        return ""
    names = list(dict.fromkeys(name for name, improving in judged if improving))
    if not names:
        return f"{RULE} None was."
    words = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{RULE} Raise training.max_steps of {words} for a better result."
