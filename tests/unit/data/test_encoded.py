import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import fields_of

from workflow_src.data import encoded
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.errors import ArtifactError, InputError
from workflow_src.records.checked import other_format

SOURCES = [[5, 6, 7], [], [65535]]
TARGETS = [[9], [8, 4], []]
ENDINGS = ["json", "source.bin", "target.bin", "source.offsets.npy", "target.offsets.npy"]


@pytest.fixture
def prefix(tmp_path):
    encoded.write(tmp_path / "train", zip(SOURCES, TARGETS, strict=True), {"split": "train"})
    return tmp_path / "train"


@settings(max_examples=25)
@given(pairs=st.lists(st.tuples(*[st.lists(st.integers(0, 69999), max_size=5)] * 2), max_size=12))
def test_gives_back_what_was_written(tmp_path_factory, pairs):
    prefix = tmp_path_factory.mktemp("corpus") / "x"
    sources, targets = [s for s, _ in pairs], [t for _, t in pairs]
    encoded.write(prefix, zip(sources, targets, strict=True), {"note": "n"}, vocabulary_size=70000)
    corpus = EncodedCorpus.open(prefix)
    corpus.verify()
    assert len(corpus) == len(pairs)
    assert [corpus.source(i).tolist() for i in range(len(pairs))] == sources
    assert [corpus.target(i).tolist() for i in range(len(pairs))] == targets
    assert corpus.source_lengths.tolist() == [len(s) for s in sources]
    assert corpus.target_lengths.tolist() == [len(t) for t in targets]
    assert corpus.source_lengths.dtype == corpus.target_lengths.dtype == np.int32
    assert corpus.summary["source_tokens"] == sum(map(len, sources))
    assert corpus.summary["longest"] == max(map(len, sources + targets), default=0)
    assert corpus.summary["note"] == "n"


def test_ids_take_two_bytes_where_they_fit(tmp_path):
    for vocabulary, dtype in ((65536, np.uint16), (65537, np.int32)):
        encoded.write(tmp_path / "x", zip(SOURCES, TARGETS, strict=True), {}, vocabulary_size=vocabulary)
        assert EncodedCorpus.open(tmp_path / "x").source(0).dtype == dtype


def test_refuses_ids_that_do_not_fit_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match=r"^subword ids are from 1 to 65536; .*0 to 65535"):
        encoded.write(tmp_path / "x", [([1, 65536], [1])], {})
    with pytest.raises(InputError, match=r"^subword ids are from -1 to 4"):
        encoded.write(tmp_path / "x", [([-1, 4], [1])], {})
    assert list(tmp_path.iterdir()) == []


def test_digest_distinguishes_contents(tmp_path):
    def digest(sources, targets, vocabulary=10):
        return encoded.write(tmp_path / "x", zip(sources, targets, strict=True), {}, vocabulary)["digest"]

    base = digest([[1, 2], [3]], [[4], [5]])
    assert base == digest([[1, 2], [3]], [[4], [5]])
    digests = [digest([[1], [2, 3]], [[4], [5]]), digest([[4], [5]], [[1, 2], [3]]), digest([[1, 2], [3]], [[5], [4]])]
    assert len({base, *digests}) == 4


@pytest.mark.parametrize("ending", ENDINGS)
def test_truncated_and_missing_files_are_named(prefix, ending):
    path = prefix.parent / f"train.{ending}"
    content = path.read_bytes()
    path.write_bytes(content[: -20 if ending == "json" else -1])
    with pytest.raises(ArtifactError, match=rf"train\.{ending}"):
        EncodedCorpus.open(prefix)
    path.unlink()
    with pytest.raises(ArtifactError, match=rf"train\.{ending} .*exist"):
        EncodedCorpus.open(prefix)


def test_file_of_another_corpus_is_refused(prefix, tmp_path):
    encoded.write(tmp_path / "other", zip(SOURCES[:2], TARGETS[:2], strict=True), {})
    for ending in ENDINGS[3:]:
        content = (tmp_path / f"train.{ending}").read_bytes()
        (tmp_path / f"train.{ending}").write_bytes((tmp_path / f"other.{ending}").read_bytes())
        with pytest.raises(ArtifactError, match=rf"train\.{ending} does not .*train\.json"):
            EncodedCorpus.open(prefix)
        (tmp_path / f"train.{ending}").write_bytes(content)
    (tmp_path / "train.source.bin").write_bytes((tmp_path / "other.source.bin").read_bytes())
    with pytest.raises(ArtifactError, match=r"train\.source\.bin has 6 bytes, but by .*train\.json 8"):
        EncodedCorpus.open(prefix)


def test_description_of_something_else_is_refused(prefix):
    (prefix.parent / "train.json").write_text(json.dumps({"pairs": 3}))
    with pytest.raises(ArtifactError) as refused:
        EncodedCorpus.open(prefix)
    fields = {"path": str(prefix.parent / "train.json"), "problem": other_format(None, encoded.FORMAT)}
    assert fields_of(refused.value, fields) == fields
    (prefix.parent / "train.json").write_text(json.dumps({"pairs": 3, "format": encoded.FORMAT}))
    with pytest.raises(ArtifactError, match="lacks counts"):
        EncodedCorpus.open(prefix)


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_verify_finds_a_flipped_bit(prefix, ending):
    EncodedCorpus.open(prefix).verify()
    path = prefix.parent / f"train.{ending}"
    content = bytearray(path.read_bytes())
    content[-9 if "offsets" in ending else -1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match="is damaged"):
        EncodedCorpus.open(prefix).verify()


def test_failed_rewrite_leaves_the_old_corpus(prefix):
    def breaking():
        yield [1], [1]
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        encoded.write(prefix, breaking(), {})
    corpus = EncodedCorpus.open(prefix)
    corpus.verify()
    assert corpus.source(0).tolist() == SOURCES[0]
    assert len(list(prefix.parent.iterdir())) == len(ENDINGS)


def test_reversed_pairs_have_their_sides_exchanged(prefix):
    corpus = EncodedCorpus.open(prefix)
    exchanged = corpus.reversed()
    assert len(exchanged) == len(corpus) and exchanged.digest == corpus.digest
    for row in range(len(corpus)):
        assert exchanged.source(row).tolist() == corpus.target(row).tolist()
        assert exchanged.target(row).tolist() == corpus.source(row).tolist()
    assert exchanged.source_lengths.tolist() == corpus.target_lengths.tolist()
    assert exchanged.epoch_tokens == corpus.source_lengths.sum() + len(corpus)


@settings(max_examples=25)
@given(
    pairs=st.lists(st.tuples(*[st.lists(st.integers(0, 99), max_size=6)] * 2), min_size=1, max_size=12),
    length=st.integers(0, 7),
)
def test_a_corpus_up_to_a_length_has_the_pairs_that_are_not_longer(tmp_path_factory, pairs, length):
    prefix = tmp_path_factory.mktemp("corpus") / "x"
    encoded.write(prefix, pairs, {})
    corpus = EncodedCorpus.open(prefix)
    short = [pair for pair in pairs if max(map(len, pair)) <= length]
    part, other_order = corpus.up_to(length), corpus.reversed().up_to(length).reversed()
    for shortened in (part, other_order, corpus.up_to(length + 1).up_to(length)):
        shortened.verify()
        assert [(shortened.source(row).tolist(), shortened.target(row).tolist()) for row in range(len(part))] == short
        assert shortened.source_lengths.tolist() == [len(source) for source, _ in short]
        assert shortened.epoch_tokens == sum(len(target) + 1 for _, target in short)
        assert len(shortened.epoch_rows(1, 0)) == len(shortened) == len(short)
        ids, lengths = shortened.gather("target", np.arange(len(short))[::-1])
        assert ids.tolist() == [number for _, target in short[::-1] for number in target]
        assert lengths.tolist() == [len(target) for _, target in short[::-1]]
    # Trainings on other pairs have other states; nothing changes where all pairs stay.
    assert (part.digest == corpus.digest) == (len(short) == len(pairs))
    assert len(corpus) == len(pairs)


def test_large_corpus_is_written_and_opened_in_little_memory(tmp_path):
    rows = 100_000
    sentence = list(range(30))
    tracemalloc.start()
    encoded.write(tmp_path / "x", ((sentence, sentence) for _ in range(rows)), {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # 12 MB of ids; what may grow are lengths (4 bytes a sentence and side) and, at the end, offsets (8).
    assert peak < 7e6
    tracemalloc.start()
    corpus = EncodedCorpus.open(tmp_path / "x")
    opened = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Mapped, not read.
    assert len(corpus) == rows and opened < 1e6
