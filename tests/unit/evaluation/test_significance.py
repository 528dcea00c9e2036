from __future__ import annotations

import random

import numpy as np
import pytest
import sacrebleu

from workflow_src.evaluation.significance import p_values

WORDS = "the a red green house tree old man walks sees under over big small".split()


def sentences(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS, k=source.randint(5, 12))) for _ in range(count)]


def spoiled(lines: list[str], share: float, seed: int) -> list[str]:
    source = random.Random(seed)
    return [
        " ".join(source.choice(WORDS) if source.random() < share else word for word in line.split()) for line in lines
    ]


def test_p_values_are_those_of_resampling_done_by_hand():
    """The definition with a bootstrap of our own."""
    references = sentences(60, 1)
    baseline, other = spoiled(references, 0.30, 2), spoiled(references, 0.27, 3)
    found = p_values(baseline, {"other": other}, references)["other"]
    metric, generator = sacrebleu.BLEU(), np.random.default_rng(5)

    def bleu(lines, rows):
        return metric.corpus_score([lines[i] for i in rows], [[references[i] for i in rows]]).score

    seen = abs(bleu(other, range(60)) - bleu(baseline, range(60)))
    drawn = [generator.integers(0, 60, 60) for _ in range(400)]
    differences = np.abs([bleu(other, rows) - bleu(baseline, rows) for rows in drawn])
    by_hand = float((differences - differences.mean() > seen).mean())
    # Both are estimates; four deviations of a share over 400 draws.
    assert found == pytest.approx(by_hand, abs=4 * 0.5 / 400**0.5)


def test_a_much_better_system_is_told_from_chance_and_an_equal_one_is_not():
    references = sentences(100, 1)
    baseline = spoiled(references, 0.4, 2)
    found = p_values(baseline, {"better": spoiled(references, 0.1, 3), "same": list(baseline)}, references)
    assert found["better"] < 0.01
    assert found["same"] == 1


def test_the_result_depends_on_no_environment(monkeypatch):
    references = sentences(40, 1)
    baseline, other = spoiled(references, 0.3, 2), {"other": spoiled(references, 0.3, 3)}
    first = p_values(baseline, other, references)
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    assert p_values(baseline, other, references) == first


def test_nothing_to_compare_is_no_error_but_no_lines_are():
    assert p_values(["a"], {}, ["a"]) == {}
    with pytest.raises(ValueError, match="no references to compare"):
        p_values([], {}, [])
    with pytest.raises(ValueError, match="score-1 has 1 translations for 2 references"):
        p_values(["a", "b"], {"score-1": ["a"]}, ["a", "b"])
