"""Is one row better than another? Paired bootstrap resampling (Koehn 2004), by sacreBLEU."""

from __future__ import annotations

import sacrebleu
from sacrebleu.significance import PairedTest

from workflow_src.evaluation.quality import BOOTSTRAP_SAMPLES, fixed_seed


def p_values(baseline: list[str], others: dict[str, list[str]], references: list[str]) -> dict[str, float]:
    """For each named list of translations, the p-value of its BLEU being like the baseline's, in (0, 1].

    The same resampled test sets serve all of them. With d the differences in BLEU on them, p is the share of |d| that
    lie above the mean of |d| by more than the whole set's difference. Translations equal to the baseline's have p = 1,
    where that share would be 0. Raises ValueError for numbers of lines that differ or are 0.
    """
    if not references:
        raise ValueError("there are no references to compare translations against: give at least one line.")
    for name, lines in {"the baseline": baseline, **others}.items():
        if len(lines) != len(references):
            raise ValueError(f"{name} has {len(lines)} translations for {len(references)} references.")
    if not others:
        return {}
    named = [("baseline", baseline), *((f"row {number}", lines) for number, lines in enumerate(others.values()))]
    with fixed_seed():
        test = PairedTest(named, {"BLEU": sacrebleu.BLEU()}, [references], test_type="bs", n_samples=BOOTSTRAP_SAMPLES)
        _, scores = test()
    found = [float(result.p_value) for result in scores["BLEU"][1:]]
    return {
        name: 1.0 if lines == baseline else value for (name, lines), value in zip(others.items(), found, strict=True)
    }
