"""How good translations are: BLEU, chrF, length, repetitions, and validity where a grammar can tell it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import sacrebleu

from workflow_src.config.experiment import Convention, Removal
from workflow_src.config.tokenisers import bleu_tokeniser, spaced
from workflow_src.data.bleu import bleu_metric, corpus_bleu, percent
from workflow_src.data.repetitions import WITHOUT_REPEATED_SUBWORDS, collapse_repetitions

BOOTSTRAP_SAMPLES = 1000
BOOTSTRAP_SEED = 12345
# Normalisation that takes more than half a point of BLEU from perfect outputs is worth a warning.
LEAST_ROUND_TRIP = 99.5

Validity = Callable[[str, str], bool]
# Under which name a quality file holds the scores of outputs from which this was removed.
VARIANTS: dict[Removal, str] = {
    "none": "kept",
    "words": "without_repeated_words",
    "subwords": WITHOUT_REPEATED_SUBWORDS,
}
# Which score counts BLEU by which convention.
CONVENTIONS: dict[Convention, str] = {
    "sacrebleu": "bleu",
    "tokenised": "bleu_tokenised",
    "intl-lowercase": "bleu_intl_lowercase",
}


@dataclasses.dataclass(frozen=True)
class Score:
    """Scores of one version of the outputs. BLEU and chrF in [0, 100]; `bleu_ci` is BLEU's 95 % interval [low, high].

    `length_ratio` is output tokens over reference tokens as sacreBLEU tokenises them; `validity` the share of outputs
    that are right answers, or None where nothing can tell. Two more BLEUs are for comparison with papers only:
    `bleu_tokenised` over the cased tokens of Moses, `bleu_intl_lowercase` over sacreBLEU's international tokens without
    case. Both are None for languages that `13a` does not fit: their papers count otherwise.
    """

    bleu: float
    bleu_ci: tuple[float, float]
    bleu_signature: str
    chrf: float
    chrf_signature: str
    length_ratio: float
    validity: float | None
    bleu_tokenised: float | None
    bleu_intl_lowercase: float | None


def repetitions(texts: list[str], language: str = "en") -> float:
    """Words that repeat the word before them, per 100 words of all texts; 0 where there are no words.

    In languages without spaces between words, characters count in their place.
    """
    words = [text.split() if spaced(language) else "".join(text.split()) for text in texts]
    total = sum(map(len, words))
    repeated = sum(now == before for line in words for before, now in zip(line, line[1:], strict=False))
    return 100 * repeated / total if total else 0.0


@contextmanager
def fixed_seed():
    """sacreBLEU takes the bootstrap's seed from the environment: ours for the time being, whatever the user's is."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(BOOTSTRAP_SEED)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def score(
    hypotheses: list[str],
    references: list[str],
    sources: list[str] | None = None,
    valid: Validity | None = None,
    samples: int = BOOTSTRAP_SAMPLES,
    language: str = "en",
    tokeniser: str | None = None,
) -> Score:
    """Scores of detokenised, cased `hypotheses` against one reference each.

    BLEU and chrF are sacreBLEU's, BLEU by `tokeniser`, by default that of the text's `language`. The interval is
    sacreBLEU's bootstrap, its mean minus and plus half the width between the 2.5th and the 97.5th percentile, cut to
    [0, 100] and widened to BLEU itself where it leaves that out. `valid(source, hypothesis)` decides validity. Raises
    ValueError for empty input or numbers of lines that differ.
    """
    if not hypotheses:
        raise ValueError("there are no translations to score: give at least one line.")
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} translations cannot be scored against {len(references)} references.")
    metric = bleu_metric(tokeniser or bleu_tokeniser(language))
    with fixed_seed():
        found = metric.corpus_score(hypotheses, [references], n_bootstrap=samples)
    chrf_metric = sacrebleu.CHRF()
    chrf = chrf_metric.corpus_score(hypotheses, [references])
    share = None
    if valid is not None and sources is not None:
        share = sum(bool(valid(x, y)) for x, y in zip(sources, hypotheses, strict=True)) / len(hypotheses)
    bleu = percent(found.score)
    return Score(
        bleu=bleu,
        bleu_ci=(min(bleu, percent(found._mean - found._ci)), max(bleu, percent(found._mean + found._ci))),
        bleu_signature=metric.get_signature().format(),
        chrf=percent(chrf.score),
        chrf_signature=chrf_metric.get_signature().format(),
        length_ratio=found.sys_len / found.ref_len if found.ref_len else 0.0,
        validity=share,
        **_of_papers(hypotheses, references, language),
    )


def _of_papers(hypotheses: list[str], references: list[str], language: str) -> dict[str, float | None]:
    """BLEU by the conventions of papers, beside sacreBLEU's own; None where the language has no such convention."""
    if not bleu_tokeniser(language) == "13a":
        return {"bleu_tokenised": None, "bleu_intl_lowercase": None}
    return {
        "bleu_tokenised": _tokenised_bleu(hypotheses, references, language),
        "bleu_intl_lowercase": corpus_bleu(hypotheses, references, "intl", lowercase=True),
    }


def bleu_by_convention(
    hypotheses: list[str], references: list[str], language: str = "en", tokeniser: str | None = None
) -> dict[str, float | None]:
    """BLEU of detokenised, cased `hypotheses` in [0, 100], as `score` counts it, by the values of CONVENTIONS."""
    own = corpus_bleu(hypotheses, references, tokeniser or bleu_tokeniser(language))
    return {"bleu": own, **_of_papers(hypotheses, references, language)}


def best_by_sentence(candidates: list[list[str]], references: list[str], tokeniser: str = "13a") -> list[str]:
    """For each sentence the candidate that its reference likes best, by sentence BLEU; the first among equals.

    `candidates[number][sentence]`. No system can choose so: what comes out bounds what a better choice could reach.
    """
    metric = bleu_metric(tokeniser, effective_order=True)
    return [
        max(texts, key=lambda text: metric.sentence_score(text, [reference]).score)
        for texts, reference in zip(zip(*candidates, strict=True), references, strict=True)
    ]


def _tokenised_bleu(hypotheses: list[str], references: list[str], language: str) -> float:
    from sacremoses import MosesTokenizer

    tokenise = MosesTokenizer(lang=language).tokenize
    texts = [[tokenise(line, return_str=True, escape=False) for line in lines] for lines in (hypotheses, references)]
    # Text that ends in a detached full stop looks tokenised to sacreBLEU, rightly so here.
    return corpus_bleu(*texts, "none", force=True)


def all_variants(
    hypotheses: list[str],
    without_repeated_subwords: list[str],
    references: list[str],
    sources: list[str] | None = None,
    valid: Validity | None = None,
    language: str = "en",
    tokeniser: str | None = None,
) -> dict[str, Any]:
    """Scores of `hypotheses` as they are and without repetitions, by the names of VARIANTS; the number of sentences,
    and repetitions before removal.

    `without_repeated_subwords` are the same outputs joined from what is left of their subwords.
    """
    words = [collapse_repetitions(text) for text in hypotheses]
    texts = {"none": hypotheses, "words": words, "subwords": without_repeated_subwords}
    scored = {
        name: dataclasses.asdict(
            score(texts[removal], references, sources, valid, language=language, tokeniser=tokeniser)
        )
        for removal, name in VARIANTS.items()
    }
    return scored | {"sentences": len(hypotheses), "repetitions_per_100_words": repetitions(hypotheses, language)}


def grammar_validity(source: str, target: str) -> Validity:
    """The toy grammar's judgement as valid(source sentence, translation), for the direction source -> target.

    Raises ValueError for languages the grammar does not have.
    """
    if {source, target} != {"de", "en"}:
        raise ValueError(f"validity is known from de to en and from en to de, not from {source} to {target}.")
    from workflow_src.data.toy.grammar import ToyGrammar

    grammar = ToyGrammar()
    # Being translations of each other has no direction; the grammar takes the German sentence first.
    if source == "de":
        return lambda x, y: grammar.is_valid(x, y)
    return lambda x, y: grammar.is_valid(y, x)
