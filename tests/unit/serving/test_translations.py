"""Hypotheses of lines from those of their sentences, against all combinations; and how they are written."""

from __future__ import annotations

import itertools
import json
import math
import random
import time

import pytest

from workflow_src.serving.sentences import Part
from workflow_src.serving.translations import (
    Hypothesis,
    Translation,
    distinct,
    json_line,
    of_line,
    of_lines,
    text_lines,
)


def sentence(number: int, scores: list[float]) -> Translation:
    hypotheses = [
        Hypothesis(f"s{number}h{place}", score, (f"{place}",), (place % 2,)) for place, score in enumerate(scores)
    ]
    return Translation(tuple(hypotheses), (f"s{number}", "</s>"))


@pytest.mark.parametrize("seed", range(20))
def test_the_best_of_a_line_are_the_combinations_with_the_largest_sums(seed):
    draw = random.Random(seed)
    scores = [sorted((-draw.random() for _ in range(draw.randint(1, 4))), reverse=True) for _ in range(4)]
    sentences = [sentence(number, sentence_scores) for number, sentence_scores in enumerate(scores)]
    combinations = sorted(
        (
            (sum(part.score for part in chosen), chosen)
            for chosen in itertools.product(*(s.hypotheses for s in sentences))
        ),
        key=lambda pair: -pair[0],
    )
    for count in (1, 3, 500):
        line = of_line(sentences, ["", " ", "\t", " "], count)
        assert len(line.hypotheses) == min(count, len(combinations))
        for hypothesis, (total, chosen) in zip(line.hypotheses, combinations, strict=False):
            assert hypothesis.score == pytest.approx(total) and hypothesis.text.split() == [
                part.text for part in chosen
            ]
        assert line.text == "s0h0 s1h0\ts2h0 s3h0" and line.score == pytest.approx(
            sum(sentence_scores[0] for sentence_scores in scores)
        )


def test_origins_of_a_line_count_from_its_first_subword():
    line = of_line([sentence(0, [-1.0, -2.0]), sentence(1, [-1.0, -9.0])], ["", " "], 2)
    assert line.source == ("s0", "</s>", "s1", "</s>")
    assert [(hypothesis.subwords, hypothesis.origins) for hypothesis in line.hypotheses] == [
        (("0", "0"), (0, 2)),
        (("1", "0"), (1, 2)),
    ]
    without = Translation((Hypothesis("x", -1.0),), ("x",))
    assert of_line([sentence(0, [-1.0]), without], ["", ""], 1).hypotheses[0].origins is None


def test_equal_sums_keep_the_order_and_equal_texts_are_one():
    flat = [sentence(number, [-1.0] * 3) for number in range(3)]
    assert of_line(flat, ["", " ", " "], 1).text == "s0h0 s1h0 s2h0"
    hypotheses = [Hypothesis("a", -1.0), Hypothesis("b", -2.0), Hypothesis("a", -3.0), Hypothesis("c", -math.inf)]
    assert distinct(hypotheses) == hypotheses[:2]
    # The first hypothesis always stays.
    assert distinct(hypotheses[3:]) == hypotheses[3:]


def test_a_line_of_many_sentences_is_joined_at_once():
    count = 40_000
    sentences, began = [sentence(number, [-1.0, -2.0]) for number in range(count)], time.process_time()
    line = of_line(sentences, [" "] * count, 3)
    assert line.score == -count and len(line.hypotheses) == 3 and line.text.count(" ") == count - 1
    # A third of a second; ten and more where each sentence copies the choices of all before it.
    assert time.process_time() - began < 4


def test_lines_have_the_parts_of_their_number():
    parts = [Part(0, "", "x"), Part(1, "", "x"), Part(1, " ", "x"), Part(2, "", "")]
    lines = of_lines([sentence(number, [-1.0, -2.0, -3.0]) for number in range(4)], parts, ["", "", " ", ""], 2)
    assert [line.text for line in lines] == ["s0h0", "s1h0 s2h0", "s3h0"]
    assert [len(line.hypotheses) for line in lines] == [2, 2, 2]


def test_written_forms():
    line = sentence(0, [-1.0, -2.5])
    assert list(text_lines(7, line, False, False)) == ["s0h0", "s0h1"]
    assert list(text_lines(7, line, True, True)) == ["7\t-1.000000\ts0h0", "7\t-2.500000\ts0h1"]
    # White space of a source line is in its translation, and no column nor line of its own.
    odd = Translation((Hypothesis("a\tb\rc\u2028d", -1.0, (), None),), ())
    assert list(text_lines(7, odd, False, True)) == ["-1.000000\ta b c d"]
    content = json.loads(json_line(line))
    assert content == {
        "text": "s0h0",
        "score": -1.0,
        "source": ["s0", "</s>"],
        "hypotheses": [
            {"text": "s0h0", "score": -1.0, "subwords": ["0"], "origins": [0]},
            {"text": "s0h1", "score": -2.5, "subwords": ["1"], "origins": [1]},
        ],
    }
    plain = json.loads(json_line(Translation((Hypothesis("ä", -math.inf),))))
    assert plain["score"] is None and "origins" not in plain["hypotheses"][0]
