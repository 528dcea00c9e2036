"""Validity of sentences by the toy grammar."""

from __future__ import annotations

import numpy as np

from workflow_src.data.toy.grammar import ToyGrammar
from workflow_src.spec import NoSettings, Segments, Texts


def segments(texts: Texts, _settings: NoSettings) -> Segments:
    """1 for a right answer, else 0 (N,)."""
    grammar = ToyGrammar(f"{texts.corpus.source}-{texts.corpus.target}")
    pairs = zip(texts.sources, texts.hypotheses, strict=True)
    return Segments(np.array([float(grammar.is_valid(*pair)) for pair in pairs]))
