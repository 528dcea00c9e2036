"""Whether a training was still improving when it ended, from its validations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workflow_src.evaluation.report.markdown import signed

# A training was still improving where the last part of its updates added more than so much BLEU on dev. Less than that
# is also what one validation differs from the next by chance.
LAST_PART = 0.2
LARGEST_GAIN = 1.0

RULE = (
    f"A training was still improving at its end where the best BLEU on dev of its last {LAST_PART:.0%} of updates is "
    f"more than {LARGEST_GAIN:g} above the best before them."
).replace("%", " %")


def gained_last(history: Sequence[Mapping[str, Any]]) -> float | None:
    """BLEU on dev that the last fifth of a training's updates added: the best of it less the best before; may be < 0.

    `history` has the entries of a training.jsonl. Two bests are compared and not the last two validations, because one
    validation may be better or worse by chance, and because steps that a schedule makes small change little whether or
    not more updates would help. The mean of several weights is left out: it is better than each without any update.
    None where there is no validation in either part, or none has BLEU.
    """
    measured = [
        (entry["step"], entry["dev_bleu"])
        for entry in history
        if entry.get("dev_bleu") is not None and math.isfinite(entry["dev_bleu"]) and "averaged" not in entry
    ]
    if not measured:
        return None
    border = (1 - LAST_PART) * max(step for step, _ in measured)
    before, last = ([bleu for step, bleu in measured if (step > border) == late] for late in (False, True))
    return max(last) - max(before) if before and last else None


def still_improving(history: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether a training was still improving when it ended; None where its validations do not show it."""
    gain = gained_last(history)
    return None if gain is None else gain > LARGEST_GAIN


def gain_words(gain: float | None) -> str:
    """Whether a training was still improving, with the gain in BLEU of `gained_last`, for a cell of a table."""
    if gain is None:
        return "–"
    # Without the sign of a zero.
    return f"{'yes' if gain > LARGEST_GAIN else 'no'} ({signed(round(gain, 1) + 0.0, 1)})"


def advice(histories: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> str:
    """The rule, and what to do about the systems that were still improving; empty where no training shows it.

    `histories` are names of systems with the entries of a training.jsonl, one for each seed.
    """
    judged = [(name, improving) for name, history in histories if (improving := still_improving(history)) is not None]
    if not judged:
        return ""
    names = list(dict.fromkeys(name for name, improving in judged if improving))
    if not names:
        return f"{RULE} None was."
    named = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{RULE} Raise training.max_steps of {named} for a better result."
