"""Reasons why pairs of a dataset are left out of the training text, in words."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

log = logging.getLogger("continuum")
# The share of pairs above which a warning says what is left out.
NOTABLE = 0.02
# Reasons as records have them, in the order in which pairs meet them: download, clean, normalise, its split, encode.
REASONS = {
    "markup": "markup",
    "blank_line": "blank lines of tables and records",
    "header": "names of columns",
    "untranslated": "without one of the languages",
    "other_segment": "another segment of the unit kept",
    "minimum_score": "below minimum_score",
    "cleaning": "in cleaning",
    "empty": "empty",
    "max_characters": "over max_characters",
    "max_words": "over max_words",
    "length_ratio": "over max_length_ratio",
    "held_out": "in dev or test",
    "repeated": "repeated",
    "other_translation": "another translation kept",
    "held_out_group": "beside a sentence of dev or test",
    "limit": "beyond limits",
    "source-empty": "empty source",
    "target-empty": "empty target",
    "source-too-long": "source over max_length",
    "target-too-long": "target over max_length",
    "unlikely": "unlikely",
}


def units(languages: Sequence[str]) -> str:
    """What a text in these languages has: pairs, or lines where there is one language."""
    return "pairs" if len(languages) > 1 else "lines"


def words(dropped: Mapping[str, int], inline: int = 0) -> str:
    """The counts by reason, as `882 repeated, 3 empty`; `none` where nothing was left out.

    `inline` elements of translation memories were left out of pairs that stay.
    """
    reasons = REASONS | {reason: reason for reason in dropped if reason not in REASONS}
    parts = [f"{dropped[reason]:,} {text}" for reason, text in reasons.items() if dropped.get(reason)]
    parts += [f"{inline:,} inline elements"] if inline else []
    return ", ".join(parts) or "none"


def left_out(dropped: Mapping[str, int], inline: int = 0) -> str:
    """The end of a stage's summary, after a number of pairs: ` (left out: 3 empty)`, or nothing."""
    return f" (left out: {words(dropped, inline)})" if any(dropped.values()) or inline else ""


def notable(dropped: Mapping[str, int], pairs: int) -> bool:
    """Whether more of so many pairs are left out than users expect, who did not ask for it."""
    return sum(dropped.values()) > NOTABLE * pairs


def warn_of_losses(text: str, dropped: Mapping[str, int], pairs: int, fix: str) -> None:
    """Log a warning where a notable share of the `pairs` of a text is left out."""
    if notable(dropped, pairs):
        share = 100 * sum(dropped.values()) / pairs
        log.warning("warning: %.1f %% of the pairs of %s are left out: %s; %s.", share, text, words(dropped), fix)
