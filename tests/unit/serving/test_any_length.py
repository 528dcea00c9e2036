"""Lines of any length, several hypotheses, and many files: in Python and as a command."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest
from refusals import fields_of
from stage_server import python_module

from workflow_src import cli
from workflow_src.errors import ConfigError
from workflow_src.registry import searches
from workflow_src.serving.sentences import Part, cut
from workflow_src.serving.translations import Translation
from workflow_src.serving.translator import Translator

PROJECT = Path(__file__).resolve().parents[3]
SENTENCES = ["der Hund ruht heute.", "Ein Vogel kommt!", "Kein Mann bleibt noch dort."]
LINE = "der Hund ruht heute.  Ein Vogel kommt!\tKein Mann bleibt noch dort."
# Searches that hold several hypotheses, by family.
SEVERAL = [
    ("transformer", {"search": "beam", "beam": 4}),
    ("score", {"search": "latent-search", "steps": 1, "lengths": 3, "samples": 2}),
    ("nat", {"search": "ctc-beam", "beam": 6}),
]


@pytest.fixture(scope="module")
def bundles(tiny_bundles, training_words, export_words, run_stage, tmp_path_factory):
    """The miniature systems, and a one-pass system after a few updates."""
    folder = tmp_path_factory.mktemp("nat")
    run_stage("train", training_words("nat", folder, max_steps=4, validate_every=4))
    run_stage("export_bundle", export_words(folder / "model.safetensors", None, folder / "bundle"))
    return {**tiny_bundles, "nat": folder / "bundle"}


@pytest.fixture(scope="module")
def translators(bundles):
    load = lambda folder: Translator.load(folder, device="cpu", threads=1, engine="eager")  # noqa: E731
    return {family: load(folder) for family, folder in bundles.items()}


@pytest.mark.parametrize("family", ["transformer", "lvm", "nat"])
def test_sentences_of_a_line_are_translated_one_by_one(translators, family):
    translator = translators[family]
    first, second, third = translator.translate(SENTENCES)
    lines = ["", LINE, SENTENCES[1], f" {LINE}\n\n{LINE} "]
    translation = f"{first}  {second}\t{third}"
    assert translator.translate(lines) == ["", translation, second, f"{translation}\n\n{translation}"]
    assert translator.translate(lines, batch=1) == translator.translate(lines)
    line = " ".join(LINE.split())
    unsplit, normalised = (translator.translate([line], **how) for how in ({"split": False}, {"normalised": True}))
    assert unsplit == normalised != translator.translate([line])


@pytest.mark.parametrize("family", ["transformer", "lvm", "nat"])
@pytest.mark.parametrize("split", [True, False])
def test_what_is_too_long_is_cut_and_named_by_its_line(translators, tiny, family, split, caplog):
    """Sentences longer than those of training; whole lines where they are longer than the model takes."""
    translator = translators[family]
    longest = int(tiny.train.source_lengths.max()) if split else 59

    def size(text: str) -> int:
        return len(tiny.subwords.encode_source([text])[0])

    long = "der Hund ruht heute, " * 9 + "Hund" * 40
    texts = translator.translate(["Hund", long, long], first_line=11, split=split)
    assert len(texts) == 3 and texts[0] == translator.translate(["Hund"])[0] and texts[2] == texts[1]
    message = next(record.getMessage() for record in caplog.records if f"than {longest} " in record.getMessage())
    assert f"line 12 has a sentence of {size(long)} subwords" in message and "first of 2 " in message
    pieces = cut(Part(0, "", long), lambda text: size(text) <= longest)
    assert len(pieces) > 2
    translations = translator.translate([piece.text for piece in pieces], split=False)
    assert texts[1].replace(" ", "") == "".join(translations).replace(" ", "")


@pytest.mark.parametrize("family", ["transformer", "score", "nat"])
def test_a_whole_line_that_is_longer_than_those_of_training_is_named(translators, tiny, family, caplog):
    translator = translators[family]
    trained, size = (
        tiny.pairs[int(tiny.train.source_lengths.argmax())][0],
        lambda text: len(tiny.subwords.encode_source([text])[0]),
    )
    translator.translate([trained], split=False)
    assert not caplog.records
    longer = [f"{trained} und", "der Hund", f"{trained} und dann"]
    translator.translate(longer, split=False, first_line=7)
    (record,) = caplog.records
    message = record.getMessage()
    assert f"line 7 has a sentence of {size(longer[0])} subwords" in message and "first of 2 " in message
    assert f"at most {size(trained)}" in message


@pytest.mark.parametrize(("family", "settings"), SEVERAL, ids=str)
def test_the_first_of_several_is_the_translation(translators, family, settings):
    translator = translators[family]
    lines = [*SENTENCES, "", LINE]
    plain = translator.translate(lines, **settings)
    scored = translator.translate(lines, **settings, return_scores=True)
    width = searches()[settings["search"]].width(translator.request(**settings).settings)
    for count in (1, 3, width):
        translations = translator.translate(lines, **settings, n_best=count)
        assert all(isinstance(line, Translation) for line in translations)
        assert [line.text for line in translations] == plain
        assert [line.score for line in translations] == pytest.approx([line.score for line in scored])
        for line in translations:
            scores = [hypothesis.score for hypothesis in line.hypotheses]
            assert scores == sorted(scores, reverse=True) and 1 <= len(scores) <= count
            assert len({hypothesis.text for hypothesis in line.hypotheses}) == len(scores)
    assert max(len(line.hypotheses) for line in translations) > 1
    # Sentences' scores, and their hypotheses, add up to those of the line.
    assert translations[4].score == pytest.approx(sum(line.score for line in translations[:3]))
    assert translations[4].source == tuple(piece for line in translations[:3] for piece in line.source)
    assert translations[3].hypotheses[0].subwords == () and translations[3].source == ("</s>",)
    assert [len(line.hypotheses) for line in scored] == [1] * 5


def test_hypotheses_are_those_that_the_search_holds(translators):
    translator = translators["transformer"]
    settings = translator.request("beam", beam=3).settings
    request = translator.request(settings, n_best=3)
    ranked = translator.search_ids(translator.subwords.encode_source(SENTENCES), request).ranked()
    for pairs, line in zip(ranked, translator.translate(SENTENCES, settings, n_best=3, split=False), strict=True):
        texts = dict.fromkeys(translator.text([tokens for _, tokens in pairs]))
        assert [hypothesis.text for hypothesis in line.hypotheses] == list(texts)
        pieces = {tuple(translator.subwords.pieces_target(tokens)): score for score, tokens in pairs}
        assert all(pieces[hypothesis.subwords] == hypothesis.score for hypothesis in line.hypotheses)


@pytest.mark.parametrize("settings", [{"search": "ctc-greedy"}, {"search": "ctc-beam", "beam": 4}], ids=str)
def test_origins_point_into_the_subwords_of_the_line(translators, settings):
    translator = translators["nat"]
    several = {"n_best": 4} if "beam" in settings else {}
    *alone, line = translator.translate([*SENTENCES, LINE], **settings, **several, return_origins=True)
    starts = [0, len(alone[0].source), len(alone[0].source) + len(alone[1].source)]
    expected = [start + origin for start, t in zip(starts, alone, strict=True) for origin in t.hypotheses[0].origins]
    assert list(line.hypotheses[0].origins) == expected and line.source[len(alone[0].source) - 1] == "</s>"
    for translation in [*alone, line]:
        for hypothesis in translation.hypotheses:
            assert len(hypothesis.origins) == len(hypothesis.subwords)
            assert all(0 <= origin < len(translation.source) for origin in hypothesis.origins)
    # Slots are in the order of the source.
    assert all(list(h.origins) == sorted(h.origins) for translation in alone for h in translation.hypotheses)
    singles, batched = (
        translator.translate(SENTENCES, **settings, return_origins=True, batch=batch) for batch in (1, 64)
    )
    for single, translation in zip(singles, batched, strict=True):
        # Sums in other orders differ in their last bits.
        (hypothesis,), score = single.hypotheses, translation.hypotheses[0].score
        assert hypothesis.score == pytest.approx(score, rel=1e-5)
        assert dataclasses.replace(single, hypotheses=(dataclasses.replace(hypothesis, score=score),)) == translation


@pytest.mark.parametrize(
    ("family", "settings", "fields"),
    [
        ("transformer", {"search": "greedy", "n_best": 2}, {"value": 2, "hint": "take search beam"}),
        ("transformer", {"search": "beam", "beam": 4, "n_best": 5}, {"value": 5, "hint": "raise beam"}),
        ("lvm", {"search": "delta", "n_best": 2}, {"value": 2, "hint": "take search latent-search"}),
        ("lvm", {"n_best": 0}, {"setting": "n_best", "value": 0}),
        ("lvm", {"n_best": "x"}, {"setting": "n_best", "value": "x"}),
        ("lvm", {"return_origins": True}, {"setting": "return_origins", "mentions": ("delta",)}),
    ],
)
def test_what_a_search_cannot_give_is_refused(translators, family, settings, fields):
    for lines in ([], SENTENCES):
        with pytest.raises(ConfigError) as refused:
            translators[family].translate(lines, **settings)
        assert fields_of(refused.value, fields) == fields


def run(bundle, *words, capsys=None) -> list[str]:
    """The command in this process; returns the lines of its output."""
    common = ["--bundle", str(bundle), "--device", "cpu", "--threads", "1", "--engine", "eager"]
    cli.main(["translate", *common, *map(str, words)])
    return capsys.readouterr().out.splitlines() if capsys else []


@pytest.fixture
def text(tmp_path):
    (tmp_path / "in.txt").write_text(f"{LINE}\n\n{SENTENCES[1]}\n")
    return tmp_path / "in.txt"


def spaced(text: str) -> str:
    """A text as a column of its own."""
    return text.replace("\t", " ")


def test_the_command_writes_what_python_returns(bundles, translators, text, capsys):
    lines = text.read_text().splitlines()
    beam = ("--input", text, "--search", "beam", "--beam", 4)
    expected = translators["transformer"].translate(lines, search="beam", beam=4, n_best=3)
    assert run(bundles["transformer"], *beam, capsys=capsys) == [line.text for line in expected]
    scored = run(bundles["transformer"], *beam, "--scores", capsys=capsys)
    assert [line.split("\t") for line in scored] == [[f"{line.score:.6f}", spaced(line.text)] for line in expected]
    several = run(bundles["transformer"], *beam, "--n-best", 3, "--scores", capsys=capsys)
    assert several == [
        f"{number}\t{hypothesis.score:.6f}\t{spaced(hypothesis.text)}"
        for number, line in enumerate(expected, 1)
        for hypothesis in line.hypotheses
    ]
    unsplit = run(bundles["transformer"], *beam, "--no-split", capsys=capsys)
    assert unsplit == translators["transformer"].translate(lines, search="beam", beam=4, split=False)


def test_lines_of_json_have_origins_where_the_search_knows_them(bundles, translators, text, capsys):
    lines = text.read_text().splitlines()
    words = ("--input", text, "--output-format", "jsonl")
    expected = translators["nat"].translate(lines, search="ctc-beam", beam=4, n_best=2, return_origins=True)
    output_lines = run(bundles["nat"], *words, "--search", "ctc-beam", "--beam", 4, "--n-best", 2, capsys=capsys)
    for row, line in zip(map(json.loads, output_lines), expected, strict=True):
        assert (row["text"], row["score"], tuple(row["source"])) == (line.text, pytest.approx(line.score), line.source)
        assert [tuple(hypothesis["origins"]) for hypothesis in row["hypotheses"]] == [
            hypothesis.origins for hypothesis in line.hypotheses
        ]
        assert [hypothesis["text"] for hypothesis in row["hypotheses"]] == [
            hypothesis.text for hypothesis in line.hypotheses
        ]
    (first_line, *_) = map(json.loads, run(bundles["lvm"], *words, capsys=capsys))
    assert first_line["score"] < 0 and "origins" not in first_line["hypotheses"][0]


def test_the_files_of_a_folder_are_translated_each_as_a_whole(bundles, translators, tmp_path, caplog):
    folder, out = tmp_path / "in", tmp_path / "out"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text(f"{LINE}\n" * 3)
    (folder / "deep/b.txt").write_text("der Hund\n" + "Hund " * 90 + "\n")
    run(bundles["lvm"], "--input", folder, "--output", out)
    for name in ("a.txt", "deep/b.txt"):
        lines = (folder / name).read_text().splitlines()
        assert (out / name).read_text().splitlines() == translators["lvm"].translate(lines)
    assert f"{folder / 'deep/b.txt'}, line 2 " in caplog.text
    # Translations of earlier files are complete; there are none of the unreadable file and later ones.
    shutil.rmtree(out)
    (folder / "b.txt").write_bytes(b"der Hund\n\xff\n")
    with pytest.raises(SystemExit) as exit_info:
        run(bundles["lvm"], "--input", folder, "--output", out)
    assert f"{folder / 'b.txt'}, line 2" in str(exit_info.value.code)
    assert [str(path.relative_to(out)) for path in out.rglob("*")] == ["a.txt"]


def test_a_program_gets_the_answer_to_a_line_before_it_writes_the_next(bundles, translators):
    words = ["--bundle", str(bundles["transformer"]), "--device", "cpu", "--engine", "eager"]
    process = subprocess.Popen(
        python_module("workflow_src.cli", "translate", *words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
    )
    for sentence in SENTENCES:
        process.stdin.write(f"{sentence}\n")
        process.stdin.flush()
        # Where the command waits for more, the test ends by its time limit.
        assert process.stdout.readline() == f"{translators['transformer'].translate([sentence])[0]}\n"
    assert process.communicate()[0] == "" and process.returncode == 0


def test_progress_is_shown_on_a_terminal_alone(bundles, text, tmp_path, monkeypatch, capfd):
    words = python_module("workflow_src.cli", "translate", "--bundle", str(bundles["lvm"]), "--device", "cpu")
    words += ["--input", str(text), "--output", str(tmp_path / "out.txt")]
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(words, stdout=subprocess.PIPE, stderr=theirs, cwd=PROJECT, env=environment, timeout=120)
    os.close(theirs)
    terminal_output = b""
    while not terminal_output.endswith(b"\x1b[2K"):
        try:
            terminal_output += os.read(ours, 1 << 16)
        except OSError:
            break
    assert (
        (completed.returncode, completed.stdout) == (0, b"")
        and b"3/3" in terminal_output
        and b"lines" in terminal_output
    )
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 3
    # Forced colours do not make a pipe a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    # Of letters that the model knows, so that nothing is warned of.
    text.write_text(f"{SENTENCES[1]}\n".replace("E", "e"))
    run(bundles["lvm"], "--input", text, "--output", tmp_path / "out.txt")
    assert capfd.readouterr() == ("", "")
