"""Whether a training was still improving when it ended, from its validations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from workflow_src.evaluation.report.markdown import signed
from workflow_src.registry import main_metric

# A training was still improving where the last part of its updates added more than this gain in BLEU on dev. Smaller
# differences between validations also arise by chance.
LAST_PART = 0.2
LARGEST_GAIN = 1.0

RULE = (
    f"“yes” where the best BLEU on dev of the last {100 * LAST_PART:.0f} % of updates is more than {LARGEST_GAIN:g} "
    "above the best before them: raise training.max_steps for a better result. A system that hardly learnt has too "
    "little BLEU for its curve to say something: look at the losses, and raise training.max_steps or change the "
    "learning rate."
)


def last_gain(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Gain in BLEU on dev of the last fifth of a training's updates: its best less the best before; may be negative.

    `history` has the entries of a training.jsonl. Two bests are compared and not the last two validations, because one
    validation may be better or worse by chance, and because small steps of a schedule change little whether or not more
    updates would help. Validations of averaged weights are left out: averaging helps without any update. None where
    either part has no validation with BLEU.
    """
    measured = _validations(history)
    if not measured:
        return None
    border = (1 - LAST_PART) * max(step for step, _ in measured)
    earlier_bleu, last_bleu = ([bleu for step, bleu in measured if (step > border) == late] for late in (False, True))
    return max(last_bleu) - max(earlier_bleu) if earlier_bleu and last_bleu else None


def _validations(history: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Updates and BLEU on dev of validations, without those of averaged weights."""
    return [
        (entry["step"], entry["dev_bleu"])
        for entry in history
        if entry.get("dev_bleu") is not None and math.isfinite(entry["dev_bleu"]) and "averaged" not in entry
    ]


def cut_short(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a training ended while it was still improving much, or was too short to show it.

    False for systems without BLEU in their validations, such as language models.
    """
    if not any(entry.get("dev_bleu") is not None and entry["step"] > 0 for entry in history):
        return False
    gain = last_gain(history)
    return gain is None or gain > LARGEST_GAIN


def gain_words(history: Sequence[Mapping[str, Any]]) -> str:
    """A cell of a table: whether a training was still improving, with its `last_gain` in BLEU.

    A system with next to no BLEU has not ended learning, however flat its curve is: the cell has its best BLEU.
    """
    gain, least = last_gain(history), main_metric().least
    if gain is None:
        return "–"
    best = max(bleu for _, bleu in _validations(history))
    if least is not None and best < least:
        return f"hardly learnt ({best:.2f})"
    # Without the sign of a zero.
    return f"{'yes' if gain > LARGEST_GAIN else 'no'} ({signed(round(gain, 1) + 0.0, 1)})"
