"""The report's words about the corpus: what was read, left out and shared; against counts made by hand."""

from types import SimpleNamespace

from workflow_src.config.datasets import NthSplit
from workflow_src.evaluation.document import Cell
from workflow_src.evaluation.report import corpus
from workflow_src.evaluation.report.files import CorpusSummary, EncodedText

CONTENT = CorpusSummary.model_validate(
    {
        "pairs": {"dev": 500, "test": 500, "train": 12_355},
        "words": {"train": {"ro": 90_000, "en": 100_000}, "dev": {"ro": 3, "en": 4}},
        "read": {"train": 14_237},
        "dropped": {"train": {"other_translation": 800, "held_out_group": 82}},
        "found_in_train": {split: {"source": 0, "target": 0, "pair": 0} for split in ("dev", "test")},
        "split": {"method": "connected-groups", "key_language": "ro", "dev": 500, "test": 500},
    }
)


def cleaning_step(**entries) -> dict:
    """The record of a filter that read 9 lines and left out 3."""
    return {"title": "A", "read": 9, "dropped": {"far": 3}, "repaired": 0, "examples": []} | entries


def encoded(**entries) -> EncodedText:
    return EncodedText.model_validate({"pairs": 9, "max_length": 64, "dropped": {}} | entries)


def test_the_table_counts_pairs_words_and_drops_by_reason():
    assert corpus.table(CONTENT, None, {}).rows == [
        [
            "train",
            "100,000 en, 90,000 ro",
            "800 another translation kept, 82 beside a sentence of dev or test",
            "12,355",
        ],
        ["dev", "4 en, 3 ro", "none", "500"],
        ["test", "–", "none", "500"],
    ]
    assert corpus.table(CorpusSummary(), None, {}) is None


def test_inline_elements_of_translation_memories_are_counted_beside_the_pairs_left_out():
    memories = CONTENT.model_copy(update={"inline_elements": {"train": 1200, "dev": 3}})
    train, dev, test = (left_out for _, _, left_out, _ in corpus.table(memories, None, {}).rows)
    assert train.startswith("800 another translation kept, ") and train.endswith(", 1,200 inline elements")
    assert (dev, test) == ("3 inline elements", "none")


def test_text_of_one_language_has_a_row_and_its_filters_too():
    counts = CorpusSummary(
        source="ro",
        pairs={"monolingual": 5},
        words={"monolingual": {"ro": 60}},
        read={"monolingual": 9},
        dropped={"monolingual": {"cleaning": 3, "held_out": 1}},
        cleaning=[cleaning_step()],
    )
    assert corpus.table(CorpusSummary(), counts, {}).rows == [
        ["monolingual, Romanian", "60 ro", "3 in cleaning, 1 in dev or test", "5 of 9 lines"]
    ]
    selected = {"b": encoded(likelihood=cleaning_step())}
    *_, table = corpus.cleaning(CorpusSummary(cleaning=[cleaning_step()]), counts, selected, ("ro", "en"))
    assert [row[0] for row in table.rows] == ["A", "A", "A (monolingual)"]


def test_a_split_says_what_vanished_and_that_nothing_leaks():
    first, second = corpus.sentences(CONTENT, {}, {})
    assert first.startswith("Train, dev and test are split from one text. Of 14,237 pairs read, 882 are left out. ")
    assert "One translation is kept of each sentence in Romanian." in first
    assert second == "No sentence of dev or test is in train, on either side."


def test_sentences_that_are_in_train_too_are_counted():
    shared = {"dev": {"source": 0, "target": 0, "pair": 0}, "test": {"source": 37, "target": 1012, "pair": 5}}
    with_shared = CONTENT.model_copy(update={"split": None, "found_in_train": shared})
    assert corpus.sentences(with_shared, {}, {}) == [
        "Of the 500 pairs of test, 37 have a source that is also in train, 1,012 a target, and 5 both as one pair."
    ]
    every_nth = CONTENT.model_copy(update={"split": NthSplit(method="every-nth", every=23)})
    assert corpus.sentences(every_nth, {}, {})[0].startswith(
        "Dev is every 23rd pair of the text that train comes from. Of 14,237"
    )


def test_what_encoding_left_out_is_reported_for_every_training_text():
    texts = {
        "raw": encoded(pairs=9383, dropped={"source-too-long": 2000, "target-too-long": 972}),
        "likely-by-teacher": encoded(
            pairs=8000, dropped={"target-too-long": 972, "unlikely": 1383}, likelihood=cleaning_step(read=9383)
        ),
        "distilled-by-teacher": encoded(pairs=12_355),
    }
    assert corpus.sentences(CorpusSummary(), texts, {}) == [
        "Training text raw has 9,383 pairs; left out in subwords (max_length is 64): 2,000 source over max_length, "
        "972 target over max_length.",
        "Training text likely-by-teacher has the 8,000 likeliest of 9,383 pairs; left out before, in subwords "
        "(max_length is 64): 972 target over max_length.",
        "Training text distilled-by-teacher has 12,355 pairs; left out in subwords (max_length is 64): none.",
    ]


def test_systems_of_one_mixture_share_a_sentence():
    half = {"raw": {"pairs": 9383, "weight": 0.5, "pairs_an_epoch": 4691.5}}
    mixture = {"distilled-by-teacher": {"pairs": 12_355, "weight": 1.0, "pairs_an_epoch": 12_355.0}} | half
    assert corpus.sentences(CorpusSummary(), {}, {"one": mixture, "two": mixture, "three": half}) == [
        "An epoch of one, two has of each text, in pairs: distilled-by-teacher 12,355 of 12,355, raw 4,691.5 of 9,383.",
        "An epoch of three has of each text, in pairs: raw 4,691.5 of 9,383.",
    ]


def test_files_are_listed_by_the_sum_that_was_compared():
    checks = {"a": "sha256", "b": "md5", "c": "none", "d": "sha256"}
    parallel = CorpusSummary(downloads={name: {"check": check} for name, check in checks.items()})
    assert corpus.downloads(parallel, None) == "compared by SHA-256: a, d; compared by MD5: b; not compared: c"
    monolingual = CorpusSummary(downloads={"e": {"check": "md5"}})
    assert corpus.downloads(parallel, monolingual).endswith("compared by MD5: b, e; not compared: c")
    assert corpus.downloads(CONTENT, None) == ""


def test_the_table_of_cleaning_has_counts_shares_reasons_and_examples():
    left_out = {"line": 7, "reason": "far", "cause": "9 km", "source": "s", "target": "t"}
    repaired = {"line": 8, "reason": "near", "source": "a", "target": "b", "repaired": ["c", "d"]}
    step = cleaning_step(read=400, dropped={"far": 3, "near": 1}, examples=[left_out, repaired])
    idle = cleaning_step(title="B", read=0, dropped={})
    *_, table, fold = corpus.cleaning(CorpusSummary(cleaning=[step, idle]), None, {}, ("ro", "en"))
    assert table.rows == [["A", "far 3, near 1", "400", "4 (1.00 %)", "–"], ["B", "", "0", "–", "–"]]
    assert fold.title == "A: examples"
    assert fold.blocks[0].rows == [
        ["7", "far: 9 km", Cell("s", language="ro"), Cell("t", language="en")],
        ["8", "near", Cell("a → c", language="ro"), Cell("b → d", language="en")],
    ]
    assert corpus.cleaning(CONTENT, None, {}, ("ro", "en")) == []


def test_augmented_pairs_are_counted_in_sentences():
    text = encoded(augmented={"upper": 1200, "typos": 3, "too_long": 1})
    assert corpus.sentences(CorpusSummary(), {"raw+upper-0.1": text}, {})[1] == (
        "Pairs of training text raw+upper-0.1 that are changed: upper 1,200, typos 3; 1 stay, which would be too long."
    )


def test_placeholders_are_counted_in_sentences():
    counts = {"pairs": 2, "spans": 1004, "without_partner": 3}
    sentences = corpus.sentences(CorpusSummary(), {"raw": encoded(placeholders=counts)}, {})
    assert sentences[1] == "Training text raw has 2 pairs with 1,004 placeholders on both sides, 3 without partner."
    likely = encoded(placeholders=counts, likelihood=cleaning_step(read=10))
    assert corpus.sentences(CorpusSummary(), {"likely-by-a": likely}, {})[1] == (
        "Training text likely-by-a is kept of pairs, among them 2 pairs with 1,004 placeholders on both sides, 3 "
        "without partner."
    )
    rows = [SimpleNamespace(system="a", name="greedy", seed=1, split=split, quality=split) for split in ("dev", "test")]
    qualities = {"dev": {}, "test": {"placeholders": {"spans": 20, "missing": 2, "surplus": 1, "dropped": 1}}}
    assert corpus.placeholder_outcomes(rows, qualities, "dev") == []
    assert corpus.placeholder_outcomes(rows, qualities, "test") == [
        "Translations of test by a (greedy, seed 1): of 20 placeholders, 2 are missing and 1 is surplus; 1 symbol "
        "without any was dropped."
    ]


def test_the_table_has_the_pairs_that_systems_were_trained_on():
    texts = {"raw": encoded(pairs=24_053, dropped={"source-too-long": 5_418, "target-too-long": 997})}
    assert corpus.table(CONTENT, None, texts).rows[-1] == [
        "trained on: raw",
        "–",
        "5,418 source over max_length, 997 target over max_length",
        "24,053",
    ]


def test_the_summary_warns_of_text_that_looks_tokenised():
    shares = {"train": {"de": 0.98}, "test": {"de": 0.9, "en": 0.7}}
    [point] = corpus.warnings(CONTENT.model_copy(update={"looks_tokenised": shares}), {}, {}, ["test"])
    assert "de in train (98%), test (90%); en in test (70%)" in point
    assert "recipe.tokenised: {de: moses, en: moses}" in point


def test_the_summary_warns_of_training_pairs_that_are_left_out_and_of_test_pairs_in_train():
    shared = {"dev": {"source": 9, "target": 9, "pair": 9}, "test": {"source": 60, "target": 70, "pair": 50}}
    leaking = CONTENT.model_copy(update={"found_in_train": shared})
    texts = {
        "raw": encoded(pairs=977, dropped={"source-too-long": 23}),
        "few": encoded(pairs=981, dropped={"source-too-long": 19}),
        # Unlikely pairs are left out because the user asks for it.
        "likely": encoded(pairs=500, dropped={"source-too-long": 9, "unlikely": 491}),
    }
    lost, unread, repeated = corpus.warnings(leaking, texts, {"small": 100, "large": 3}, ["test"])
    assert "text raw lacks 2.3 % of its pairs" in lost and "23 source over max_length" in lost and "is 64" in lost
    assert "System small was trained without 100 pairs" in unread
    assert repeated.startswith("50 of the 500 pairs of test (10.0 %) are in train too")
    assert corpus.warnings(CONTENT, {"few": texts["few"]}, {"large": 3}, ["test"]) == []
