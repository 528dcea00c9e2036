"""Titles and labels that reports show, from their declarations: a test of a report stays as it is where one changes."""

from workflow_src.registry import engines, metrics, searches


def row_label(search: str, **settings) -> str:
    """What tables call a row of a search, without what a decode has of its own."""
    declared = searches()[search]
    return declared.row_label(declared.settings(**settings))


BEAM, DELTA, GREEDY, SCORE = (searches()[name].title for name in ("beam", "delta", "greedy", "score"))
BEAM_4, DELTA_1, DELTA_2 = row_label("beam", beam=4), row_label("delta", steps=1), row_label("delta", steps=2)
SCORE_1, SCORE_2, SCORE_4, SCORE_8 = (row_label("score", steps=steps) for steps in (1, 2, 4, 8))
ENERGY_1 = row_label("energy", steps=1)
BLEU, CHRF, TER, VALID = (metrics()[name].title for name in ("bleu", "chrf", "ter", "validity"))
CTRANSLATE2 = engines()["ctranslate2"].title
