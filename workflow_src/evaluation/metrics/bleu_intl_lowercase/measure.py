"""BLEU over sacreBLEU's international tokens without case."""

from __future__ import annotations

from workflow_src.data.bleu import corpus_bleu
from workflow_src.spec import NoSettings, Score, Texts


def score(texts: Texts, _settings: NoSettings) -> Score:
    references, *further = texts.all_references
    return Score(corpus_bleu(list(texts.hypotheses), references, "intl", further, lowercase=True))
