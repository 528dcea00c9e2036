"""The test of differences: against sacreBLEU, against all exchanges, its level, and its power."""

from __future__ import annotations

import functools
import itertools
import random

import numpy as np
import pytest
import sacrebleu

from workflow_src.config.metrics import Measured
from workflow_src.evaluation.metrics.sacre import measure
from workflow_src.evaluation.metrics.sacre.measure import combined_bleu as corpus_bleu
from workflow_src.evaluation.quality.metrics import sentence_counts
from workflow_src.evaluation.quality.returned import checked_counts
from workflow_src.evaluation.quality.significance import (
    PairedDifference,
    bootstrap_interval,
    paired_difference,
    randomisation_test,
)
from workflow_src.registry import metrics
from workflow_src.spec import Corpus, NoSettings, Segments, Texts

CORPUS = Corpus("de", "en")
WORDS = "the a red green house tree old man walks sees under over big small".split()


def sentences(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS, k=source.randint(5, 12))) for _ in range(count)]


def spoiled(lines: list[str], share: float, seed: int, dropped: float = 0.0) -> list[str]:
    """The lines with a share of their words replaced, and with another left out."""
    source = random.Random(seed)
    return [
        " ".join(
            source.choice(WORDS) if source.random() < share else word
            for word in line.split()
            if source.random() >= dropped
        )
        for line in lines
    ]


def statistics(lines: list[str], references: list[str], tokeniser: str) -> np.ndarray:
    texts = Texts(lines, references, (), Corpus("de", "en", tokeniser))
    return measure.bleu_segments(texts, NoSettings()).values


def sacre(lines: list[str], references: list[str]) -> float:
    return sacrebleu.BLEU().corpus_score(lines, [references]).score


@pytest.mark.parametrize(
    ("translations", "references"),
    [
        (spoiled(sentences(60, 1), 0.3, 2, 0.1), sentences(60, 1)),
        (sentences(60, 1), sentences(60, 1)),
        (["A cat, isn't it?", "", "Größe 3.5 %"], ["A cat, is it not?", "Nothing.", "Größe 3,5 %"]),
        # Orders without a match are smoothed, the second one more.
        (["a b x c d y e", "f g"], ["a b c d e", "g h f"]),
        (["a x b y c"], ["a b c d e f g h"]),
        # Too long, without a match, without a 4-gram, empty.
        (["a b c d e f g h i j"], ["a b c d e"]),
        (["x y z u v"], ["a b c d e"]),
        (["a b c"], ["a b c"]),
        ([""], ["a b c d"]),
    ],
)
def test_bleu_of_the_statistics_is_that_of_sacrebleu(translations, references):
    bleu = corpus_bleu(statistics(translations, references, "13a").sum(axis=0))
    assert bleu == pytest.approx(min(100.0, sacre(translations, references)), abs=1e-9)


def test_bleu_of_many_sums_at_once_is_that_of_each():
    """Small counts, many of them 0, which is where smoothing decides."""
    generator = np.random.default_rng(1)
    totals = np.sort(generator.integers(0, 6, (500, 4)), axis=1)[:, ::-1]
    matches = np.minimum(totals, generator.integers(0, 4, (500, 4)))
    sums = np.column_stack([generator.integers(0, 8, 500), generator.integers(1, 8, 500), matches, totals])
    by_sacrebleu = [
        sacrebleu.BLEU.compute_bleu(list(one[2:6]), list(one[6:]), one[0], one[1], smooth_method="exp").score
        for one in sums.tolist()
    ]
    assert corpus_bleu(sums.astype(float)) == pytest.approx(np.minimum(by_sacrebleu, 100), abs=1e-9)


def test_equal_and_other_outputs_at_once():
    references = sentences(100, 1)
    texts = [spoiled(references, share, seed) for share, seed in ((0.4, 2), (0.1, 3), (0.4, 2), (0.38, 4))]
    baseline, *others = (statistics(lines, references, "13a") for lines in texts)
    differences, values = randomisation_test(baseline, np.stack(others), corpus_bleu)
    assert differences == pytest.approx([sacre(lines, references) - sacre(texts[0], references) for lines in texts[1:]])
    # The smallest value that 10,000 trials can give; and none for what is the same.
    assert values[0] == 1 / 10_001 and values[1] == 1
    # What else is compared changes nothing; the other way round is the same comparison.
    assert randomisation_test(baseline, others[2][None], corpus_bleu)[1] == values[2]
    difference, value = randomisation_test(others[2], baseline[None], corpus_bleu)
    assert (difference[0], value[0]) == (pytest.approx(-differences[2]), values[2])


def sacre_of(counts: np.ndarray) -> float:
    """BLEU of counts (N, 10) by sacreBLEU: lengths of hypothesis and reference, matches and totals of four orders."""
    one = counts.sum(axis=0).astype(int).tolist()
    return sacrebleu.BLEU.compute_bleu(one[2:6], one[6:], one[0], one[1], smooth_method="exp").score


def one_difference(first, second) -> PairedDifference:
    """The difference of the first from the second in BLEU, from their counts."""
    return paired_difference(first, second, corpus_bleu)


# Pairs of systems: drawn from the same outputs; unlike ones; one of fewer words; one that differs in a twentieth of the
# sentences; one that fails in one sentence of 70; and one that fails in one of 300.
PAIRS = {
    "dealt": lambda lines, worse: (
        [pair[n % 2] for n, pair in enumerate(zip(lines, worse, strict=True))],
        [pair[1 - n % 2] for n, pair in enumerate(zip(lines, worse, strict=True))],
    ),
    "unlike": lambda lines, worse: (lines, worse),
    "short": lambda lines, _: (lines, spoiled(lines, 0.02, 8, 0.04)),
    "alike": lambda lines, worse: (
        lines,
        [b if n % 20 == 0 else a for n, (a, b) in enumerate(zip(lines, worse, strict=True))],
    ),
    "failing": lambda lines, _: (lines, ["q q" if n % 70 == 0 else line for n, line in enumerate(lines)]),
    "seldom": lambda lines, _: (lines, ["q q" if n % 300 == 0 else line for n, line in enumerate(lines)]),
}


@functools.cache
def population(pair: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the two systems of a pair in 4,000 sentences."""
    references = sentences(4000, 1)
    outputs = PAIRS[pair](spoiled(references, 0.25, 2), spoiled(references, 0.3, 3))
    return tuple(statistics(lines, references, "13a") for lines in outputs)


@pytest.mark.parametrize("pair", PAIRS)
def test_an_interval_leaves_out_the_true_difference_no_more_often_than_it_says(pair):
    """Test sets of 100 sentences from a population of 4,000, whose difference is known by sacreBLEU.

    Over 1,000 test sets, a share of 5 % has a standard error of 0.7 %, 1 % one of 0.3 %.
    """
    first, second = population(pair)
    true = sacre_of(first) - sacre_of(second)
    generator = np.random.default_rng(11)
    drawn = [generator.integers(0, len(first), 100) for _ in range(1000)]
    differences = [one_difference(first[chosen], second[chosen]) for chosen in drawn]
    for level, most in ((0.05, 0.065), (0.01, 0.018)):
        intervals = [difference.interval(level) for difference in differences]
        assert np.mean([not low - 1e-9 <= true <= high + 1e-9 for low, high in intervals]) <= most
        # At the margin, where the true loss is just too large, a row is called as good no more often than that.
        assert np.mean([low > true + 1e-9 for low, _ in intervals]) <= most / 2 + 0.008
    # Nor is it wider than it must be: of unlike systems it leaves out the difference about as often as it says.
    if pair in ("dealt", "unlike"):
        outside = [not low <= true <= high for low, high in (d.interval(0.05) for d in differences)]
        assert np.mean(outside) >= 0.02


def test_differences_are_those_of_sacrebleu_and_opposite_the_other_way_round():
    references = sentences(50, 1)
    counts = [statistics(spoiled(references, share, 3), references, "13a") for share in (0.1, 0.2, 0.2, 0.5)]
    against = [[paired_difference(row, counts[rival], corpus_bleu) for row in counts] for rival in (2, 0)]
    expected = [[sacre_of(row) - sacre_of(counts[rival]) for row in counts] for rival in (2, 0)]
    assert [[one.difference for one in row] for row in against] == [pytest.approx(row) for row in expected]
    # Equal outputs differ in no sentence that was seen; others may have been missed.
    low, high = against[0][1].interval(0.05)
    assert against[0][1].error == 0 and low == -high < 0
    forth, back = against[0][0], against[1][2]
    assert back.reversed() == forth and forth.interval(0.1) == tuple(-end for end in reversed(back.interval(0.1)))
    # A stricter level is a wider interval; one sentence is no error.
    assert forth.interval(0.01)[0] < forth.interval(0.05)[0] < forth.difference < forth.interval(0.05)[1]
    one, other = (paired_difference(count[:1], counts[0][:1], corpus_bleu) for count in counts[:2])
    assert np.isfinite([*one.interval(0.05), *other.interval(0.05)]).all()


def counts_of_figures(figures: np.ndarray):
    """Counts of sentences with these figures, and the function from their sums to the mean."""
    return checked_counts(metrics()["validity"], Segments(figures), len(figures))


def test_the_error_of_a_mean_over_sentences_is_that_of_students_formula():
    """Figures of sentences: the standard deviation of their differences over √N."""
    first, second = np.random.default_rng(3).random((2, 40))
    counts, combine = zip(*map(counts_of_figures, (first, second)), strict=True)
    comparison = paired_difference(*counts, combine[0])
    assert comparison.difference == pytest.approx((first - second).mean())
    assert comparison.error == pytest.approx((first - second).std(ddof=1) / 40**0.5)
    # A sentence that is lost takes its figure's share of the mean.
    assert comparison.sentence == pytest.approx(max(np.sqrt((v**2).mean()) for v in (first, second)) / 40)


SETTINGS = {"chrf": {"beta": 3, "word_order": 1}, "chrf++": {}, "ter": {"case_sensitive": True}}
ORACLES = {
    "bleu": sacrebleu.BLEU(),
    "chrf": sacrebleu.CHRF(word_order=1, beta=3),
    "chrf++": sacrebleu.CHRF(word_order=2),
    "ter": sacrebleu.TER(case_sensitive=True),
}


def measured(name: str) -> Measured:
    metric = metrics()[name]
    return Measured(metric, metric.settings(**SETTINGS.get(name, {})))


def counted(name: str, lines: list[str], references: list[str]):
    return sentence_counts(measured(name), Texts(lines, references, (), CORPUS))


@pytest.mark.parametrize("name", ["chrf", "chrf++", "ter"])
def test_the_figure_of_sums_is_that_of_sacrebleu(name):
    """Of a text, of each of its sentences, and of empty and wholly wrong ones."""
    references = [*sentences(30, 1), "a b", "a b", "", ""]
    lines = [*spoiled(references[:30], 0.3, 2, 0.1), "", "x y z", "a b", ""]
    counts, combine = counted(name, lines, references)
    assert combine(counts.sum(axis=0)) == pytest.approx(ORACLES[name].corpus_score(lines, [references]).score, abs=1e-9)
    single = [ORACLES[name].sentence_score(line, [ref]).score for line, ref in zip(lines, references, strict=True)]
    assert combine(counts) == pytest.approx(single, abs=1e-9)


@pytest.mark.parametrize("name", ORACLES)
def test_the_interval_is_that_of_sacrebleus_bootstrap(name, monkeypatch):
    """Its own is in single precision."""
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    references = sentences(60, 1)
    lines = spoiled(references, 0.3, 2, 0.1)
    score = ORACLES[name].corpus_score(lines, [references], n_bootstrap=400)
    low, high = bootstrap_interval(*counted(name, lines, references), samples=400)
    assert (low, high) == pytest.approx((score._mean - score._ci, score._mean + score._ci), abs=1e-3)
    assert low < score.score < high


@pytest.mark.parametrize("name", ["bleu", "chrf++", "ter"])
def test_p_values_of_any_metric_are_shares_of_all_exchanges(name):
    """Eight sentences: all 256 ways to exchange outputs, each scored by sacreBLEU."""
    references = sentences(8, 1)
    baseline, other = spoiled(references, 0.35, 2), spoiled(references, 0.25, 5, dropped=0.05)
    differences = []
    for exchanged in itertools.product((False, True), repeat=8):
        pairs = [(y, x) if swap else (x, y) for swap, x, y in zip(exchanged, baseline, other, strict=True)]
        first, second = (
            ORACLES[name].corpus_score(list(side), [references]).score for side in zip(*pairs, strict=True)
        )
        differences.append(second - first)
    _agrees([counted(name, lines, references) for lines in (baseline, other)], differences)


def test_p_values_of_figures_of_sentences_are_shares_of_all_exchanges():
    """Figures whose mean is that of the text: every exchange changes the sign of one difference."""
    generator = np.random.default_rng(3)
    baseline, other = generator.random((2, 9))
    signs = np.array(list(itertools.product((1, -1), repeat=9)))
    _agrees([*map(counts_of_figures, (baseline, other))], (signs @ (other - baseline)) / 9)


def _agrees(counted, every, trials=20_000):
    """The difference is the first of those of `every` exchange, and p their share that is as large."""
    (baseline, combine), (other, _) = counted
    exact = np.mean(np.abs(every) >= abs(every[0]) - 1e-9)
    assert 0.02 < exact < 0.98
    error = 4 * (exact * (1 - exact) / trials) ** 0.5 + 1 / trials
    difference, p = randomisation_test(baseline, other[None], combine, trials=trials)
    assert difference[0] == pytest.approx(every[0], abs=1e-9) and p[0] == pytest.approx(exact, abs=error)
