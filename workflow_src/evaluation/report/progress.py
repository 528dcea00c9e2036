"""Whether a training was still improving when it ended, from its validations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workflow_src.evaluation.report.markdown import signed
from workflow_src.registry import main_metric

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


def best_bleu(history: Sequence[Mapping[str, Any]]) -> float | None:
    """The best BLEU on dev of a training's validations; None where they have none."""
    return max((bleu for _, bleu in _validations(history)), default=None)


def has_learnt(bleu: float | None) -> bool:
    """Whether a system with this best BLEU on dev has learnt enough for its curve to say something, or has none."""
    least = main_metric().least
    return bleu is None or least is None or bleu >= least


def still_improving(history: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether a training was still improving when it ended; None where its validations do not show it."""
    gain = last_gain(history)
    return None if gain is None else gain > LARGEST_GAIN


def gain_words(gain: float | None, best: float | None) -> str:
    """A cell of a table: whether a training was still improving, with its `last_gain` in BLEU.

    A system with next to no BLEU has not ended learning, however flat its curve is: the cell has its `best_bleu`.
    """
    if gain is None:
        return "–"
    if best is not None and not has_learnt(best):
        return f"hardly learnt ({best:.2f})"
    # Without the sign of a zero.
    return f"{'yes' if gain > LARGEST_GAIN else 'no'} ({signed(round(gain, 1) + 0.0, 1)})"


def advice(histories: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
    """The rule, and advice for systems that were still improving; empty where no training can be judged.

    `histories` are names of systems with the entries of a training.jsonl, one for each seed.
    """
    judged = [(name, history) for name, history in histories if still_improving(history) is not None]
    if not judged:
        return ""
    unlearnt = list(dict.fromkeys(name for name, history in judged if not has_learnt(best_bleu(history))))
    improving = list(
        dict.fromkeys(name for name, history in judged if name not in unlearnt and still_improving(history))
    )
    text = RULE
    if improving:
        text += f" Raise training.max_steps of {_listed(improving)} for a better result."
    elif not unlearnt:
        text += " None was."
    if unlearnt:
        text += (
            f" {_listed(unlearnt)} hardly learnt: below {main_metric().least:g} BLEU on dev, the curve says nothing. "
            "Look at the losses, and raise training.max_steps or change the learning rate."
        )
    return text


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
