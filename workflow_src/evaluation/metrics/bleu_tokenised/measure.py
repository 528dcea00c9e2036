"""Cased BLEU over the tokens of Moses."""

from __future__ import annotations

from sacremoses import MosesTokenizer

from workflow_src.config.languages import two_letters
from workflow_src.data.bleu import corpus_bleu
from workflow_src.spec import NoSettings, Score, Texts


def score(texts: Texts, _settings: NoSettings) -> Score:
    tokenise = MosesTokenizer(lang=two_letters(texts.corpus.target)).tokenize

    hypotheses, references, *further = (
        # A further reference may lack a sentence.
        [tokenise(line, return_str=True, escape=False) if line else line for line in lines]
        for lines in (texts.hypotheses, *texts.all_references)
    )
    # Text that ends in a detached full stop looks tokenised to sacreBLEU, rightly so here.
    return Score(corpus_bleu(hypotheses, references, "none", further, force=True))
