"""Names of training texts, which `data` of a system lists: raw, KIND-by-SYSTEM, or a name of the user's own."""

from __future__ import annotations

from typing import Literal, NamedTuple

RAW = "raw"
# Kinds of texts that a system of the experiment makes: its translations of the training source, those of text of the
# source language, and the training pairs that it finds likely.
DISTILLED: Literal["distilled"] = "distilled"
MONOLINGUAL: Literal["monolingual"] = "monolingual"
LIKELY: Literal["likely"] = "likely"
TEXT_KINDS = (DISTILLED, MONOLINGUAL, LIKELY)
# Splits of raw text that systems learn from; the others are dev and test sets.
TRAINING_SPLITS = ("train", MONOLINGUAL)

# Training texts of a system: one, or several with their weights.
Data = str | dict[str, float]


def base_of(text: str) -> str:
    """The name of a text without the suffix of an augmented one (`AugmentConfig.suffix`)."""
    return text.split("+")[0]


class SystemText(NamedTuple):
    """A text that a system makes: its kind, and this system."""

    kind: str
    system: str


def kind_and_system(text: str) -> SystemText | None:
    """The kind of a text that a system makes, augmented or not, and this system; None for other texts."""
    base = base_of(text)
    for kind in TEXT_KINDS:
        if base.startswith(prefix := f"{kind}-by-"):
            return SystemText(kind, base.removeprefix(prefix))
    return None


def system_behind(text: str) -> str | None:
    """The system that makes a text, or None."""
    origin = kind_and_system(text)
    return origin.system if origin else None


def weights_of(data: Data) -> dict[str, float]:
    """Weights of training texts by name, in the order of the names."""
    return {data: 1.0} if isinstance(data, str) else dict(sorted(data.items()))


def canonical(data: Data) -> Data:
    """One text of weight 1 as its name; others as their weights in the order of the names."""
    weights = weights_of(data)
    return next(iter(weights)) if list(weights.values()) == [1.0] else weights


def words(data: Data) -> str:
    """Training texts for tables: `raw`, or `0.5 × distilled-by-teacher + raw`."""
    return " + ".join(text if weight == 1 else f"{weight:g} × {text}" for text, weight in weights_of(data).items())


def kind_of(data: Data) -> str:
    """`raw`, `distilled`, `monolingual`, or `mixed` for texts of several kinds; `none` for models made elsewhere.

    Likely pairs are raw ones, texts of the user's own distilled ones.
    """
    kinds = {_kind(text) for text in weights_of(data)} or {"none"}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _kind(text: str) -> str:
    origin = kind_and_system(text)
    kind = origin.kind if origin else RAW if base_of(text) == RAW else DISTILLED
    return RAW if kind == LIKELY else kind
