import hashlib
import itertools
import json
from itertools import groupby

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import fields_of

from workflow_src.config.preparation import SubwordsConfig
from workflow_src.data import segmenters, subwords
from workflow_src.data.escapes import NIBBLES
from workflow_src.data.lines import EMPTY
from workflow_src.data.subwords import Subwords
from workflow_src.errors import ArtifactError, ConfigError, InputError
from workflow_src.records.checked import other_format
from workflow_src.spec import UNK

GERMAN = """Der Hund schläft im Garten .
Die Hunde schlafen heute im großen Garten .
Gestern hat das Mädchen ein Buch gelesen .
Das Mädchen liest heute kein Buch .
Wir gehen morgen in die Schule , weil wir lernen wollen .
Ich weiß nicht , ob er <s> kommt @-@ vielleicht .
Heute lernen die Mädchen im Garten , morgen gehen die Hunde in den großen Garten .
Weil wir heute nicht in die Schule gehen , lesen wir gestern gelesene Bücher .
"""
ENGLISH = """The dog is sleeping in the garden .
The dogs are sleeping in the big garden today .
Yesterday the girl read a book .
The girl is not reading a book today .
We are going to school tomorrow because we want to learn .
I do not know whether he <s> is coming @-@ perhaps .
Today the girls are learning in the garden , tomorrow the dogs are going to the big garden .
Because we are not going to school today , we are reading the books we read yesterday .
"""
METHODS = [("sentencepiece", "unigram"), ("sentencepiece", "bpe"), ("subword-nmt", "bpe")]
SIZES = {"sentencepiece": 75, "subword-nmt": 150}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "de").write_text(GERMAN, encoding="utf-8")
    (folder / "en").write_text(ENGLISH, encoding="utf-8")
    return folder


def learn(texts, folder, method="sentencepiece", model="unigram", joint=True, size=None, **more):
    settings = SubwordsConfig(method=method, model=model, joint=joint, vocabulary_size=size or SIZES[method], **more)
    return subwords.learn(settings, texts / "de", texts / "en", folder)


@pytest.fixture(scope="module", params=[(*m, joint) for m in METHODS for joint in (True, False)], ids=str)
def learned(request, texts, tmp_path_factory):
    method, model, joint = request.param
    return learn(texts, tmp_path_factory.mktemp("made") / "subwords", method, model, joint)


def normalised(text):
    return " ".join(text.split())


characters = st.characters(exclude_categories=["Cs", "Cc"])
# Texts of any characters, and of those that subword models give a meaning of their own.
awkward = st.sampled_from([*"▁ @@ @ </w> <s> <unk> ⁇ ▅ \uf8a3 😀 👩‍🚀 日本 ß Hund e\u0301 <0x41>".split(), " "])
lines = st.one_of(st.text(characters), st.lists(st.one_of(awkward, characters), max_size=12).map("".join)).map(
    normalised
)


@given(line=lines)
def test_nothing_is_lost(learned, line):
    for encode, decode, size in (
        (learned.encode_source, learned.decode_source, learned.source_size),
        (learned.encode_target, learned.decode_target, learned.target_size),
    ):
        [ids] = encode([line])
        assert decode([ids]) == [line]
        # Neither specials (0 to 3) nor anything beyond the vocabulary.
        assert all(3 < number < size for number in ids)
        assert bool(ids) == bool(line)


@given(data=st.data())
def test_whatever_a_model_writes_can_be_read(learned, data):
    ids = data.draw(st.lists(st.integers(0, learned.target_size - 1), max_size=20))
    [text] = learned.decode_target([ids])
    assert isinstance(text, str)
    assert len(learned.pieces_target(ids)) == len(ids)


def spells(learned, number):
    """Whether a target piece holds a part of a character's bytes."""
    return any(nibble in learned.pieces_target([number])[0] for nibble in NIBBLES)


@given(line=lines, data=st.data())
def test_repeated_subwords_are_removed_and_spelt_characters_survive(learned, line, data):
    """A text whose pieces a model wrote several times over comes back, whatever its characters."""
    [ids] = learned.encode_target([line])
    assume(all(len(list(run)) == 1 or spells(learned, number) for number, run in groupby(ids)))
    times = data.draw(st.lists(st.integers(1, 3), min_size=len(ids), max_size=len(ids)))
    stuttered = [
        i
        for number, count in zip(ids, times, strict=True)
        for i in [number] * (1 if spells(learned, number) else count)
    ]
    assert learned.without_repetitions([stuttered, []]) == [ids, []]
    assert learned.decode_target(learned.without_repetitions([stuttered])) == [line]


def test_two_equal_halves_of_a_byte_are_no_repetition(learned):
    # U+2019 is E2 80 99 in UTF-8.
    [ids] = learned.encode_target(["’"])
    pieces = "".join(learned.pieces_target(ids))
    assert NIBBLES[9] * 2 in pieces.replace("@@", "")
    assert learned.decode_target(learned.without_repetitions([ids])) == ["’"]


def test_sizes_and_ids(learned):
    requested = SIZES[learned.description["method"]]
    for side, size in (("source", learned.source_size), ("target", learned.target_size)):
        # Of subword-nmt's merges, two may have the same product.
        assert requested - 5 <= size <= requested
        assert learned.description["sizes"][side] == size
    assert learned.pieces_target([0, 1, 2, 3]) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert learned.encode_source([]) == [] and learned.decode_target([]) == []
    assert learned.encode_source([""]) == [[]] and learned.decode_target([[]]) == [""]


def test_batches_encode_like_single_lines(learned):
    text_lines = [*GERMAN.splitlines(), "", "日本 😀"]
    assert learned.encode_source(text_lines) == [learned.encode_source([line])[0] for line in text_lines]
    ids = learned.encode_target(text_lines)
    assert learned.decode_target(ids) == [learned.decode_target([sentence])[0] for sentence in ids]


def test_joint_models_know_both_languages_as_one(texts, tmp_path):
    joint, separate = learn(texts, tmp_path / "joint"), learn(texts, tmp_path / "separate", joint=False)
    assert joint.joint and not separate.joint
    assert joint.encode_source(["Der Hund"]) == joint.encode_target(["Der Hund"])
    assert separate.encode_source(["Der Hund"]) != separate.encode_target(["Der Hund"])
    assert sorted(separate.description["files"]) == ["source.model", "target.model"]


@pytest.mark.parametrize(("method", "model"), METHODS)
def test_same_files_whatever_the_threads(texts, tmp_path, method, model):
    settings = SubwordsConfig(method=method, model=model, vocabulary_size=SIZES[method])
    digests = set()
    for threads in (1, 2, 3):
        segmenter = subwords.learn(settings, texts / "de", texts / "en", tmp_path / str(threads), threads)
        digests.add(json.dumps([segmenter.digest, segmenter.description["files"]]))
    assert len(digests) == 1


def test_description_has_digests_and_provenance(texts, tmp_path):
    segmenter = learn(texts, tmp_path / "s")
    description = json.loads((tmp_path / "s" / "subwords.json").read_text())
    assert description == segmenter.description
    model = (tmp_path / "s" / "joint.model").read_bytes()
    assert description["files"] == {"joint.model": hashlib.sha256(model).hexdigest()}
    assert description["provenance"]["settings"]["vocabulary_size"] == 75
    assert description["provenance"]["inputs"]["source"]["sha256"] == hashlib.sha256(GERMAN.encode()).hexdigest()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


@pytest.mark.parametrize(("method", "model"), METHODS, ids=str)
def test_words_with_the_names_of_specials_are_text(tmp_path, method, model):
    """As in corpora that another program has made: every id has a name of its own, as language models need it."""
    line = "<unk> hat <s> und </s> , <pad> nicht ; x<unk> <unk>y </s>."
    for code in ("de", "en"):
        (tmp_path / code).write_text(f"{line}\n" * 50)
    learned = learn(tmp_path, tmp_path / "subwords", method, model, size="auto")
    (ids,) = learned.encode_source([line])
    assert learned.decode_source([ids]) == [line] and min(ids) > UNK
    names = learned.names()["target"]
    assert len(set(names)) == len(names) == learned.target_size


def test_long_lines_are_learned_from(tmp_path):
    """SentencePiece by itself leaves out lines of more than 4,192 bytes."""
    for name, text in (("de", GERMAN), ("en", ENGLISH)):
        (tmp_path / name).write_text(text + "Ж " * 3000 + "\n", encoding="utf-8")
    learned = learn(tmp_path, tmp_path / "subwords")
    assert len(learned.encode_source(["Ж Ж"])[0]) <= 4


def test_a_long_repetitive_line_is_learned_from_in_pieces(tmp_path):
    """As a whole, such a line takes SentencePiece many minutes."""
    for name, text in (("de", GERMAN), ("en", ENGLISH)):
        (tmp_path / name).write_text(text + "ЖЯ" * 200_000 + "\n", encoding="utf-8")
    assert len(learn(tmp_path, tmp_path / "subwords").encode_source(["Ж"])[0]) <= 2


def test_rare_characters_are_escaped_at_lower_coverage(texts, tmp_path):
    for method, model in METHODS:
        full = learn(texts, tmp_path / "full", method, model)
        less = learn(texts, tmp_path / "less", method, model, character_coverage=0.98)
        # ü occurs once among 700 characters.
        assert len(full.encode_source(["ü"])[0]) < len(less.encode_source(["ü"])[0])
        assert less.decode_source(less.encode_source(["Bücher"])) == ["Bücher"]


@pytest.mark.parametrize(("method", "model"), METHODS)
def test_too_large_a_vocabulary_names_the_largest_which_then_works(texts, tmp_path, method, model):
    with pytest.raises(InputError, match="vocabulary_size") as refused:
        learn(texts, tmp_path / "s", method, model, size=30000)
    assert (refused.value.setting, refused.value.value) == ("recipe.subwords.vocabulary_size", 30000)
    largest = int(refused.value.allowed.removesuffix(" or less"))
    assert list(tmp_path.iterdir()) == []
    assert learn(texts, tmp_path / "s", method, model, size=largest).source_size > SIZES[method]
    with pytest.raises(InputError, match=f"is {largest + 1}: for both texts together; allowed: {largest} or less"):
        learn(texts, tmp_path / "s", method, model, size=largest + 1)
    with pytest.raises(InputError, match="is 30000: for the source text"):
        learn(texts, tmp_path / "s", method, model, joint=False, size=30000)


@pytest.mark.parametrize(("method", "model"), METHODS)
def test_too_small_a_vocabulary_names_the_smallest(texts, tmp_path, method, model):
    with pytest.raises(ConfigError) as refused:
        learn(texts, tmp_path / "s", method, model, size=30)
    assert refused.value.value == 30 and "both texts" in refused.value.problem
    needed = int(refused.value.allowed.removesuffix(" or more"))
    assert "character_coverage" in refused.value.hint
    # Nothing but characters: every word is spelt.
    spelling = learn(texts, tmp_path / "s", method, model, size=needed)
    assert spelling.decode_source(spelling.encode_source(["Der Hund"])) == ["Der Hund"]


@pytest.mark.parametrize(("method", "model"), METHODS)
def test_texts_without_words(tmp_path, method, model):
    for name in ("de", "en"):
        (tmp_path / name).write_text("\n\n")
    with pytest.raises(InputError, match=r"de and .*en has no word"):
        learn(tmp_path, tmp_path / "s", method, model)
    (tmp_path / "en").write_text("")
    with pytest.raises(InputError, match=f"en {EMPTY}"):
        learn(tmp_path, tmp_path / "s", method, model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["de", "en"]


def test_missing_damaged_and_foreign_models_are_refused(texts, tmp_path):
    folder = tmp_path / "s"
    learn(texts, folder)
    model, description = folder / "joint.model", folder / "subwords.json"
    content = model.read_bytes()
    model.write_bytes(content[:-1])
    with pytest.raises(ArtifactError, match=r"joint\.model is not .* subwords\.json"):
        Subwords.load(folder)
    model.unlink()
    with pytest.raises(ArtifactError, match=r"joint\.model .*exist"):
        Subwords.load(folder)
    description.write_text("{}")
    with pytest.raises(ArtifactError) as refused:
        Subwords.load(folder)
    fields = {"path": str(description), "problem": other_format(None, subwords.FORMAT), "fix": "learn subwords again"}
    assert fields_of(refused.value, fields) == fields
    description.unlink()
    with pytest.raises(ArtifactError, match=r"subwords\.json .*exist"):
        Subwords.load(folder)


def test_failure_keeps_the_models_that_were_there(texts, tmp_path):
    before = learn(texts, tmp_path / "s").digest
    with pytest.raises(InputError):
        learn(texts, tmp_path / "s", size=30000)
    assert Subwords.load(tmp_path / "s").digest == before
    # Learning again replaces them.
    assert learn(texts, tmp_path / "s", size=70).digest == Subwords.load(tmp_path / "s").digest != before


def test_subword_nmt_cuts_words_like_its_own_command(texts, tmp_path):
    """Against subword-nmt on the same codes, for text without unknown characters; pieces are spelt its way."""
    import io

    from subword_nmt.apply_bpe import BPE

    segmenter = learn(texts, tmp_path / "s", "subword-nmt", "bpe")
    codes = (tmp_path / "s" / "joint.codes").read_text(encoding="utf-8")
    original = BPE(io.StringIO(codes))
    for line in ENGLISH.splitlines():
        [ids] = segmenter.encode_target([line])
        assert segmenter.pieces_target(ids) == original.process_line(line).split(" ")


def test_cached_words_do_not_grow_without_end(texts, tmp_path, monkeypatch):
    learn(texts, tmp_path / "s", "subword-nmt", "bpe")
    lines = [f"{''.join(letters)} {''.join(letters[::-1])}e" for letters in itertools.product("aeinrt", repeat=4)]
    limited, unlimited = (segmenters.read_segmenter("subword-nmt", tmp_path / "s", "joint") for _ in range(2))
    expected = unlimited.encode(lines)
    monkeypatch.setattr(segmenters, "CACHED_WORDS", 50)
    assert limited.encode(lines) == expected
    assert len(limited.bpe.cache) <= 52 < len(unlimited.bpe.cache)


def test_merges_are_those_of_counting_by_hand(tmp_path):
    # ab occurs 6 times inside words and abc 5 times: a+b first, then ab + final c.
    for name in ("de", "en"):
        (tmp_path / name).write_text("abc abc\nabd\n" if name == "de" else "abc abc abc\n\n")
    base = 4 + 2 * 16 + 2 * 4
    segmenter = learn(tmp_path, tmp_path / "s", "subword-nmt", "bpe", size=base + 2)
    assert segmenter.pieces_target([base, base + 1]) == ["ab@@", "abc"]
    assert [segmenter.pieces_target(ids) for ids in segmenter.encode_target(["abc abd"])] == [["abc", "ab@@", "d"]]
