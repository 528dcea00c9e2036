"""Whatever a line holds, it is translated: from the bytes of a file to the line that is written."""

from __future__ import annotations

import json

import pytest
import sentencex
from hypothesis import example, given, settings, strategies

from workflow_src import cli
from workflow_src.config.preparation import NormalisationConfig, SubwordsConfig
from workflow_src.data import subwords
from workflow_src.data.normalise import Normaliser, clean
from workflow_src.serving.sentences import split_lines
from workflow_src.serving.translator import Translator
from workflow_src.types import Hypotheses

# Characters that libraries treat in a way of their own: white space, marks, signs of subword models, parts of tags.
SIGNS = (
    "aZß İ\u0301.!?。…,:;'\"@|<>/&#%{}[]()*-–_^$\\0129٣½\t\r\x0b\x0c\x1c\x1e\x85\xa0\u2003\u2028\u2029\u3000\u200b"
    "\u200d\ufeff\x00\x7f\u2581\u2585\uf8a0\uf8b0\uffed\ufffd中か한अДא😀👨\U0001f1e6\U000e0041\U0010ffff"
)
CHARACTERS = strategies.one_of(strategies.sampled_from(SIGNS), strategies.characters(exclude_categories=["Cs"]))
LINES = strategies.lists(CHARACTERS, max_size=30).map("".join).filter(lambda line: "\n" not in line)
NO_BREAK_SPACE = "Vitamin C\xa0. Gut. Teil A\u3000。 Nous B\u202f! D\x85."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


@pytest.mark.parametrize("family", ["transformer", "lvm"])
@given(lines=strategies.lists(LINES, max_size=4))
@example(lines=[NO_BREAK_SPACE, "", "\x00"])
@settings(max_examples=25)
def test_the_command_writes_a_line_for_every_line(tiny_bundles, folder, family, lines):
    source, output = folder / "lines.de", folder / "lines.en"
    source.write_bytes("".join(f"{line}\n" for line in lines).encode())
    words = ["--bundle", str(tiny_bundles[family]), "--device", "cpu", "--engine", "eager"]
    cli.main(["translate", *words, "--output-format", "jsonl", "--input", str(source), "--output", str(output)])
    written = output.read_bytes().decode().removesuffix("\n").split("\n") if lines else []
    assert len(written) == len(lines)
    assert all("\n" not in json.loads(line)["text"] for line in written)


class Repeating(Translator):
    """Translates by repeating the source."""

    longest_source = 399

    def search_ids(self, sources, *_):
        return Hypotheses([list(source) for source in sources], [0.0] * len(sources), [0] * len(sources))


SENTENCE_PIECE = SubwordsConfig(joint=True, vocabulary_size="auto")
SUBWORD_NMT = SubwordsConfig(joint=True, vocabulary_size="auto", method="subword-nmt", model="bpe")
KINDS = {
    "SentencePiece": (SENTENCE_PIECE, NormalisationConfig(), ()),
    "placeholders": (SENTENCE_PIECE, NormalisationConfig(), ("tags", "urls", "entities", "variables")),
    "unknown": (SUBWORD_NMT, NormalisationConfig(), ("unknown",)),
    "subword-nmt": (SUBWORD_NMT, NormalisationConfig(unicode="NFKC"), ()),
    "Moses": (
        SUBWORD_NMT,
        NormalisationConfig(moses_punctuation=True, moses_tokenise=True, lowercase=True),
        ("tags", "emails"),
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def repeating(request, tiny, tiny_bundles, folder):
    subword_settings, normalisation, placeholders = KINDS[request.param]
    text = tiny.corpus / "train.de"
    learned = subwords.learn(subword_settings, text, text, folder / request.param, placeholders=placeholders)
    plain = Translator.load(tiny_bundles["transformer"], device="cpu", threads=1, engine="eager")
    description = plain.description.model_copy(update={"normalisation": normalisation})
    translator = Repeating(description, plain.models, learned, plain.runtime)
    return translator, Normaliser(normalisation, "de", placeholders), Normaliser(normalisation, "en", placeholders)


@given(line=LINES)
@example(line=NO_BREAK_SPACE)
def test_a_repeated_line_loses_nothing(repeating, line):
    translator, source, target = repeating
    (whole,), (sentences,) = (translator.translate([line], search="greedy", split=split) for split in (False, True))
    assert whole == target.detokenise(source.line(line))
    # Other normalisation may change the end of a sentence by what follows it.
    if translator.description.normalisation == NormalisationConfig():
        assert list(filter(str.isalnum, sentences)) == list(filter(str.isalnum, clean(line)))


def test_a_panic_of_the_splitter_leaves_the_line_whole(monkeypatch):
    panic = type("PanicException", (BaseException,), {})

    def segment(_language, text):
        raise (panic if "Eins" in text else KeyboardInterrupt)("no char boundary")

    monkeypatch.setattr(sentencex, "segment", segment)
    (part,) = split_lines(["Eins. Zwei."], "de")
    assert part.text == "Eins. Zwei."
    with pytest.raises(KeyboardInterrupt):
        split_lines(["Zwei."], "de")
