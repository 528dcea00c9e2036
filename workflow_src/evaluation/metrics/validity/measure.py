"""Validity of sentences by the toy grammar."""

from __future__ import annotations

import numpy as np

from workflow_src.data.toy.grammar import ToyGrammar
from workflow_src.spec import NoSettings, Segments, Texts


def segments(texts: Texts, _settings: NoSettings) -> Segments:
    """1 for a right answer, else 0 (N,)."""
    grammar = ToyGrammar()
    pairs = zip(texts.sources, texts.hypotheses, strict=True)
    # Being translations of each other has no direction; the grammar takes the German sentence first.
    german_first = ((x, y) if texts.corpus.source == "de" else (y, x) for x, y in pairs)
    return Segments(np.array([float(grammar.is_valid(german, english)) for german, english in german_first]))
