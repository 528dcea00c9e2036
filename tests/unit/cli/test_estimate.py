"""The estimate against independent counts: real models' weights, PyTorch's own operation counter, sums by hand."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from configurations import read_configuration

from workflow_src import cli
from workflow_src.cli import operations
from workflow_src.cli.plan import Overview, Request, overview
from workflow_src.cli.show import facts
from workflow_src.cli.sizes import limit_in_words, numbered, read_encoded, sizes
from workflow_src.config import Plan, load_experiment
from workflow_src.config.costs import Sizes
from workflow_src.config.files import experiment_file, experiment_names
from workflow_src.config.rules import Work
from workflow_src.config.sizes import AUTO
from workflow_src.data import subwords
from workflow_src.data.toy import grammar
from workflow_src.errors import ArtifactError, InputError, did_you_mean
from workflow_src.registry import searches
from workflow_src.training import counting


def estimated(*settings: str, file: str | None = None, **sizes: float) -> Overview:
    """What an experiment takes in all."""
    files = [Path(file)] if file else []
    return overview(Request(files, settings, everything=True, **sizes))


def lines(planned: Overview) -> str:
    return "\n".join(facts(planned))


def training(planned: Overview, system: str):
    return planned.nodes["train", system]


def test_sums_by_hand_of_the_base_model(folder):
    encoder, decoder, output = 6 * 12 * 512**2, 6 * 16 * 512**2, 32000 * 512
    planned = estimated("experiment=large", "extends=wmt14", "only=[teacher]")
    assert planned.training_tokens == 8192 * 300_000
    teacher = training(planned, "teacher")
    # Attention's own products come on top; of biases and norms, parameters have a few more.
    by_hand = 6 * (encoder + decoder + output) * 8192 * 300_000
    assert teacher.operations == pytest.approx(1.01 * by_hand, rel=0.02)
    assert teacher.parameters == pytest.approx(encoder + decoder + output, rel=0.01)
    low, high = teacher.gpu_hours
    assert high == pytest.approx(4 * low) and low == pytest.approx(teacher.operations / (312e12 * 0.4) / 3600)


def test_more_of_anything_costs_more(folder):
    base = estimated("experiment=smoke")
    seeds, pairs = estimated("experiment=smoke", "seeds=[1, 2]"), estimated("experiment=smoke", pairs=10_000_000)
    assert seeds.all.gpu_hours[0] > 1.9 * base.all.gpu_hours[0] and seeds.disk > base.disk
    assert pairs.all.gpu_hours[0] > base.all.gpu_hours[0] and pairs.disk > base.disk
    larger = estimated("experiment=smoke", "systems={teacher: {model: {encoder_layers: 6}}}")
    assert larger.nodes["train", "teacher"].memory > base.nodes["train", "teacher"].memory > 1000


def test_unknown_numbers_of_pairs_are_said(own_text, tmp_path):
    (tmp_path / "my.de").unlink()
    dataset = {"name": "mine", "languages": ["de", "en"]}
    dataset |= {split: [{"texts": {"de": f"{split}.de", "en": f"{split}.en"}}] for split in ("train", "dev", "test")}
    content = {"experiment": "mine", "extends": "demo", "recipe": {"name": "mine", "dataset": dataset}}
    (tmp_path / "mine.yaml").write_text(json.dumps(content))
    unknown = lines(estimated(file="mine.yaml"))
    assert "Distillation is not counted" in unknown and "give --pairs" in unknown
    assert "Distillation is not counted" not in lines(estimated(file="mine.yaml", pairs=1000))


def test_trainings_that_wait_for_others_are_named(folder):
    planned = estimated("experiment=recommended")
    # A student waits for the system whose translations it learns from.
    assert planned.after == {"teacher-long": ["teacher"], "one-pass": ["teacher", "teacher-long"]}
    assert "teacher-long for teacher; one-pass for teacher, teacher-long." in lines(planned)
    assert estimated("experiment=smoke").after["score"] == ["lvm", "teacher"]


@pytest.mark.parametrize(
    "content", [{}, {"pairs": 0, "source_tokens": 0, "target_tokens": 0}, [], {"pairs": "a", "source_tokens": 1}]
)
def test_a_description_of_an_encoded_corpus_that_is_none_is_named(tmp_path, content):
    (tmp_path / "train.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"train\.json does not describe"):
        read_encoded(tmp_path / "train.json")


def test_what_encoding_counted_replaces_assumptions(folder):
    plan = Plan(load_experiment("tatoeba"))
    before = sizes(plan)
    stated = "stated by the dataset"
    assert before.sources == {"pairs": stated, "length": stated}
    assert before.length == plan.loaded.dataset.sentence_length
    encoded = {"pairs": 1000, "source_tokens": 12_000, "target_tokens": 10_000}
    after = sizes(plan, encoded=encoded)
    assert (after.pairs, after.length) == (1000, 11.0) and after.sources == {"pairs": "counted", "length": "counted"}
    with_pairs = sizes(plan, 2000, encoded=encoded)
    assert (with_pairs.pairs, with_pairs.length) == (2000, 11.0)
    assert with_pairs.sources == {"pairs": "given", "length": "counted"}


@pytest.mark.parametrize(("setting", "beyond"), [("auto", 5), (70, 300)])
def test_what_encoding_left_out_is_told(setting, beyond):
    plan = Plan(load_experiment("smoke", recipe={"max_length": setting}))
    encoded = {"pairs": 1000 - beyond, "source_tokens": 9_000, "target_tokens": 9_000, "max_length": 70}
    limit = sizes(plan, encoded=encoded | {"dropped": {"source-too-long": beyond}}).limit
    assert limit == {"auto": setting == "auto", "limit": 70, "left_out": beyond / 1000}
    assert ("warning: max_length is 70" in limit_in_words(limit)) == (setting == 70)


def test_the_commands(capsys):
    cli.main(["estimate", "smoke", "--no-calibration", "--json"])
    assert json.loads(capsys.readouterr().out)["rules"]["distill"]["jobs"] == 2
    cli.main(["check", "wmt16"])
    assert capsys.readouterr().out.startswith("Experiment wmt16 is valid: ")
    with pytest.raises(SystemExit) as stop:
        cli.main(["check", "nothing.yaml"])
    assert stop.value.code == "error: nothing.yaml does not exist."
    with pytest.raises(SystemExit) as stop:
        cli.main(["estimate", "wnt16"])
    assert did_you_mean("wmt16") in stop.value.code
    for words, message in (
        (["--pairs", "-5"], "error: --pairs is -5; allowed: 1 or more."),
        (["--length", "0"], "error: --length is 0.0; allowed: 1 or more."),
        (["--length", "nan"], "error: --length is nan; allowed: 1 or more."),
        (["--length", "inf"], "error: --length is inf; allowed: 1 or more."),
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(["estimate", "demo", "--no-calibration", *words])
        assert stop.value.code == message


@pytest.fixture
def own_text(folder):
    """A configuration for 12,000 lines of one's own, of which dev and test take 2,000."""
    for code in ("de", "en"):
        (folder / f"my.{code}").write_text("a line\n" * 12_000)
    (folder / "mine.yaml").write_text(
        "experiment: mine\nextends: recommended\nrecipe:\n  name: mine\n  dataset: {name: mine, languages: [de, en], "
        "train: [{texts: {de: my.de, en: my.en}}], split: {method: connected-groups, dev: 1000, test: 1000}}\n"
    )
    return read_configuration("mine.yaml")


def test_what_is_auto_is_reported_by_the_lines_of_own_texts_or_by_what_is_given(own_text):
    planned = estimated(file="mine.yaml", length=9)
    assert planned.sizes.pairs == 10_000 and planned.sizes.sources["pairs"] == "lines of your texts"
    # 100,000 target tokens with end symbols: √(160 million × 100,000) / 2,000, which is 2,000.
    updates = {node.system: node.updates for node in planned.nodes.values() if node.updates}
    assert updates == {"teacher": 2000, "teacher-long": 2000, "one-pass": 2000} and planned.vocabulary_size == 1000
    assert training(planned, "teacher").tokens == 2000 * 2000
    line = "auto come to about: updates teacher 2,000, teacher-long 2,000, one-pass 2,000; 1,000 subwords"
    assert line in lines(planned)
    # Without a training there are no updates, and none waits.
    without = lines(overview(Request([Path("mine.yaml")], targets=["download"], length=9)))
    assert "about: 1,000 subwords" in without and "wait for others" not in without
    # Compressed lines are counted as lines, too.
    for code in ("de", "en"):
        with gzip.open(f"my.{code}.gz", "wt") as file:
            file.write("a line\n" * 12_000)
    text = Path("mine.yaml").read_text().replace("my.de", "my.de.gz").replace("my.en", "my.en.gz")
    Path("packed.yaml").write_text(text)
    assert sizes(Plan(read_configuration("packed.yaml")), length=9).pairs == 10_000
    larger = estimated(file="mine.yaml", pairs=160_000, length=9)
    assert training(larger, "teacher").updates == 8000 and larger.vocabulary_size == 4000


@pytest.mark.parametrize("name", experiment_names())
def test_every_training_of_a_counted_plan_has_numbers(name):
    """Also where `max_steps` is a number, and other settings follow it."""
    plan = Plan(load_experiment(name))
    counted = numbered(plan, sizes(plan, pairs=1000))
    trainings = [system.training for system in counted.loaded.systems.values() if system.family.updated]
    for training in trainings:
        assert AUTO not in training.model_dump().values()
        assert training.sized(tokens=1) == training


def test_lengths_are_those_of_the_texts(folder):
    """Sampled before anything runs, they are near what encoding counts: here with the same subwords, learnt by hand."""
    pairs = grammar.generate({"train": 3000, "dev": 1, "test": 1, "seed": 1})["train"]
    recipe = {"name": "mine", "subwords": {"vocabulary_size": 500}, "limits": {}}
    dataset = {
        "name": "mine",
        "languages": ["de", "en"],
        "split": {"method": "connected-groups", "dev": 10, "test": 10},
    }
    dataset["train"] = [{"texts": {"de": "my.de", "en": "my.en"}}]
    for code, lines in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
        # Three sentences in a line.
        joined = (" ".join(lines[i : i + 3]) for i in range(0, len(lines), 3))
        (folder / f"my.{code}").write_text("".join(f"{line}\n" for line in joined))
    plan = Plan(load_experiment("mine", extends="smoke", recipe=recipe | {"dataset": dataset}))
    counted = sizes(plan)
    learnt = subwords.learn(plan.recipe.subwords, "my.de", "my.en", folder / "subwords")
    texts = [(folder / f"my.{code}").read_text().splitlines() for code in ("de", "en")]
    lengths = [len(ids) for pair in learnt.encode_pairs(*texts) for ids in pair]
    assert counted.length == pytest.approx(sum(lengths) / len(lengths), rel=0.01)
    assert "first" in counted.sources["length"] and counted.limit["left_out"] <= 0.005
    # A length that is given stands.
    assert sizes(plan, length=9).length == 9
    # Without the texts, one is assumed.
    (folder / "my.de").unlink()
    assert sizes(plan).sources["length"] == "assumed"


@pytest.mark.parametrize(("joint", "coverage"), [(True, 1.0), (False, 0.98)])
def test_many_characters_are_counted_into_the_vocabulary(own_text, tmp_path, joint, coverage):
    """As learning counts them from the same text, before and after it was encoded."""
    source = random.Random(1)
    characters = [chr(0x4E00 + number) for number in range(600)]
    words = ["".join(source.sample(characters, 2)) for _ in range(1500)]
    texts = {"de": [source.choices(words, k=5) for _ in range(4000)], "en": [characters[:20]] * 4000}
    for code, lines in texts.items():
        (tmp_path / f"my.{code}").write_text("".join(f"{' '.join(line)}\n" for line in lines))
    text = Path("mine.yaml").read_text()
    kind = {"vocabulary_size": "auto", "character_coverage": coverage, "joint": joint}
    Path("many.yaml").write_text(text.replace("recipe:\n", f"recipe:\n  subwords: {json.dumps(kind)}\n"))
    plan = Plan(read_configuration("many.yaml"))
    learned = subwords.learn(plan.recipe.subwords, "my.de", "my.en", tmp_path / "subwords")
    for encoded in (None, {"pairs": 4000, "source_tokens": 40_000, "target_tokens": 40_000}):
        assert numbered(plan, sizes(plan, 4000, encoded=encoded)).recipe.subwords.size == learned.source_size > 900


def test_pairs_that_filters_leave_out_are_not_counted(own_text, tmp_path):
    """Of every four lines one is too long for a filter; filters see texts that lie here alone."""
    for code in ("de", "en"):
        (tmp_path / f"my.{code}").write_text(("a line\n" * 3 + "word " * 60 + "\n") * 3000)
    text = Path("mine.yaml").read_text().replace("recipe:\n", "recipe:\n  clean: {length: {max_words: 50}}\n")
    Path("cleaned.yaml").write_text(text)
    cleaned = Plan(read_configuration("cleaned.yaml"))
    counted = sizes(cleaned)
    assert counted.pairs == 7500 and "first 12,000 pairs" in counted.sources["pairs"]
    assert sizes(cleaned, 600).pairs == 600
    stated = Plan(load_experiment("tatoeba", recipe={"clean": {"length": {"max_words": 50}}}))
    assert "before filters" in sizes(stated).sources["pairs"]


def test_texts_that_have_only_empty_lines_are_no_sample(own_text, tmp_path):
    for code in ("de", "en"):
        (tmp_path / f"my.{code}").write_text("\n" * 12_000)
    assert sizes(Plan(own_text)).sources["length"] == "assumed"


def test_without_texts_nobody_knows_what_is_auto(own_text, tmp_path):
    (tmp_path / "my.de").unlink()
    with pytest.raises(ArtifactError, match=r"my\.de does not exist"):
        estimated(file="mine.yaml")
    assert training(estimated(file="mine.yaml", pairs=100), "teacher").updates == 500


@pytest.mark.long
@pytest.mark.parametrize("name", experiment_names())
def test_settings_of_papers_say_that_they_never_ran_and_what_they_would_cost(name, folder):
    path = experiment_file(name)
    text = path.read_text(encoding="utf-8")
    if path.parent.name != "papers":
        assert "Never run" not in text
        return
    low, high = estimated(f"experiment={name}").all.gpu_hours
    command = f"`continuum estimate {name} --no-calibration`"
    assert f"# Never run; about {low:.0f} to {high:.0f} GPU-hours of one A100 ({command}).\n" in text


def test_operations_are_counted_once_for_a_code(folder, monkeypatch, capsys):
    monkeypatch.setattr(operations, "FILE", folder / "operations.json")
    first = estimated("experiment=smoke")
    assert "counting operations" in capsys.readouterr().err
    # Nothing is built: the networks are not asked for.
    monkeypatch.setattr(counting, "without_weights", lambda family, *_: pytest.fail(family))
    again = estimated("experiment=smoke", "seeds=[1, 2]")
    assert again.nodes["train", "lvm"].operations == 2 * first.nodes["train", "lvm"].operations
    content = json.loads(operations.FILE.read_text())
    for damaged in ("{", "[]", json.dumps(content | {"code": "another"}), json.dumps(content | {"format": 0})):
        operations.FILE.write_text(damaged)
        with pytest.raises(pytest.fail.Exception):
            estimated("experiment=smoke")


def test_what_cannot_be_counted_is_named_and_left_out(folder, monkeypatch, capsys):
    monkeypatch.setattr(operations, "FILE", folder / "operations.json")

    def fails(*_arguments):
        raise RuntimeError("it reads a file")

    monkeypatch.setattr(counting, "search", fails)
    for _ in range(2):
        # Also the second time, when all that was counted is kept.
        planned = estimated("experiment=smoke")
        assert "it reads a file" in capsys.readouterr().err
    assert planned.nodes["translate", "lvm"].gpu_hours is None and training(planned, "lvm").gpu_hours[0] > 0


def test_operations_of_jobs_add_up():
    plan = Plan(load_experiment("smoke"))
    counted = operations.Operations(plan, Sizes(600, 12.0))
    (decode,) = (decode for decode in plan.loaded.decodes if decode.tune and "step_size" in decode.tune)
    assert counted.of(Work("score", None, searches=decode.combinations)) is None
    one, all_of_them = (counted.of(Work("score", 24.0, searches=decode.combinations, every=e)) for e in (False, True))
    assert all_of_them == pytest.approx(len(decode.combinations) * one)
    assert counted.of(Work("score", 48.0, searches=decode.combinations)) == pytest.approx(2 * one)
    # A rescorer reads every candidate.
    settings = searches()["latent-search"].settings(lengths=2, samples=2, steps=0, rescorer="teacher")
    own, ranked = (
        counted.of(Work("lvm", 12.0, searches=(settings.model_copy(update={"rescorer": rescorer}),)))
        for rescorer in (None, "teacher")
    )
    assert ranked - own == counting.scoring(
        counting.without_weights("transformer", plan.system("teacher").model, counted.sizes), 12, 4
    )


def test_counts_that_cannot_be_kept_are_a_warning(folder, monkeypatch, capsys):
    (folder / "work").write_text("")
    monkeypatch.setattr(operations, "FILE", folder / "work" / "operations.json")
    assert estimated("experiment=smoke").nodes["train", "lvm"].operations
    assert "warning: counted operations are not kept" in capsys.readouterr().err
