"""Quality: closed forms, independent formulas and properties."""

import math
import os

import numpy as np
import pytest
import sacrebleu
from refusals import refuses
from sacremoses import MosesTokenizer

from workflow_src.config.metrics import Measured, default_measured
from workflow_src.data.bleu import corpus_bleu
from workflow_src.errors import DeclarationError, InputError
from workflow_src.evaluation.quality import metrics
from workflow_src.evaluation.quality.significance import BOOTSTRAP_SAMPLES
from workflow_src.registry import metrics as declared
from workflow_src.spec import Corpus, Metric, NoSettings, Score, Segments, Texts

PAIRS = [
    ("the small dog sees the old house", "the small dog sees an old house"),
    ("a man sleeps in the garden today", "the man sleeps in the garden"),
    ("she reads a long book", "she reads a long book"),
    ("we drink cold water in the evening", "in the evening we drink cold water"),
] * 5

GERMAN = Corpus("de", "en")


def score(hypotheses, references, corpus=GERMAN, names=None, sources=()):
    """Entries of a quality file, of the default metrics or of those with these names."""
    measured = [Measured(declared()[name], declared()[name].settings()) for name in names or ()] or default_measured()
    return metrics.scores(measured, Texts(hypotheses, references, sources, corpus))


HYPOTHESES, REFERENCES = (list(side) for side in zip(*PAIRS, strict=True))


OTHERS = [
    [f"{line} indeed" for line in HYPOTHESES],
    [line if number % 3 else "" for number, line in enumerate(HYPOTHESES)],
]
ORACLES = {
    "bleu": sacrebleu.BLEU(),
    "bleu_intl_lowercase": sacrebleu.BLEU(tokenize="intl", lowercase=True),
    "chrf": sacrebleu.CHRF(),
    "chrf++": sacrebleu.CHRF(word_order=2),
    "ter": sacrebleu.TER(),
}


@pytest.mark.parametrize("more", [OTHERS[:1], OTHERS])
def test_several_references_count_as_in_sacrebleu(more, monkeypatch):
    texts = Texts(HYPOTHESES, REFERENCES, (), GERMAN, tuple(more))
    # What a reference lacks is no reference, which an empty one would be.
    all_references = [REFERENCES, *([line or None for line in lines] for lines in more)]
    alone = score(HYPOTHESES, REFERENCES, names=ORACLES)
    for name, oracle in ORACLES.items():
        measured = Measured(declared()[name], declared()[name].settings())
        scores = metrics.scores([measured], texts)
        expected = oracle.corpus_score(HYPOTHESES, all_references)
        assert scores[name] == pytest.approx(expected.score, abs=1e-9) and declared()[name].references == "all"
        assert scores[name] != pytest.approx(alone[name], abs=0.1), name
        if f"{name}_signature" in scores:
            signature, bootstrap = scores[f"{name}_signature"], "|bs:1000|seed:12345"
            assert signature.replace(bootstrap, "") == oracle.get_signature().format()
            assert (bootstrap in signature) == (name == "bleu")
            assert f"nrefs:{2 if len(more) == 1 else 'var'}" in signature
        if measured.metric.segments:
            counts, combine = metrics.sentence_counts(measured, texts)
            assert combine(counts.sum(axis=0)) == pytest.approx(expected.score, abs=1e-6)
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    expected = sacrebleu.BLEU().corpus_score(HYPOTHESES, all_references, n_bootstrap=BOOTSTRAP_SAMPLES)
    low, high = metrics.scores(default_measured(), texts)["bleu_ci"]
    assert (low, high) == pytest.approx((expected._mean - expected._ci, min(100, expected._mean + expected._ci)))


def test_tokenised_bleu_takes_every_reference():
    tokenise = MosesTokenizer(lang="en").tokenize
    tokens = [
        [tokenise(t, return_str=True, escape=False) for t in side] for side in (HYPOTHESES, REFERENCES, OTHERS[0])
    ]
    expected = sacrebleu.BLEU(tokenize="none", force=True).corpus_score(tokens[0], tokens[1:]).score
    texts = Texts(HYPOTHESES, REFERENCES, (), GERMAN, (OTHERS[0],))
    assert metrics.scores(default_measured(), texts)["bleu_tokenised"] == pytest.approx(expected)


def test_identical_text_is_perfect():
    scores = score(REFERENCES, REFERENCES)
    assert scores["bleu"] == pytest.approx(100) and scores["chrf"] == pytest.approx(100)
    assert scores["bleu_ci"] == pytest.approx((100, 100))
    assert scores["length_ratio"] == 1
    assert scores["validity"] is None
    assert score([f"{line} now" for line in REFERENCES[:1]], REFERENCES[:1])["length_ratio"] == 8 / 7


def test_interval_holds_the_score_and_is_reproducible_whatever_the_users_seed(monkeypatch):
    first = score(HYPOTHESES, REFERENCES)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    repeated = score(HYPOTHESES, REFERENCES)
    assert first == repeated
    assert os.environ["SACREBLEU_SEED"] == "7"
    low, high = first["bleu_ci"]
    assert low < first["bleu"] < high


def test_variants_differ_by_repetitions_only():
    stuttering = [text.replace("the", "the the") for text in REFERENCES]
    doubled = [text.replace("garden", "garden garden") for text in REFERENCES]
    variants = metrics.all_variants(default_measured(), Texts(stuttering, REFERENCES, (), Corpus("de", "en")), doubled)
    assert variants["without_repeated_words"]["bleu"] == pytest.approx(100) and variants["kept"]["bleu"] < 90
    for variant, lines in (("kept", stuttering), ("without_repeated_subwords", doubled)):
        assert variants[variant]["bleu"] == corpus_bleu(lines, REFERENCES, "13a")
        assert variants[variant]["bleu_intl_lowercase"] == corpus_bleu(lines, REFERENCES, "intl", lowercase=True)
    assert variants["sentences"] == len(REFERENCES)


ORCHARD = {"de": "Anna aß einen Apfel.", "en": "Anna ate an apple."}


@pytest.mark.parametrize(("source", "target"), [("de", "en"), ("en", "de")])
def test_validity_is_the_share_judged_valid(source, target):
    """Outputs that are no sentences of the grammar are invalid, in both directions."""
    outputs = [ORCHARD[target], "Anna Anna.", "", ORCHARD[target].replace("Anna", "Peter")]
    corpus = Corpus(source, target, generated=True)
    assert score(outputs, ["a"] * 4, corpus, sources=[ORCHARD[source]] * 4)["validity"] == 0.25


def test_bad_input_is_named():
    for references, more, subject in (
        ([], (), "the text"),
        (["a"], (), "2 translations"),
        (["a", "b"], (["a"],), "2 translations"),
    ):
        hypotheses = ["a", "b"] if references else []
        with refuses(InputError, subject=subject):
            metrics.scores(default_measured(), Texts(hypotheses, references, (), GERMAN, more))
    assert declared()["validity"].conflict(Corpus("de", "ro", generated=True), None).endswith("not from de to ro")


def test_every_metric_scores_and_what_is_uncertain_has_an_interval_within_its_bounds():
    # The first translation lacks a placeholder.
    references = [f"{line} %1" for line in REFERENCES]
    hypotheses = [HYPOTHESES[0], *(f"{line} %1" for line in HYPOTHESES[1:])]
    metrics = {name: one for name, one in declared().items() if name != "validity" and one.program is None}
    entries = score(hypotheses, references, names=metrics, sources=references)
    for name, metric in metrics.items():
        low, high = metric.bounds
        assert low <= entries[name] and (high is None or entries[name] <= high)
        assert (f"{name}_ci" in entries) == metric.uncertainty
        if metric.uncertainty:
            assert low <= entries[f"{name}_ci"][0] < entries[name] < entries[f"{name}_ci"][1]


def test_kept_placeholders_are_counted_where_source_and_reference_share_them():
    sources = ["<b>%1</b> of %1", "see http://x.org", "none", "%2"]
    references = ["<b>%1</b> from %1", "look here", "none", "%2"]
    hypotheses = ["%1 <b> %1 %1 %2", "", "%1", "%2"]
    entries = score(hypotheses, references, sources=sources, names=["kept_placeholders"])
    assert entries["kept_placeholders"] == pytest.approx(4 / 5)
    assert score(["a"], ["a"], sources=["a"], names=["kept_placeholders"])["kept_placeholders"] == 1


def test_papers_ways_of_counting_tokens_are_scored_beside():
    """Tokens split by hand with case; and international tokens without case."""
    hypotheses = ["He doesn't know the well-known man.", "The price is 5 euros (or so)."]
    references = ["He doesn't see the well-known man.", "The price is 6 Euros (or so)."]
    tokens = ["He does n't know the well-known man .", "The price is 5 euros ( or so ) ."]
    reference_tokens = ["He does n't see the well-known man .", "The price is 6 Euros ( or so ) ."]
    scores = score(hypotheses, references)
    metric = sacrebleu.BLEU(tokenize="none", force=True)
    assert scores["bleu_tokenised"] == pytest.approx(metric.corpus_score(tokens, [reference_tokens]).score)
    assert scores["bleu_intl_lowercase"] == pytest.approx(
        sacrebleu.BLEU(tokenize="intl")
        .corpus_score([t.lower() for t in hypotheses], [[t.lower() for t in references]])
        .score
    )
    assert scores["bleu_intl_lowercase"] > scores["bleu_tokenised"]


def test_the_best_of_several_is_the_one_its_reference_likes():
    worse = ["the cat", *HYPOTHESES[1:]]
    best = metrics.best_by_sentence([worse, HYPOTHESES, REFERENCES], REFERENCES, "13a")
    assert best == REFERENCES
    # The first among equals; a sentence that nothing matches still has a translation.
    assert metrics.best_by_sentence([["a b"], ["a b"], ["c"]], ["a b"], "13a") == ["a b"]
    assert metrics.best_by_sentence([["x"], ["y"]], ["a b"], "13a") == ["x"]
    assert corpus_bleu(best, REFERENCES, "13a") >= corpus_bleu(HYPOTHESES, REFERENCES, "13a")


def test_chinese_is_scored_by_its_tokeniser_and_the_signature_says_it():
    outputs, references = (
        ["我喜欢吃苹果和香蕉。", "他明天去北京开会。"],
        ["我喜欢吃苹果和梨子。", "他明天去北京开会吗。"],
    )
    scores = score(outputs, references, Corpus("en", "zh", "zh"))
    assert scores["bleu"] == sacrebleu.BLEU(trg_lang="zh").corpus_score(outputs, [references]).score
    assert "tok:zh" in scores["bleu_signature"] and scores["bleu"] > 70
    # Tokens of Moses and international ones are separated by spaces: such papers count otherwise.
    assert scores["bleu_tokenised"] is None and scores["bleu_intl_lowercase"] is None
    # A named one wins over that of the language.
    assert "tok:char" in score(outputs, references, Corpus("en", "zh", "char"))["bleu_signature"]


@pytest.mark.parametrize("line", ["The child sleeps .", "a b c d e f g", "a b c"])
def test_perfect_and_hopeless_outputs_keep_their_bounds(line):
    """Bounds of the interval, BLEU and chrF in [0, 100], with BLEU between the bounds."""
    for outputs in ([line] * 8, ["x y z v w"] * 8, [line] * 4 + ["x y z v w"] * 4):
        scores = score(outputs, [line] * 8)
        low, high = scores["bleu_ci"]
        assert 0 <= low <= scores["bleu"] <= high <= 100 and 0 <= scores["chrf"] <= 100
    perfect = score(["The child sleeps ."] * 8, ["The child sleeps ."] * 8)
    assert (perfect["bleu"], perfect["bleu_ci"], perfect["chrf"]) == (100, (100, 100), 100)


def returned(monkeypatch, **functions):
    """Entries of two sentences by BLEU and a metric in [0, 1] whose functions return these objects."""
    names = {f"a:{name}": value for name, value in functions.items()}
    original = metrics.import_object
    monkeypatch.setattr(
        metrics, "import_object", lambda name: (lambda *_: names[name]) if name in names else original(name)
    )
    mine = Metric("mine", "mine", bounds=(0, 1), **{name: f"a:{name}" for name in functions})
    measured = [default_measured()[0], Measured(mine, NoSettings())]
    return metrics.scores(measured, Texts(HYPOTHESES[:2], REFERENCES[:2], (), GERMAN))


def test_further_entries_and_rounding_are_kept(monkeypatch):
    entries = returned(monkeypatch, score=Score(1 + 1e-9, (0.5, 1), "sig", {"share": 3}))
    assert (entries["mine"], entries["mine_ci"], entries["mine_signature"], entries["share"]) == (1, (0.5, 1), "sig", 3)
    assert returned(monkeypatch, segments=Segments(np.array([1, 0])))["mine"] == 0.5


def first(sums):
    return sums[..., 0]


@pytest.mark.parametrize(
    ("functions", "problem"),
    [
        ({"segments": None}, "returns None as segments"),
        ({"segments": Segments(["a", "b"])}, "returns segments that are no numbers"),
        ({"segments": Segments(np.ones(3))}, r"returns segments of shape \(3,\)"),
        ({"segments": Segments(np.ones((2, 2)))}, r"returns segments of shape \(2, 2\)"),
        ({"segments": Segments(np.ones(2), first)}, r"returns segments of shape \(2,\)"),
        ({"segments": Segments(np.array([1, math.nan]))}, "returns nan for sentence 2"),
        ({"segments": Segments(np.array([[1], [math.inf]]), first)}, r"returns \[inf\] for sentence 2"),
        ({"segments": Segments(np.array([2, 1.0]))}, "returns the figure 1.5, outside of its bounds"),
        ({"segments": Segments(np.ones((2, 1)), lambda sums: sums[..., 0] * math.nan)}, "returns the figure nan"),
        ({"score": None}, "returns None as score"),
        ({"score": Score(math.nan)}, "returns the figure nan"),
        ({"score": Score("1")}, "returns the figure '1'"),
        ({"score": Score(-0.1)}, "returns the figure -0.1, outside of its bounds"),
        ({"score": Score(0.5, (0.6, 0.4))}, "returns the interval"),
        ({"score": Score(0.5, 0.4)}, "returns the interval 0.4"),
        ({"score": Score(0.5, (0, 1), 5)}, "returns the signature 5"),
        ({"score": Score(0.5, (0, 1), more=5)}, "returns 5 as more"),
        *(
            ({"score": Score(0.5, (0, 1), more={key: 0})}, f"returns more with {key!r}")
            for key in ("bleu", "bleu_ci", "length_ratio", "mine", "ter_signature", 5)
        ),
    ],
)
def test_what_a_metric_returns_is_checked(monkeypatch, functions, problem):
    with pytest.raises(DeclarationError, match=f'^metric "mine" {problem}'):
        returned(monkeypatch, **functions)
