"""`continuum check` and files of the user's that are not there."""

import importlib.util
import re

import pytest
import yaml

from workflow_src import cli

TEXTS = [f"{split}.{code}" for split in ("train", "dev", "test") for code in ("de", "en")]


@pytest.fixture
def mine(folder):
    """An experiment on text of its own, whose files are all there; a function that writes it with more of a dataset."""
    for name in TEXTS:
        (folder / name).write_text("one line\n" * (2 if name.startswith("train.") else 1))

    def write(systems=None, recipe=None, more=(), **dataset):
        texts = {
            split: [{"texts": {code: f"{split}.{code}" for code in ("de", "en")}}] for split in ("train", "dev", "test")
        }
        definition = {"name": "own", "languages": ["de", "en"], "kind": "files", "generator": None, **texts, **dataset}
        content = {
            "experiment": "mine",
            "extends": "smoke",
            "recipe": {"name": "mine", "dataset": definition, **(recipe or {})},
        }
        content |= {"systems": systems} if systems else {}
        (folder / "mine.yaml").write_text(yaml.safe_dump(content | dict(more)))

    write()
    return write


def refused() -> str:
    with pytest.raises(SystemExit) as stop:
        cli.main(["check", "mine.yaml"])
    assert isinstance(stop.value.code, str) and "\n" not in stop.value.code
    return stop.value.code


def checked(capsys) -> str:
    cli.main(["check", "mine.yaml"])
    return capsys.readouterr().out


def warnings(capsys) -> list[str]:
    return [line for line in checked(capsys).splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize("name", TEXTS)
def test_a_missing_text_file_is_named(mine, name, tmp_path, capsys):
    (tmp_path / name).unlink()
    assert re.match(f"error: {name} .*exist", refused()) and str(tmp_path) in refused()
    assert capsys.readouterr().out == ""
    (tmp_path / name).mkdir()
    assert re.match(f"error: {name} .*folder; ", refused())


def test_a_dataset_that_somebody_has_to_bring_says_what_it_needs(mine):
    mine(kind="folder", folder_hint="ask its makers", recipe={"folder": "/nowhere"})
    assert refused().startswith("error: /nowhere/train.de ") and "ask its makers" in refused()


def test_missing_weights_are_named(mine, tmp_path):
    mine(systems={"teacher": {"initial_weights": "old.safetensors"}})
    assert refused().startswith("error: systems.teacher.initial_weights is 'old.safetensors': ")
    (tmp_path / "old.safetensors").touch()
    cli.main(["check", "mine.yaml"])


def test_a_missing_distilled_text_is_named(mine, tmp_path):
    mine(recipe={"distilled": {"bought": "bought.en"}}, systems={"lvm": {"data": "bought"}})
    assert refused().startswith("error: recipe.distilled.bought is 'bought.en': ")
    (tmp_path / "bought.en").touch()
    cli.main(["check", "mine.yaml"])


def test_missing_files_of_a_model_from_elsewhere_are_named(mine, tmp_path):
    folder = tmp_path / "model"
    mine(systems={"outside": {"family": "ctranslate2", "model": {"folder": "model"}}})
    assert refused().startswith("error: systems.outside.model is 'model/model.bin': ")
    folder.mkdir()
    for name in ("model.bin", "config.json", "shared_vocabulary.txt", "source.spm"):
        (folder / name).touch()
    assert refused().startswith("error: systems.outside.model is 'model/target.spm': ")
    (folder / "target.spm").touch()
    cli.main(["check", "mine.yaml"])


def test_texts_that_no_stage_could_read_are_refused_with_their_names(mine, tmp_path, capsys):
    lines = "one line\n"
    (tmp_path / "train.de").write_text(lines * 20)
    (tmp_path / "train.en").write_text(lines * 6000)
    assert all(word in refused() for word in ("train.de", "20", "train.en", "6000"))
    (tmp_path / "train.de").write_text(lines * 6000)
    assert "train 6,000" in checked(capsys)
    for name, content in (
        ("train.en", lines.encode() * 5999 + "Grüße\n".encode("latin-1")),
        ("test.de", lines.encode("utf-16")),
        ("dev.en", b""),
    ):
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content)
        assert name in refused() and ("6000" in refused() or name != "train.en")
        (tmp_path / name).write_bytes(before)
    assert capsys.readouterr().out == ""


def test_a_row_of_names_is_said_once(mine, tmp_path, caplog):
    (tmp_path / "with-names.tsv").write_text("German\tEnglish\n" + "".join(f"wort {n}\tword {n}\n" for n in range(50)))
    mine(train=[{"table": "with-names.tsv", "columns": {"de": 0, "en": 1}}])
    cli.main(["check", "mine.yaml"])
    assert sum("with-names.tsv" in record.getMessage() for record in caplog.records) == 1


def test_records_and_memories_are_read_to_the_end(mine, tmp_path, capsys):
    segments = "<tuv xml:lang='de'><seg>Satz</seg></tuv><tuv xml:lang='en-GB'><seg>Sentence</seg></tuv>"
    memory = f"<tmx><body>{f'<tu>{segments}</tu>' * 30}<tu/></body></tmx>"
    (tmp_path / "x.tmx").write_text(memory)
    (tmp_path / "x.jsonl").write_text('{"t": {"de": "Satz", "en": "Sentence"}}\n' * 40)
    (tmp_path / "mono.jsonl").write_text('{"text": "Satz"}\n' * 7)
    (tmp_path / "mono.tsv").write_text("1\tSatz\n\n")
    records = {"records": "x.jsonl", "columns": {"de": "t.de", "en": "t.en"}}
    recipe = {
        "monolingual": [
            {"records": "mono.jsonl", "columns": {"de": "text"}},
            {"tmx": "x.tmx"},
            {"table": "mono.tsv", "columns": {"de": 1}},
        ]
    }
    mine({"lvm": {"data": {"raw": 1, "monolingual-by-teacher": 1}}}, recipe, train=[{"tmx": "x.tmx"}, records])
    assert "train 70, dev 1, test 1, mono.jsonl 7, x.tmx 30, mono.tsv 1" in checked(capsys)
    (tmp_path / "x.jsonl").write_text('{"t": {"de": "Satz", "en": "Sentence"}}\n' * 40 + '{"t": {"de": "Satz"}}\n')
    assert "x.jsonl, line 41, " in refused() and '"t.en"' in refused()
    (tmp_path / "x.tmx").write_text(memory[:-6])
    assert "x.tmx, line 1, " in refused()
    (tmp_path / "mono.jsonl").unlink()
    assert refused().startswith("error: recipe.monolingual[0].records is 'mono.jsonl': ")


def test_a_warm_up_longer_than_its_training_is_a_warning(mine, capsys):
    for warmup, warned in ((300, True), (200, False), ("auto", False)):
        mine(systems={"teacher": {"training": {"max_steps": 200, "warmup_steps": warmup}}})
        assert any("systems.teacher.training" in warning for warning in warnings(capsys)) == warned


def test_an_engine_whose_packages_are_not_installed_is_a_warning(mine, monkeypatch, capsys):
    def warned(*names: str) -> bool:
        return any(all(name in warning for name in names) for warning in warnings(capsys))

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    mine(more={"decodes": [{"system": "teacher", "search": "greedy", "engine": "ctranslate2"}]})
    assert warned("ctranslate2") and not warned("onnxruntime")
    decodes = [{"system": "ctc", "search": "ctc-greedy", "engine": "onnxruntime-int8"}]
    mine(more={"decodes": decodes, "distillation": {"teacher": {"engine": "ctranslate2"}}})
    assert warned("onnxruntime", "ctranslate2")
    mine(more={"decodes": [{"system": "teacher", "search": "greedy"}]})
    assert not warned("installed")


def test_tokenised_text_is_a_warning(mine, tmp_path, capsys):
    for name, line in (("train.de", "Ja , das ist gut .\n"), ("dev.en", "Yes , that is good .\n")):
        split, code = name.split(".")
        for each in ("de", "en"):
            (tmp_path / f"{split}.{each}").write_text((line if each == code else "That is good.\n") * 30)
    (warning,) = [line for line in warnings(capsys) if "tokenised" in line]
    assert "de in train (100%)" in warning and "en in dev (100%)" in warning
    mine(recipe={"tokenised": {"de": "moses", "en": "moses"}})
    assert "tokenised" not in checked(capsys)


def test_texts_that_no_system_learns_from_are_a_warning(mine, tmp_path, capsys):
    recipe = {"monolingual": [{"texts": {"de": "more.de"}}], "distilled": {"bought": "bought.en"}}
    mine(recipe=recipe)
    distilled, monolingual = warnings(capsys)
    assert "recipe.distilled.bought" in distilled and "recipe.monolingual" in monolingual
    for name in ("more.de", "bought.en"):
        (tmp_path / name).write_text("one line\n" * 3)
    mine({"lvm": {"data": {"raw": 1, "bought": 1}}}, recipe)
    (monolingual,) = warnings(capsys)
    assert "recipe.monolingual" in monolingual
    mine({"lvm": {"data": {"raw": 1, "bought": 1, "monolingual-by-teacher": 1}}}, recipe)
    assert warnings(capsys) == []


THAI = "ฉันชอบอ่านหนังสือ OK"
ENGLISH = "I like to read books"


@pytest.mark.parametrize(
    ("source", "target", "clean", "named"),
    [
        (THAI, ENGLISH, {}, []),
        (ENGLISH, THAI, {}, ["th in train (100%)", "en in train (87%)"]),
        (ENGLISH, ENGLISH, {}, ["th in train (100%)"]),
        # Thai that the user says to be in Latin letters.
        (ENGLISH, ENGLISH, {"script": {"scripts": {"th": ["LATIN"]}}}, []),
    ],
)
def test_text_in_another_script_than_its_language_is_a_warning(mine, tmp_path, capsys, source, target, clean, named):
    for code, line in (("th", source), ("en", target)):
        (tmp_path / f"train.{code}").write_text(f"{line}\n" * 30)
        (tmp_path / f"dev.{code}").write_text("1 + 1 = 2\n")
    texts = {
        split: [{"texts": {code: f"{file}.{code}" for code in ("th", "en")}}]
        for split, file in (("train", "train"), ("dev", "dev"), ("test", "dev"))
    }
    mine(recipe={"source": "th", "target": "en", "clean": clean}, languages=["th", "en"], **texts)
    shown = warnings(capsys)
    assert len(shown) == bool(named) and all(text in shown[0] for text in named)
    assert not any("dev" in warning for warning in shown)


def test_other_texts_are_read_too(mine, tmp_path, capsys):
    part = {"texts": {"de": "more.de"}}
    systems = {"lvm": {"data": {"raw": 1, "monolingual-by-teacher": 0.5, "bought": 1}}}
    mine(systems=systems, recipe={"monolingual": [part], "distilled": {"bought": "bought.en"}})
    for name in ("more.de", "bought.en"):
        (tmp_path / name).write_text("one line\n" * 3)
    out = checked(capsys)
    assert "more.de 3" in out and "bought.en 3" in out
    for name in ("more.de", "bought.en"):
        (tmp_path / name).write_bytes(b"one line\n\xff\n")
        assert name in refused() and "2" in refused()
        (tmp_path / name).write_text("one line\n")


def test_monolingual_text_of_a_download_is_left_to_its_job(mine, tmp_path, capsys):
    files = {"news": {"url": "https://example.org/news.de", "sha256": "0" * 64}}
    systems = {"lvm": {"data": {"raw": 1, "monolingual-by-teacher": 0.5}}}
    parts = [{"texts": {"de": "news"}}, {"texts": {"de": "more.de"}}]
    mine(systems=systems, recipe={"monolingual": parts}, files=files)
    (tmp_path / "more.de").write_text("one line\n" * 3)
    assert "more.de 3" in checked(capsys)


def test_pairs_beyond_max_length_are_a_warning(mine, tmp_path, capsys):
    words = [f"word{number:03}" for number in range(90)]
    lines = [" ".join(words[number % 7 :][: 80 if number % 5 == 0 else 3]) + "\n" for number in range(2000)]
    for code in ("de", "en"):
        (tmp_path / f"train.{code}").write_text("".join(lines))
    mine(recipe={"max_length": 40, "subwords": {"vocabulary_size": 300}})
    warning = checked(capsys).splitlines()[-1]
    assert warning.startswith("warning: max_length is 40 ") and "20.0 %" in warning
    mine(recipe={"max_length": "auto", "subwords": {"vocabulary_size": 300}})
    assert "0.0 %" in checked(capsys).splitlines()[-1]


def write_numbered(folder, lines):
    for code in ("de", "en"):
        (folder / f"train.{code}").write_text("".join(f"line {number}\n" for number in range(lines)))


@pytest.mark.parametrize(
    "split", [{"method": "connected-groups", "dev": 10, "test": 10}, {"method": "every-nth", "every": 21}]
)
def test_a_split_of_more_pairs_than_there_are_is_refused(mine, tmp_path, split):
    mine(split=split, dev=[], **({} if "every" in split else {"test": []}))
    write_numbered(tmp_path, 20)
    assert refused().startswith("error: split of dataset own: ") and "20" in refused()
    # Its teacher translates train in two shards.
    write_numbered(tmp_path, 22)
    cli.main(["check", "mine.yaml"])


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"decodes": [{"system": "teacher", "search": "beam", "beam": 100_000}]},
            "decode teacher/beam-100000.beam is 100000; allowed: 300 or less",
        ),
        ({"distillation": {"teacher": {"beam": 301}}}, "distillation.teacher.beam is 301; allowed: 300 or less"),
        ({"distillation": {"teacher": {"shards": 601}}}, "distillation.teacher.shards is 601; allowed: 600 or less"),
        (
            {"distillation": {"teacher": {"shards": 501}}, "recipe": {"name": "mine", "limits": {"train": 500}}},
            "distillation.teacher.shards is 501; allowed: 500 or less",
        ),
        (
            {"systems": {"lvm": {"data": "likely-by-teacher"}}, "likelihood": {"teacher": {"shards": 601}}},
            "likelihood.teacher.shards is 601; allowed: 600 or less",
        ),
        (
            {"decodes": [{"system": "teacher", "search": "beam", "beam": 4, "shards": 1000}]},
            "decode teacher/beam-4.shards is 1000; allowed: 40 or less",
        ),
    ],
)
def test_shards_beyond_the_sentences_and_beams_beyond_the_vocabulary_are_refused(more, sentence, folder):
    (folder / "mine.yaml").write_text(yaml.safe_dump({"experiment": "mine", "extends": "smoke", **more}))
    assert refused().startswith(f"error: {sentence}")


def test_shards_of_texts_of_ones_own_are_at_most_their_lines(mine, tmp_path):
    write_numbered(tmp_path, 2)
    cli.main(["check", "mine.yaml"])
    write_numbered(tmp_path, 1)
    assert refused().startswith("error: distillation.teacher.shards is 2; allowed: 1 or less")


def test_a_limit_of_test_sets_limits_the_shards_of_each(mine, tmp_path):
    texts = [{"texts": {code: f"test.{code}" for code in ("de", "en")}}]
    decodes = [{"system": "teacher", "search": "greedy", "shards": 20}]
    mine(recipe={"limits": {"test": 10}}, more={"decodes": decodes}, test={"news": texts, "talks": texts})
    for code in ("de", "en"):
        (tmp_path / f"test.{code}").write_text("".join(f"line {number}\n" for number in range(30)))
    assert refused().startswith("error: decode teacher/greedy.shards is 20; allowed: 10 or less")


def test_a_missing_python_of_a_metric_is_named(mine):
    mine(more={"runtime": {"pythons": {"comet": "no/such/python"}}})
    assert refused().startswith("error: runtime.pythons.comet is 'no/such/python': ")
