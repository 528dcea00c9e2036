"""N-gram models against counting with dictionaries, and against irstlm's perplexity where that is installed."""

from __future__ import annotations

import collections
import gzip
import itertools
import math
import random
from fractions import Fraction as F

import irstlm
import numpy as np
import pytest

from workflow_src.decoding.arpa import read_arpa, write_arpa
from workflow_src.decoding.ngram import _discounts, estimate
from workflow_src.errors import ArtifactError, InputError
from workflow_src.types import BOS, EOS, UNK

SIZE = 12
PIECES = [f"w{i}" for i in range(SIZE)]
IDS = {f"w{i}": i for i in range(4, SIZE)}


def text(sentences: int = 80, seed: int = 1) -> list[tuple[int, ...]]:
    generator = random.Random(seed)
    return [
        tuple(generator.choices(range(4, SIZE), [8, 7, 5, 3, 2, 1, 1, 1], k=generator.randint(0, 7)))
        for _ in range(sentences)
    ]


def counted(sentences, order: int):
    tokens = np.array([word for sentence in sentences for word in sentence])
    return estimate(tokens, np.cumsum([0, *map(len, sentences)]), SIZE, order)


def by_dictionaries(sentences, order: int):
    """p(word | history) by the formula, with nothing but counts of tuples."""
    counts = [collections.Counter() for _ in range(order + 1)]
    for sentence in sentences:
        marked = (BOS, *sentence, EOS)
        for n in range(1, order + 1):
            counts[n].update(marked[i : i + n] for i in range(len(marked) - n + 1))
    predecessors = collections.defaultdict(set)
    for n in range(2, order + 1):
        for gram in counts[n]:
            predecessors[gram[1:]].add(gram[0])
    adjusted = {order: dict(counts[order])}
    for n in range(1, order):
        adjusted[n] = {g: c if g[0] == BOS else len(predecessors[g]) for g, c in counts[n].items()}
    adjusted[1] = {g: c for g, c in adjusted[1].items() if g != (BOS,)}

    def discount(n: int, count: int) -> float:
        counts_of_counts = collections.Counter(adjusted[n].values())
        if not all(counts_of_counts[i] for i in (1, 2, 3)):
            return min(count, 3) * 0.5
        share = counts_of_counts[1] / (counts_of_counts[1] + 2 * counts_of_counts[2])
        discounts = [i - (i + 1) * share * counts_of_counts[i + 1] / counts_of_counts[i] for i in (1, 2, 3)]
        return (
            discounts[min(count, 3) - 1] if all(0 < d <= i for i, d in enumerate(discounts, 1)) else min(count, 3) * 0.5
        )

    def probability(history: tuple[int, ...], word: int) -> float:
        shorter = probability(history[1:], word) if history else 1 / (SIZE - 2)
        n = len(history) + 1
        follow = {g: c for g, c in adjusted[n].items() if g[:-1] == history}
        total = sum(follow.values())
        if not total:
            return shorter
        backoff = sum(discount(n, c) for c in follow.values()) / total
        count = follow.get((*history, word), 0)
        return (max(count - discount(n, count), 0) if count else 0) / total + backoff * shorter

    return probability


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities_are_those_of_counting_with_dictionaries(order):
    sentences = text()
    model, probability = counted(sentences, order), by_dictionaries(sentences, order)
    for history in [(BOS,), (BOS, 5), (BOS, 4, 5, 4), (BOS, 11, 11), (BOS, 9, 10, 6)]:
        state = model.start
        for word in history[1:]:
            state = model.step(state, word)[1]
        probabilities = {word: math.exp(model.step(state, word)[0]) for word in range(2, SIZE)}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-12)
        for word, value in probabilities.items():
            assert value == pytest.approx(
                probability(history[len(history) - order + 1 :] if order > 1 else (), word), abs=1e-12
            )


def test_a_small_text_has_the_probabilities_worked_out_by_hand():
    """Bigrams of 4 x "a b", 3 x "a c", 2 x "a d", "b c", "c" and 3 x "e", in fractions.

    Bigrams: n1..n4 = 3, 2, 3, 2, so D1 = 3/7, D2 = 1/14, D3 = 13/7. Words stand after 1 (a, d, e), 2 (b), 3 (c) and 4
    (the end) different words, 12 in all: n1..n4 = 3, 1, 1, 1, so D1 = 3/5, D2 = 1/5, D3 = 3/5. V = 7 with the end and
    the unknown word.
    """
    a, b, c, d, e = range(4, 9)
    sentences = [(a, b)] * 4 + [(a, c)] * 3 + [(a, d)] * 2 + [(b, c), (c,)] + [(e,)] * 3
    model = estimate(np.array([w for s in sentences for w in s]), np.cumsum([0, *map(len, sentences)]), 9, 2)
    alone = {c: F(5, 21), b: F(79, 420), EOS: F(9, 28), UNK: F(4, 105)}
    for word, expected in alone.items():
        assert math.exp(model.tables[0].logp[word]) == pytest.approx(float(expected), abs=1e-12)
    backoffs = {a: F(53, 126), b: F(16, 35), d: F(1, 28)}
    for word, expected in backoffs.items():
        assert math.exp(model.tables[0].backoff[word]) == pytest.approx(float(expected), abs=1e-12)
    after = {
        (a, c): F(8, 63) + backoffs[a] * alone[c],
        (a, UNK): backoffs[a] * alone[UNK],
        (b, b): backoffs[b] * alone[b],
        (d, EOS): F(27, 28) + backoffs[d] * alone[EOS],
        # After an unknown word there are no counts.
        (UNK, c): alone[c],
    }
    for (context, word), expected in after.items():
        assert math.exp(model.step((1, context), word)[0]) == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("number", "discounts"),
    [
        ((213, 61, 21, 12), (0.635821, 1.34333, 1.5467)),
        ((182, 30, 10, 3), (0.752066, 1.24793, 2.09752)),
        ((117, 18, 5, 3), (0.764706, 1.36275, 1.16471)),
    ],
)
def test_discounts_are_those_that_irstlm_prints(number, discounts):
    """irstlm 6.00.05 (`tlm -lm=msb -ps=no -n=2`) prints n1 to n4 of bigrams and the discounts made of them."""
    counts = np.repeat([1, 2, 3, 4], number)
    assert _discounts(counts)[1:] == pytest.approx(discounts, rel=1e-5)


def test_a_sentence_is_as_probable_as_its_words_in_turn():
    model, probability = counted(text(), 3), by_dictionaries(text(), 3)
    words = (BOS, 4, 5, 5, 9, EOS)
    total = sum(math.log(probability(words[max(0, i - 2) : i], words[i])) for i in range(1, len(words)))
    assert model.log_probability(words[1:-1]) == pytest.approx(total, abs=1e-10)
    assert model.perplexity([words[1:-1]]) == pytest.approx(math.exp(-total / 5), abs=1e-10)


def test_arpa_files_keep_every_probability(tmp_path):
    model = counted(text(), 4)
    write_arpa(model, tmp_path / "model.arpa", PIECES)
    (tmp_path / "model.arpa.gz").write_bytes(gzip.compress((tmp_path / "model.arpa").read_bytes()))
    for name in ("model.arpa", "model.arpa.gz"):
        read = read_arpa(tmp_path / name, IDS, SIZE)
        assert read.left_out == 0 and read.absent == ()
        for sentence in text(20, seed=2):
            assert read.model.log_probability(sentence) == pytest.approx(model.log_probability(sentence), abs=1e-7)


def test_words_that_the_subwords_lack_are_left_out_of_a_file(tmp_path):
    write_arpa(counted(text(), 2), tmp_path / "model.arpa", PIECES)
    fewer = {word: i for word, i in IDS.items() if i != 6}
    read = read_arpa(tmp_path / "model.arpa", fewer, SIZE)
    lines = (tmp_path / "model.arpa").read_text(encoding="utf-8").splitlines()
    assert read.left_out == sum("w6" in line for line in lines) > 0
    # As probable as an unknown word.
    unknown = next(float(line.split("\t")[0]) for line in lines if "\t<unk>" in line)
    assert read.model.step((0, 0), 6)[0] == pytest.approx(unknown * math.log(10), rel=1e-6)


def arpa_text(grams: dict[tuple[str, ...], tuple[float, float]]) -> str:
    """A file with log10 p and log10 back-off weights of n-grams."""
    longest = max(map(len, grams))
    text = "\\data\\\n" + "".join(f"ngram {n}={sum(len(g) == n for g in grams)}\n" for n in range(1, longest + 1))
    for n in range(1, longest + 1):
        text += f"\n\\{n}-grams:\n"
        for gram, (value, weight) in grams.items():
            if len(gram) == n:
                text += f"{value!r}\t{' '.join(gram)}" + (f"\t{weight!r}\n" if n < longest else "\n")
    return text + "\n\\end\\\n"


def by_the_file(grams: dict[tuple[str, ...], tuple[float, float]], words: list[str]) -> float:
    """log p of a sentence by the definition of back-off, from the entries of a file alone."""
    longest = max(map(len, grams))

    def probability(context: tuple[str, ...], word: str) -> float:
        if (*context, word) in grams:
            return grams[(*context, word)][0]
        return grams.get(context, (0.0, 0.0))[1] + probability(context[1:], word)

    marked = ["<s>", *words, "</s>"]
    places = range(1, len(marked))
    return sum(probability(tuple(marked[max(0, i - longest + 1) : i]), marked[i]) for i in places) * math.log(10)


@pytest.mark.parametrize("seed", range(6))
def test_a_pruned_file_keeps_its_probabilities(tmp_path, seed):
    """Entropy pruning leaves n-grams without their suffix; here beginnings are missing too."""
    generator = random.Random(seed)
    words = [PIECES[i] for i in range(4, 9)]
    grams = {(word,): (-generator.random() - 0.5, -generator.random()) for word in ("<s>", "</s>", "<unk>", *words)}
    for n, share in ((2, 0.3), (3, 0.2), (4, 0.1)):
        for start in ("<s>", *words):
            for others in itertools.product(words, repeat=n - 1):
                if generator.random() < share:
                    grams[(start, *others)] = (-generator.random(), -generator.random())
                    grams[(*others, "</s>")] = (-generator.random(), 0.0)
    inner = [gram for gram in grams if len(gram) > 2]
    assert any(gram[1:] not in grams for gram in inner) and any(gram[:-1] not in grams for gram in inner)
    (tmp_path / "pruned.arpa").write_text(arpa_text(grams), encoding="utf-8")
    arpa = read_arpa(tmp_path / "pruned.arpa", IDS, SIZE)
    assert arpa.left_out == 0 and arpa.absent == ()
    sentences = [generator.choices(words, k=generator.randint(0, 9)) for _ in range(200)]
    for sentence in sentences:
        ids = [IDS[word] for word in sentence]
        assert arpa.model.log_probability(ids) == pytest.approx(by_the_file(grams, sentence), abs=1e-11)
    # And written again, with the added n-grams.
    write_arpa(arpa.model, tmp_path / "again.arpa", PIECES)
    read = read_arpa(tmp_path / "again.arpa", IDS, SIZE).model
    for sentence in sentences[:20]:
        ids = [IDS[word] for word in sentence]
        assert read.log_probability(ids) == pytest.approx(by_the_file(grams, sentence), abs=1e-6)


def test_what_a_file_without_an_unknown_word_lacks_has_kenlms_probability(tmp_path):
    lines = ["\\data\\", "ngram 1=3", "", "\\1-grams:", "-0.5 w4", "-0.25 </s>", "-99 <s>", "", "\\end\\"]
    (tmp_path / "model.arpa").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arpa = read_arpa(tmp_path / "model.arpa", IDS, SIZE)
    assert arpa.absent == tuple(range(5, SIZE))
    assert arpa.model.log_probability([4, 7]) == pytest.approx((-0.5 - 100 - 0.25) * math.log(10))
    lines[1:2], lines[4:4] = ["ngram 1=4"], ["-2 <unk>"]
    (tmp_path / "model.arpa").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arpa = read_arpa(tmp_path / "model.arpa", IDS, SIZE)
    assert arpa.absent == () and arpa.model.log_probability([4, 7]) == pytest.approx(-2.75 * math.log(10))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no model\n",
        "\\data\\\nngram 1=1\n\n\\1-grams:\n-1 a b c\n\\end\\\n",
        "\\2-grams:\n-1 w4 w5\n\\end\\\n",
        "\\data\\\nngram 1=1\n\n\\1-grams:\nnan w4\n\\end\\\n",
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content):
    (tmp_path / "model.arpa").write_text(content, encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"model.arpa"):
        read_arpa(tmp_path / "model.arpa", IDS, SIZE)


WHOLE = "\\data\\\nngram 1=3\nngram 2=1\n\n\\1-grams:\n-1 w4 0\n-1 w5 0\n-1 </s>\n\n\\2-grams:\n-1 w4 w5\n\n\\end\\\n"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("\n\\end\\\n", "", "model.arpa has no \\end\\: it was cut off"),
        ("-1 </s>\n\n\\2-grams:\n-1 w4 w5\n\n\\end\\\n", "", "has no \\end\\"),
        ("-1 w5 0\n", "", "says under \\data\\ that it has 3 1-grams, and has 2: it was cut off or changed"),
        ("\\2-grams:\n-1 w4 w5\n", "", "that it has 1 2-grams, and has 0:"),
        ("ngram 2=1\n", "", "that it has 0 2-grams, and has 1:"),
        # A word that the vocabulary lacks counts.
        ("-1 w5 0\n", "-1 unheard 0\n-1 w5 0\n", "it has 3 1-grams, and has 4:"),
        ("-1 w4 0\n", "-1 w4 inf\n", "line 6, has the back-off weight inf of 'w4'"),
        ("-1 w4 0\n", "-1 w4 -inf\n", "back-off weight -inf of 'w4'"),
        ("-1 w4 0\n", "inf w4 0\n", "line 6, has the probability 10^inf of 'w4'"),
        ("-1 w4 0\n", "0.4 w4 0\n", "line 6, has the probability 10^0.4 of 'w4'"),
        ("-1 w4 w5\n", "0.01 w4 w5\n", "line 11, has the probability 10^0.01 of 'w4 w5'"),
    ],
)
def test_a_file_that_is_cut_off_or_has_impossible_weights_is_refused(tmp_path, before, after, sentence):
    (tmp_path / "model.arpa").write_text(WHOLE, encoding="utf-8")
    assert read_arpa(tmp_path / "model.arpa", IDS, SIZE).model.order == 2
    assert before in WHOLE
    (tmp_path / "model.arpa").write_text(WHOLE.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(ArtifactError) as refused:
        read_arpa(tmp_path / "model.arpa", IDS, SIZE)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_rounding_makes_no_probability_above_1(tmp_path):
    (tmp_path / "model.arpa").write_text(WHOLE.replace("-1 w4 0\n", "1e-6 w4 0\n"), encoding="utf-8")
    assert read_arpa(tmp_path / "model.arpa", IDS, SIZE).model.step((0, 0), 4)[0] == 0.0


def test_a_probability_of_0_is_the_least_there_is(tmp_path):
    (tmp_path / "model.arpa").write_text(WHOLE.replace("-1 w4 0\n", "-inf w4 0\n"), encoding="utf-8")
    arpa = read_arpa(tmp_path / "model.arpa", IDS, SIZE)
    assert arpa.model.step((0, 0), 4)[0] == pytest.approx(-100 * math.log(10))


def test_a_gzipped_file_that_is_damaged_is_refused(tmp_path):
    write_arpa(counted(text(), 3), tmp_path / "model.arpa.gz", PIECES)
    valid = (tmp_path / "model.arpa.gz").read_bytes()
    middle = len(valid) // 2
    wrong_checksum = valid[:-8] + bytes(4) + valid[-4:]
    for content in (valid[:middle], valid[:-4], wrong_checksum, b"no gzip"):
        (tmp_path / "model.arpa.gz").write_bytes(content)
        with pytest.raises(ArtifactError, match=r"model\.arpa\.gz .* whole gzipped file; "):
            read_arpa(tmp_path / "model.arpa.gz", IDS, SIZE)
    # A wrong line before the checksum is reported first.
    (tmp_path / "model.arpa.gz").write_bytes(valid[:middle] + bytes(8) + valid[middle + 8 :])
    with pytest.raises(ArtifactError):
        read_arpa(tmp_path / "model.arpa.gz", IDS, SIZE)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "model.arpa").write_bytes(b"\\1-grams:\n\xff\xfe\n")
    with pytest.raises(ArtifactError, match=r"model\.arpa is no text .*UTF-8"):
        read_arpa(tmp_path / "model.arpa", IDS, SIZE)


def test_fields_may_be_parted_by_any_blanks(tmp_path):
    lines = ["\\data\\", "ngram 1=3", "", "\\1-grams:", "-0.5 w4 -0.25", "-0.25\t</s>\t", "-1   w5", "", "\\end\\"]
    (tmp_path / "model.arpa").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arpa = read_arpa(tmp_path / "model.arpa", IDS, SIZE)
    assert arpa.left_out == 0
    assert arpa.model.log_probability([4, 5]) == pytest.approx(-1.75 * math.log(10))


def test_without_text_there_is_no_model():
    with pytest.raises(InputError) as refused:
        counted([], 3)
    assert refused.value.subject == "the training text"


@irstlm.installed
def test_perplexity_is_that_of_irstlm(tmp_path):
    model, test = counted(text(300), 4), text(400, seed=7)
    write_arpa(model, tmp_path / "model.arpa", PIECES)
    expected = irstlm.perplexity(tmp_path / "model.arpa", [[PIECES[word] for word in sentence] for sentence in test])
    assert model.perplexity(test) == pytest.approx(expected, abs=0.006)


def test_a_language_model_keeps_nothing_of_what_it_is_asked():
    """Searches cache its results; a second cache here would grow too."""
    text = np.arange(4, 16)
    model = estimate(text, np.array([0, 6, 12]), 20, 3)

    def sizes() -> dict[str, int]:
        return {name: len(value) for name, value in vars(model).items() if hasattr(value, "__len__")}

    sizes_before = sizes()
    model.log_probability(text.tolist())
    assert sizes() == sizes_before
