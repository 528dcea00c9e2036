"""The report's words about the corpus: what was read, left out and shared; against counts made by hand."""

from types import MappingProxyType, SimpleNamespace

from workflow_src.config.datasets import NthSplit
from workflow_src.evaluation.document import Cell, Fold, Table
from workflow_src.evaluation.quality.variants import Quality
from workflow_src.evaluation.report import corpus
from workflow_src.evaluation.report.files import CleaningStep, CorpusSummary, EncodedText

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


def tables(
    counts=CONTENT, monolingual=None, texts=MappingProxyType({}), mixtures=MappingProxyType({}), outcomes=()
) -> list[list[dict[str, str]]]:
    """The tables of the section, each row by its heads; a fold's come last."""
    blocks = corpus.blocks(counts, monolingual, texts, mixtures, outcomes, ("ro", "en"))
    folded = [table for block in blocks if isinstance(block, Fold) for table in block.blocks]
    shown = [*(block for block in blocks if isinstance(block, Table)), *folded]
    return [[dict(zip(table.heads, row, strict=True)) for row in table.rows] for table in shown]


def column(head: str, **facts) -> list[str]:
    return [row[head] for row in tables(**facts)[0]]


def test_the_table_counts_pairs_words_drops_by_reason_and_sentences_in_train():
    shared = {"dev": {"source": 0, "target": 0, "pair": 0}, "test": {"source": 37, "target": 1012, "pair": 5}}
    texts = {"raw": encoded(pairs=9383, dropped={"source-too-long": 2000, "target-too-long": 972})}
    with_shared = {
        "counts": CONTENT.model_copy(update={"found_in_train": shared, "inline_elements": {"dev": 3}}),
        "texts": texts,
    }
    assert column("text", **with_shared) == ["train", "dev", "test", "trained on: raw"]
    assert column("words", **with_shared) == ["100,000 en, 90,000 ro", "4 en, 3 ro", "–", "–"]
    assert column("left out", **with_shared) == [
        "800 another translation kept, 82 beside a sentence of dev or test",
        "3 inline elements",
        "none",
        "2,000 source over max_length, 972 target over max_length",
    ]
    assert column("read", **with_shared) == ["14,237", "–", "–", "12,355"]
    assert column("pairs", **with_shared) == ["12,355", "500", "500", "9,383"]
    assert column("source in train", **with_shared) == ["–", "0", "37", "–"]
    assert column("target in train", **with_shared) == ["–", "0", "1,012", "–"]
    assert column("pair in train", **with_shared) == ["–", "0", "5", "–"]
    assert column("max_length", **with_shared) == ["–", "–", "–", "64"]
    assert tables(CorpusSummary()) == []


def test_how_a_text_was_split_is_said_below_its_table():
    def splits(content):
        blocks = corpus.blocks(content, None, {}, {}, (), ("ro", "en"))
        return next(block for block in blocks if isinstance(block, Table)).caption.notes["Splits"]

    assert "each sentence in Romanian" in splits(CONTENT)
    every_nth = CONTENT.model_copy(update={"split": NthSplit(method="every-nth", every=23)})
    assert "every 23 pairs" in splits(every_nth)


def test_text_of_one_language_has_a_row_and_its_filters_too():
    counts = CorpusSummary(
        source="ro",
        pairs={"monolingual": 5},
        words={"monolingual": {"ro": 60}},
        read={"monolingual": 9},
        dropped={"monolingual": {"cleaning": 3, "held_out": 1}},
        cleaning=[cleaning_step()],
    )
    selected = {"b": encoded(likelihood=cleaning_step())}
    (own, *_), filters = tables(CorpusSummary(cleaning=[cleaning_step()]), counts, selected)
    assert "Romanian" in own["text"] and (own["read"], own["pairs"]) == ("9", "5")
    assert own["left out"] == "3 in cleaning, 1 in dev or test"
    assert [row["filter"] for row in filters] == ["A", "A", "A (monolingual)"]


def test_mixtures_placeholders_and_augmented_pairs_are_counted():
    mixture = {"raw": {"pairs": 9383, "weight": 0.5, "pairs_an_epoch": 4691.5}}
    texts = {"raw": encoded(placeholders={"pairs": 2, "spans": 1004, "without_partner": 3}, augmented={"upper": 1200})}
    rows = [SimpleNamespace(system="a", name="greedy", seed=1, split=split, quality=split) for split in ("dev", "test")]
    qualities = {"dev": Quality(), "test": Quality(placeholders={"spans": 20, "missing": 2, "surplus": 1})}
    assert corpus.placeholder_outcomes(rows, qualities, "dev") == []
    outcomes = corpus.placeholder_outcomes(rows, qualities, "test")
    counted, mixed, replaced = tables(CONTENT, None, texts, {"one": mixture}, outcomes)
    assert counted[-1]["placeholders"] == "pairs 2, spans 1,004, without partner 3"
    assert counted[-1]["changed"] == "upper 1,200"
    assert mixed == [{"system": "one", "text": "raw", "pairs": "9,383", "pairs an epoch": "4,691.5"}]
    assert list(replaced[0].values()) == ["a, greedy, seed 1", "20", "2", "1", "0"]


def test_files_are_listed_by_the_sum_that_was_compared():
    checks = {"a": "sha256", "b": "md5", "c": "none", "d": "sha256"}
    parallel = CorpusSummary(downloads={name: {"check": check} for name, check in checks.items()})
    assert corpus.downloads(parallel, None) == "SHA-256: a, d; MD5: b; not compared: c"
    monolingual = CorpusSummary(downloads={"e": {"check": "md5"}})
    assert "MD5: b, e;" in corpus.downloads(parallel, monolingual)
    assert corpus.downloads(CONTENT, None) == ""


def test_the_table_of_cleaning_has_counts_shares_reasons_and_examples():
    left_out = {"line": 7, "reason": "far", "cause": "9 km", "source": "s", "target": "t"}
    repaired = {"line": 8, "reason": "near", "source": "a", "target": "b", "repaired": ["c", "d"]}
    step = cleaning_step(read=400, dropped={"far": 3, "near": 1}, examples=[left_out, repaired])
    idle = cleaning_step(title="B", read=0, dropped={})
    _, filters, examples = tables(
        CONTENT.model_copy(update={"cleaning": tuple(map(CleaningStep.model_validate, (step, idle)))})
    )
    assert [list(row.values()) for row in filters] == [
        ["A", "far 3, near 1", "400", "4 (1.00 %)"],
        ["B", "–", "0", "–"],
    ]
    assert [list(row.values()) for row in examples] == [
        ["7", "far: 9 km", Cell("s", language="ro"), Cell("t", language="en")],
        ["8", "near", Cell("a → c", language="ro"), Cell("b → d", language="en")],
    ]


def test_the_summary_warns_of_training_pairs_that_are_left_out_and_of_test_pairs_in_train():
    shared = {"dev": {"source": 9, "target": 9, "pair": 9}, "test": {"source": 60, "target": 70, "pair": 50}}
    leaking = CONTENT.model_copy(update={"found_in_train": shared, "looks_tokenised": {"test": {"de": 0.9}}})
    texts = {
        "raw": encoded(pairs=977, dropped={"source-too-long": 23}),
        "few": encoded(pairs=981, dropped={"source-too-long": 19}),
        # Unlikely pairs are left out because the user asks for it.
        "likely": encoded(pairs=500, dropped={"source-too-long": 9, "unlikely": 491}),
    }
    lost, unread, tokenised, repeated = corpus.warnings(leaking, texts, {"small": 100, "large": 3}, ["test"])
    assert "text raw lacks 2.3 % of its pairs" in lost and "23 source over max_length" in lost and "is 64" in lost
    assert "System small was trained without 100 pairs" in unread
    assert "de in test (90%)" in tokenised and "50 of 500 (10.0 %)" in repeated
    assert corpus.warnings(CONTENT, {"few": texts["few"]}, {"large": 3}, ["test"]) == []
