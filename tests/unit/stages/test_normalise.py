"""The normalise stage, from raw text to corpus.json."""

import hashlib
import json
import tracemalloc

import pytest

from workflow_src.stages.normalise import main

RAW = {
    "train.ro": "Şeful  ţării\n\nunu doi trei patru cinci\na\u00a0b\nunu doi trei patru cinci șase șapte\nbun\n",
    "train.en": "The country’s head\nempty side\none two\na b\none two three four five six seven\ngood\n",
    "dev.ro": "mână\nbine\n",
    "dev.en": "hand \n\u200b\n",
    "test.ro": "unu doi trei patru cinci șase\nţară\n",
    "test.en": "one  FOREIGN țară\ncountry\n",
}


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    for name, text in RAW.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def normalise(tmp_path, code=0, limits=None, **settings):
    given = {"source": "ro", "target": "en", "limits": limits or {}, "normalisation": settings}
    words = ["--settings", json.dumps(given), "--raw-folder", str(tmp_path / "raw")]
    words += ["--output-folder", str(tmp_path / "corpus")]
    if code:
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == code
        return None
    main(words)
    return json.loads((tmp_path / "corpus" / "corpus.json").read_text())


def test_texts_drops_counts_and_digests(tmp_path, raw):
    summary = normalise(tmp_path, romanian=True, lowercase=True, max_words=6, max_length_ratio=2.0)
    texts = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "corpus").iterdir()}
    assert texts.pop("corpus.json")
    assert texts == {
        "train.ro": "seful tarii\na b\nbun\n",
        "train.en": "the country’s head\na b\ngood\n",
        "dev.ro": "mana\n",
        "dev.en": "hand\n",
        "dev.reference.en": "hand\n",
        "test.ro": "unu doi trei patru cinci sase\ntara\n",
        "test.en": "one foreign țară\ncountry\n",
        "test.reference.en": "one FOREIGN țară\ncountry\n",
    }
    assert summary["pairs"] == {"train": 3, "dev": 1, "test": 2}
    assert summary["read"] == {"train": 6, "dev": 2, "test": 2}
    assert summary["dropped"] == {
        "train": {"empty": 1, "max_words": 1, "length_ratio": 1}, "dev": {"empty": 1}, "test": {"empty": 0},
    }  # fmt: skip
    assert summary["words"]["train"] == {"ro": 5, "en": 6}
    assert summary["sha256"] == {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    assert summary["normalisation"]["romanian"] is True
    assert summary["provenance"]["inputs"]["train.ro"]["path"].endswith("raw/train.ro")


def test_what_normalisation_costs_of_a_perfect_output_is_told(tmp_path, raw, capsys):
    references = ["one, two: “three”!\n", "at 10:30 <x@y.example> isn't 4 %.\n"]
    for split in ("dev", "test"):
        (raw / f"{split}.ro").write_text("unu\n" * 2)
        (raw / f"{split}.en").write_text("".join(references))
    (raw / "test.en").write_text("A line of eight words is all here\n" * 2)
    assert normalise(tmp_path, moses_tokenise=True)["round_trip_bleu"] == {"dev": 100, "test": 100}
    assert "warning" not in capsys.readouterr().err
    bleu = normalise(tmp_path, moses_tokenise=True, lowercase=True)["round_trip_bleu"]
    # Of each test line 7 of 8 words, 6 of 7 pairs, 5 of 6 triples and 4 of 5 fours are right.
    assert bleu == {"dev": pytest.approx(100), "test": pytest.approx(100 * (4 / 8) ** 0.25)}
    warning = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warning) == 1 and "BLEU 84.1 on test against themselves, and no system can" in warning[0]
    assert "references: normalised" in warning[0]
    normalised = normalise(tmp_path, moses_tokenise=True, lowercase=True, references="normalised")
    # Against the references as given it is no better; against those that are scored, nothing is lost.
    assert normalised["round_trip_bleu"] == bleu and "warning" not in capsys.readouterr().err


def test_limits_count_kept_pairs(tmp_path, raw):
    summary = normalise(tmp_path, limits={"train": 2, "test": 1})
    # One and three words, which come back as they are.
    assert summary["round_trip_bleu"] == {"dev": 100, "test": 100}
    assert summary["pairs"] == {"train": 2, "dev": 1, "test": 1}
    assert summary["dropped"]["train"]["empty"] == 1
    assert (tmp_path / "corpus/train.en").read_text() == "The country’s head\none two\n"
    assert (tmp_path / "corpus/test.reference.en").read_text() == "one FOREIGN țară\n"


def error(capsys) -> str:
    lines = capsys.readouterr().err.strip().splitlines()
    return lines[-1]


def test_bad_input_leaves_nothing_but_one_sentence(tmp_path, raw, capsys):
    (raw / "test.en").write_text("one\n")
    normalise(tmp_path, code=1)
    message = error(capsys)
    assert message.startswith("error: ") and "test.ro has 2" in message and "test.en has 1" in message
    (raw / "test.en").write_bytes(b"one\n\xff\n")
    normalise(tmp_path, code=1)
    assert "test.en is not UTF-8 in line 2, byte 5" in error(capsys)
    (raw / "test.en").write_text("\n \n")
    normalise(tmp_path, code=1)
    assert "no pair of test is left after normalisation" in error(capsys)
    (raw / "test.en").write_text("")
    normalise(tmp_path, code=1)
    assert "test.en is empty" in error(capsys)
    (raw / "test.en").unlink()
    normalise(tmp_path, code=1)
    assert "test.en does not exist" in error(capsys)
    assert list((tmp_path / "corpus").iterdir()) == []


def test_unknown_settings_are_named(tmp_path, raw, capsys):
    normalise(tmp_path, code=1, lower_case=True)
    assert 'unknown setting "lower_case"' in error(capsys) and not (tmp_path / "corpus").exists()


def test_memory_does_not_grow_with_the_corpus(tmp_path, raw):
    peaks = []
    for count in (3_000, 8_000):
        for code in ("ro", "en"):
            (raw / f"train.{code}").write_text("".join(f"{code} line {n}{' word' * 100}\n" for n in range(count)))
        tracemalloc.start()
        normalise(tmp_path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Each text of the larger corpus has 2.5 MB more.
    assert peaks[1] < peaks[0] + 500_000
