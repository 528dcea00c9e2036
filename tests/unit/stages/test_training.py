"""Training, distilling, exporting and decoding, by the real stages on a miniature corpus."""

import json
import math
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from stage_words import distill_words

from workflow_src.config.preparation import SubwordsConfig
from workflow_src.config.training import TrainingConfig
from workflow_src.data import encoded, subwords
from workflow_src.decoding import batches
from workflow_src.errors import MISSING
from workflow_src.families.build import build
from workflow_src.records.atomic import load_tensors, read_json, save_tensors, sha256, write_json
from workflow_src.training.systems import load_system


def same(first: Path, second: Path) -> bool:
    one, other = load_tensors(first), load_tensors(second)
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("family", ["transformer", "lvm", "score", "energy"])
def test_a_trained_system_is_described_beside_its_weights(systems, tiny, family):
    folder = systems[family].parent
    model, description = load_system(systems[family])
    assert not model.training
    assert description["sizes"] == tiny.sizes
    assert description["parameters"] == sum(tensor.numel() for tensor in load_tensors(systems[family]).values())
    steps = 40 if family == "transformer" else 12
    assert description["steps"] == steps and description["seed"] == 1 and description["precision"] == "float32"
    TrainingConfig.model_validate(description["training"])
    history = [json.loads(line) for line in (folder / "training.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in history] == [steps // 2, steps, steps]
    assert history[-1]["averaged"] == 2
    assert description["target_tokens_seen"] == history[-1]["target_tokens"] > 0
    names = {"train", "dev", "subwords", "reference"}
    names |= {"lvm": {"initial"}, "score": {"base"}, "energy": {"base"}}.get(family, set())
    inputs = description["provenance"]["inputs"]
    assert inputs.keys() == names
    assert all(sha256(entry["path"]) == entry["sha256"] for entry in inputs.values())
    assert not list(folder.rglob("*.partial"))


def test_the_teacher_learns(systems):
    history = [json.loads(line) for line in (systems["transformer"].parent / "training.jsonl").open()]
    assert history[1]["loss"] < history[0]["loss"] and history[1]["dev_loss"] < history[0]["dev_loss"]


def test_a_mixture_of_texts_is_counted_and_recorded(tiny, tiny_settings, training_words, run_stage, tmp_path):
    weights = {"distilled-by-teacher": 1.0, "raw": 0.5}
    words = training_words("nat", tmp_path, settings=tiny_settings("nat") | {"data": weights})
    words.insert(words.index("--train") + 1, f"{tiny.root}/encoded/train")
    run_stage("train", words)
    description = read_json(tmp_path / "config.json")
    assert description["data"] == weights
    assert description["texts"] == {
        "distilled-by-teacher": {"pairs": 40, "weight": 1.0, "pairs_an_epoch": 40.0},
        "raw": {"pairs": 40, "weight": 0.5, "pairs_an_epoch": 20.0},
    }
    assert {"train distilled-by-teacher", "train raw"} < description["provenance"]["inputs"].keys()


def test_where_systems_start_from(systems, tiny, training_words, run_stage, tmp_path):
    """Without updates the weights are the ones that a system starts from, where names and shapes agree."""
    teacher, lvm = load_tensors(systems["transformer"]), load_tensors(systems["lvm"])
    run_stage("train", training_words("score", tmp_path, base=systems["lvm"], max_steps=0))
    started = load_tensors(tmp_path / "model.safetensors")
    copied = [name for name in started if name.startswith("stack.")]
    assert copied and all(
        torch.equal(started[name], lvm[name.replace("stack.", "decoder_stack.", 1)]) for name in copied
    )
    hardly = {"max_steps": 1, "learning_rate": 1e-12, "keep": "last"}
    run_stage("train", training_words("lvm", tmp_path / "l", initial=systems["transformer"], **hardly))
    started = load_tensors(tmp_path / "l/model.safetensors")
    for stack in ("prior_stack", "posterior_stack", "decoder_stack"):
        name = "layers.0.feed_forward.inner.weight"
        torch.testing.assert_close(started[f"{stack}.{name}"], teacher[f"decoder.{name}"], rtol=0, atol=1e-9)
    torch.testing.assert_close(
        started["source_embedding.weight"], teacher["source_embedding.weight"], rtol=0, atol=1e-9
    )


def test_a_refiner_may_start_as_it_was_initialised(systems, tiny, tiny_settings, training_words, run_stage, tmp_path):
    """Without updates: the weights of the seed, or the initial weights where there are some."""
    family = "score"
    words = {"base": systems["lvm"], "max_steps": 0, "seed": 5, "model": {"start": "random"}}
    run_stage("train", training_words(family, tmp_path / "a", **words))
    torch.manual_seed(5)
    initialised = build(family, tiny_settings(family)["model"], tiny.sizes).state_dict()
    started = load_tensors(tmp_path / "a/model.safetensors")
    assert started and all(torch.equal(tensor, initialised[name]) for name, tensor in started.items())
    run_stage("train", training_words(family, tmp_path / "b", initial=systems[family], **words))
    assert same(tmp_path / "b/model.safetensors", systems[family])


def test_a_system_that_was_lost_after_it_was_written_is_written_again(training_words, run_stage, tmp_path, caplog):
    """Snakemake deletes the outputs of a job that failed after training had finished."""
    words = training_words("transformer", tmp_path, max_steps=4)
    run_stage("train", words)
    first = (tmp_path / "model.safetensors").read_bytes()
    threads = read_json(tmp_path / "config.json")["threads"]
    for name in ("model.safetensors", "config.json", "training.jsonl"):
        (tmp_path / name).unlink()
    with caplog.at_level("INFO", "continuum"):
        run_stage("train", [*words, "--threads", "2"])
    assert re.search(r"resumed\D+4 ", caplog.text)
    # The machine is that of the training, not the one that wrote the system again.
    assert read_json(tmp_path / "config.json")["threads"] == threads != 2
    assert (tmp_path / "model.safetensors").read_bytes() == first


def test_what_a_killed_job_left_half_written_is_removed(training_words, run_stage, tmp_path):
    partial_file = tmp_path / ".model.safetensors.abc.partial"
    partial_file.write_bytes(b"x" * 1000)
    run_stage("train", training_words("transformer", tmp_path, max_steps=1))
    assert not partial_file.exists() and (tmp_path / "config.json").exists()


def test_what_changes_weights_has_a_state_of_its_own_and_nothing_else_has(systems, training_words, run_stage, tmp_path):
    """A new version of the code may add a setting with a default, or rename a preset."""

    def is_new(folder, family="transformer", base=None, model=None, preset="miniature", **training):
        """Trains; whether that found no state of an earlier training to go on with."""
        words = training_words(family, folder, base=base, max_steps=4, save_every=4)
        settings = json.loads(words[1])
        settings |= {"model": settings["model"] | (model or {}), "preset": preset}
        settings["training"] |= training
        before = set((folder / "state").glob("*"))
        run_stage("train", [words[0], json.dumps(settings), *words[2:]])
        return set((folder / "state").glob("*")) - before != set()

    folder, fresh = tmp_path / "a", tmp_path / "b"
    assert is_new(folder) and not is_new(folder)
    assert not is_new(folder, clip_norm=1.0, epsilon=1e-9, model={"norm": "pre"}, preset="renamed")
    assert is_new(folder, epsilon=1e-8) and is_new(folder, learning_rate=0.004) and is_new(fresh, learning_rate=0.004)
    assert same(folder / "model.safetensors", fresh / "model.safetensors")
    other_base = tmp_path / "base/model.safetensors"
    other_base.parent.mkdir()
    described = read_json(systems["lvm"].with_name("config.json"))
    del described["sha256"]
    write_json(other_base.with_name("config.json"), described)
    save_tensors(other_base, {name: 2 * tensor for name, tensor in load_tensors(systems["lvm"]).items()})
    assert is_new(tmp_path / "c", "score", systems["lvm"]) and is_new(tmp_path / "c", "score", other_base)
    assert not is_new(tmp_path / "c", "score", other_base)


def test_updates_follow_the_corpus_and_the_same_training_goes_on(tiny, training_words, run_stage, tmp_path, caplog):
    """The numbers are recorded, a second run of the job goes on with them, and other bounds start afresh."""
    tokens = int(tiny.train.target_lengths.sum()) + len(tiny.train)
    auto = {"warmup_steps": "auto", "validate_every": "auto", "save_every": "auto"}
    auto_settings = auto | {"max_steps": {"epochs": 8}}
    run_stage("train", training_words("transformer", tmp_path, **auto_settings))
    description = read_json(tmp_path / "config.json")
    updates = description["steps"]
    assert description["target_tokens_seen"] == 8 * tokens and updates > 20
    every = math.ceil(updates / 10)
    numbers = {"max_steps": updates, "warmup_steps": updates // 20, "validate_every": every}
    assert description["training"].items() >= numbers.items()
    history = [json.loads(line) for line in (tmp_path / "training.jsonl").read_text().splitlines()]
    steps = [entry["step"] for entry in history if "averaged" not in entry]
    assert steps == [*range(every, updates, every), updates]
    # As numbers they are the same training, whose state is found: numbers from the corpus are in its fingerprint.
    for words, logged in (
        (auto_settings, f"resumed at step {updates}"),
        (numbers | {"save_every": 3}, f"resumed at step {updates}"),
        (auto | {"max_steps": {"epochs": 8, "at_most": 4}}, "starts afresh"),
    ):
        caplog.clear()
        with caplog.at_level("INFO", "continuum"):
            run_stage("train", training_words("transformer", tmp_path, **words))
        assert logged in caplog.text
    assert read_json(tmp_path / "config.json")["steps"] == 4


def _with_a_flipped_bit(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def _without_header(path):
    path.write_bytes(path.read_bytes()[8:])


@pytest.mark.parametrize(
    ("spoil", "file", "fields"),
    [
        (lambda f: f.unlink(), "model.safetensors", {"problem": MISSING}),
        (_without_header, "model.safetensors", {"fix": "make or copy it again"}),
        (lambda f: save_tensors(f, {"x": torch.ones(2)}), "model.safetensors", {"problem": "has no output_bias"}),
        (_with_a_flipped_bit, "model.safetensors", {"mentions": ("checksum",)}),
        (lambda f: f.with_name("config.json").write_text("{}"), "config.json", {"mentions": ("family, model, sizes",)}),
        (
            lambda f: f.with_name("config.json").write_text(f.with_name("config.json").read_text().replace("16", "15")),
            None,
            {"setting": "lvm.model.dim", "value": 15},
        ),
    ],
    ids=["missing", "damaged", "others", "a bit", "empty description", "wrong description"],
)
def test_a_base_that_cannot_be_used_is_named(systems, training_words, refused, tmp_path, spoil, file, fields):
    base = tmp_path / "base" / "model.safetensors"
    base.parent.mkdir()
    for name in ("model.safetensors", "config.json"):
        (base.parent / name).write_bytes((systems["lvm"].parent / name).read_bytes())
    spoil(base)
    fields = fields | {"path": str(base.with_name(file))} if file else fields
    refused("train", training_words("score", tmp_path / "out", base=base), **fields)
    assert not (tmp_path / "out").exists()


def test_a_base_that_its_settings_make_unfit_is_refused(training_words, run_stage, refused, tmp_path):
    """A family may have latents that a model of it has not."""
    run_stage("train", training_words("nat", tmp_path / "plain", max_steps=2))
    plain = tmp_path / "plain" / "model.safetensors"
    fields = {"path": str(plain), "problem": "is of family nat", "mentions": ("has latents", "model settings")}
    refused("train", training_words("score", tmp_path / "out", base=plain), **fields)
    assert not (tmp_path / "out").exists()


def test_inputs_that_do_not_fit_are_refused(systems, tiny, training_words, refused, tmp_path):
    out = tmp_path / "out"
    refused("train", training_words("score", out), setting="base", mentions=("family score", "latent"))
    words, mentions = training_words("score", out, base=systems["transformer"]), ("family transformer; ", "lvm or nat")
    refused("train", words, path=str(systems["transformer"]), mentions=mentions)
    words = training_words("transformer", out)
    short = tmp_path / "short.en"
    short.write_text("the dog\n")
    words[words.index("--reference") + 1] = str(short)
    refused("train", words, path=str(short), problem=f"has 1 lines, {tiny.root}/encoded/dev has 8 pairs")
    words = training_words("transformer", tmp_path / "with another summary")
    other = tmp_path / "other.json"
    other.write_text('{"pairs": {}}')
    words[words.index("--corpus-summary") + 1] = str(other)
    refused("train", words, path=str(other), mentions=("normalisation",))
    words = training_words("transformer", out)
    words[words.index("--device") + 1] = "cuda:7"
    error = refused("train", words)
    assert (error.setting, error.value) == ("device", "cuda:7")
    assert not out.exists() or {path.name for path in out.glob("*.*")} <= {"state.lock"}


def test_initial_weights_that_serve_for_nothing_are_refused(systems, training_words, refused, tmp_path):
    """They would be passed over in silence, and an untrained system exported."""
    other = tmp_path / "other.safetensors"
    save_tensors(other, {"some.weight": torch.ones(3)})
    for family, base in (("transformer", None), ("lvm", None), ("score", systems["lvm"])):
        error = refused("train", training_words(family, tmp_path / "out", base=base, initial=other))
        assert error.path == str(other) and error.problem.startswith("has 0 of ")
    # Of another kind of network a bias may fit by chance.
    biases = {name: tensor for name, tensor in load_tensors(systems["transformer"]).items() if tensor.dim() == 1}
    save_tensors(other, dict(list(biases.items())[:1]))
    error = refused("train", training_words("transformer", tmp_path / "out", initial=other))
    assert error.path == str(other) and error.problem.startswith("has 1 of ")
    part = tmp_path / "part.safetensors"
    tensors = load_tensors(systems["transformer"])
    save_tensors(part, dict(list(tensors.items())[:-1]))
    error = refused("train", training_words("transformer", tmp_path / "out", initial=part, max_steps=0))
    assert error.path == str(part)
    assert [int(number) for number in re.findall(r"\d+", error.problem)] == [len(tensors) - 1, len(tensors)]
    assert not (tmp_path / "out/model.safetensors").exists()


def test_matches_continue_trained_weights_of_the_same_network_alone(systems, training_words, refused, tmp_path):
    """Outputs of an untrained network match nothing."""
    words = training_words("nat", tmp_path / "out", initial=systems["transformer"], max_steps=5)
    settings = json.loads(words[1])
    settings["objective"] = {"ngrams": 2}
    words[1] = json.dumps(settings)
    refused("train", words, path=str(systems["transformer"]), problem="is of family transformer")


def test_a_damaged_dev_set_is_refused(tiny, training_words, refused, tmp_path):
    for file in (tiny.root / "encoded").glob("dev*"):
        shutil.copy(file, tmp_path)
    _with_a_flipped_bit(tmp_path / "dev.source.bin")
    words = training_words("transformer", tmp_path / "out")
    words[words.index("--dev") + 1] = str(tmp_path / "dev")
    error = refused("train", words, path=str(tmp_path / "dev"))
    assert error.problem.startswith("is damaged")


@pytest.mark.parametrize("max_steps", [0, 5])
def test_weights_of_other_subwords_are_refused(max_steps, systems, training_words, refused, tmp_path):
    """There are as many of them, so that embeddings have the same shape."""
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(systems["transformer"].read_bytes())
    description = json.loads(systems["transformer"].with_name("config.json").read_text())
    weights.with_name("config.json").write_text(json.dumps(description | {"subwords": "0" * 64}))
    error = refused("train", training_words("transformer", tmp_path / "out", initial=weights, max_steps=max_steps))
    assert error.path == str(weights) and "digest 000000000000" in error.problem
    assert not (tmp_path / "out/model.safetensors").exists()


DISTILLATION = {"beam": 2, "length_penalty": 1.0}


def merge_words(tiny, systems, shards, folder, source=None, **settings):
    words = ["--settings", json.dumps(DISTILLATION | settings), "--shards", *map(str, shards)]
    words += ["--model", str(systems["transformer"]), "--subwords", str(tiny.folder)]
    words += ["--source", str(source or tiny.corpus / "train.de")]
    return [*words, "--output-text", str(folder / "train.en"), "--output-scores", str(folder / "scores.txt")]


@pytest.fixture(scope="module")
def shards(tiny, systems, tmp_path_factory, run_stage):
    """Number of shards -> their files."""
    folder = tmp_path_factory.mktemp("shards")
    paths_by_count = {count: [folder / f"{i}-of-{count}.jsonl" for i in range(count)] for count in (1, 2, 3)}
    for count, paths in paths_by_count.items():
        for shard, path in enumerate(paths):
            words = distill_words(systems["transformer"], tiny.folder, tiny.corpus / "train.de", path, shard, count)
            run_stage("distill", words)
    return paths_by_count


def test_distilling_in_shards_changes_nothing(tiny, systems, shards, run_stage, tmp_path):
    texts, scores = {}, {}
    for count, paths in shards.items():
        run_stage("merge_distilled", merge_words(tiny, systems, paths, tmp_path / str(count)))
        texts[count] = (tmp_path / str(count) / "train.en").read_text()
        scores[count] = [float(line) for line in (tmp_path / str(count) / "scores.txt").read_text().splitlines()]
    assert texts[1] == texts[2] == texts[3] and texts[1].count("\n") == len(scores[1]) == 40
    assert scores[2] == pytest.approx(scores[1], abs=2e-5) and scores[3] == pytest.approx(scores[1], abs=2e-5)
    assert all(score < 0 for score in scores[1])
    assert [len(path.read_text().splitlines()) for path in shards[3]] == [13, 13, 14]


def test_long_sentences_and_line_breaks_in_outputs_keep_lines_aligned(tiny, systems, run_stage, tmp_path, monkeypatch):
    source = tmp_path / "train.de"
    source.write_text("der Hund ruht\n" + "Hund " * 80 + "\n\nder Mann kommt\n", encoding="utf-8")
    nibbles = tiny.subwords.encode_target(["a\nb"])[0]
    assert tiny.subwords.decode_target([nibbles]) == ["a\nb"]
    real = batches.search_rows

    def spelling_line_breaks(*words, **options):
        outputs = real(*words, **options)
        if outputs.tokens:
            outputs.tokens[0] = nibbles
        return outputs

    monkeypatch.setattr(batches, "search_rows", spelling_line_breaks)
    words = distill_words(systems["transformer"], tiny.folder, source, tmp_path / "s.jsonl", engine="eager")
    summary = run_stage("distill", words)
    assert summary.endswith("4 sentences, 1 too long and left empty")
    run_stage("merge_distilled", merge_words(tiny, systems, [tmp_path / "s.jsonl"], tmp_path, source))
    lines = (tmp_path / "train.en").read_text().split("\n")
    assert len(lines) == 5 and lines[0] == "a b" and lines[1] == lines[2] == "" != lines[3]


@pytest.mark.parametrize(
    ("spoil", "fields"),
    [
        (lambda lines: lines[:-1], {"line": None, "mentions": ("19 lines", "20")}),
        (lambda lines: [*lines[:4], lines[4][:9], *lines[5:]], {"line": 5, "mentions": ("damaged (",)}),
        (lambda lines: ['{"text": "a"}', *lines[1:]], {"line": 1, "mentions": ("damaged ('score')",)}),
        (lambda lines: ['{"text": 1, "score": 1.0}', *lines[1:]], {"line": 1, "mentions": ("damaged (",)}),
    ],
    ids=["missing line", "cut line", "no score", "no text"],
)
def test_a_shard_that_is_not_whole_is_named(tiny, systems, shards, refused, tmp_path, spoil, fields):
    """As a job of another version could leave it: the record fits the file, the file does not fit its place."""
    second = tmp_path / "second.jsonl"
    second.write_text("".join(f"{line}\n" for line in spoil(shards[2][1].read_text().splitlines())))
    record = read_json(shards[2][1].with_suffix(".json"))
    record["provenance"]["files"] = {second.name: sha256(second)}
    write_json(second.with_suffix(".json"), record)
    words = merge_words(tiny, systems, [shards[2][0], second], tmp_path / "out")
    refused("merge_distilled", words, path=str(second), **fields)
    assert os.listdir(tmp_path / "out") == []


def test_distilling_refuses_what_does_not_fit(tiny, systems, refused, tmp_path):
    out = tmp_path / "out.jsonl"
    words = distill_words(systems["lvm"], tiny.folder, tiny.corpus / "train.de", out)
    refused("distill", words, path=str(systems["lvm"]), mentions=("family lvm; ", "transformer or seq2seq "))
    broken = tmp_path / "bad.de"
    broken.write_bytes(b"der Hund\nder \xff\n")
    error = refused("distill", distill_words(systems["transformer"], tiny.folder, broken, out))
    assert (error.path, error.line) == (str(broken), 2) and "UTF-8" in error.problem
    assert sorted(os.listdir(tmp_path)) == ["bad.de"]


def test_subwords_of_another_size_are_refused(tiny, systems, refused, export_words, tmp_path):
    learnt = SubwordsConfig(vocabulary_size=55, joint=True)
    subwords.learn(learnt, tiny.corpus / "train.de", tiny.corpus / "train.en", tmp_path / "subwords")
    for stage, words in (
        (
            "distill",
            distill_words(systems["transformer"], tiny.folder, tiny.corpus / "train.de", tmp_path / "out.jsonl"),
        ),
        ("export_bundle", export_words(systems["transformer"], None, tmp_path / "bundle")),
    ):
        words[words.index("--subwords") + 1] = str(tmp_path / "subwords")
        error = refused(stage, words)
        assert error.path == str(systems["transformer"])
        assert re.findall(r"\d+", error.problem) == ["62", "62", "55", "55"]
    assert not (tmp_path / "bundle/bundle.json").exists()


def test_training_on_text_encoded_with_other_subwords_is_refused(tiny, training_words, refused, tmp_path):
    learnt = SubwordsConfig(vocabulary_size=55, joint=True)
    subwords.learn(learnt, tiny.corpus / "train.de", tiny.corpus / "train.en", tmp_path / "subwords")
    words = training_words("transformer", tmp_path / "out")
    words[words.index("--subwords") + 1] = str(tmp_path / "subwords")
    refused("train", words, path=f"{tiny.root}/encoded/train", mentions=(f"other subwords than {tmp_path}/subwords",))


def test_a_sentence_beyond_the_positions_is_refused_before_training(training_words, refused, tmp_path):
    error = refused("train", training_words("transformer", tmp_path, model={"max_positions": 4}))
    assert "the model has 4 positions" in error.problem and "model.max_positions" in error.fix


def test_training_pairs_beyond_the_positions_are_left_out_counted_and_said(
    training_words, refused, run_stage, tiny, tmp_path, caplog
):
    lengths = [3, 4, 4, 30] * 10
    sentences = [list(range(4, 4 + count)) for count in lengths]
    summary = {"subwords_digest": tiny.subwords.digest}
    encoded.write(tmp_path / "train", zip(sentences, sentences, strict=True), summary, tiny.sizes["source"])
    longest = max(int(tiny.dev.source_lengths.max()), int(tiny.dev.target_lengths.max()))
    assert longest < 30
    words = training_words("transformer", tmp_path / "out", model={"max_positions": longest + 1}, max_steps=1)
    words[words.index("--train") + 1] = str(tmp_path / "train")
    run_stage("train", words)
    description = json.loads((tmp_path / "out/config.json").read_text())
    assert description["without_positions"] == 10
    assert description["longest_source"] == 4
    (warning,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert "warning: 25.0 % " in warning and "model.max_positions" in warning
    encoded.write(tmp_path / "train", zip(sentences[3::4], sentences[3::4], strict=True), summary, tiny.sizes["source"])
    error = refused("train", [*words, "--state", str(tmp_path / "other")])
    assert error.path == str(tmp_path / "train") and "model.max_positions" in error.fix


@pytest.mark.parametrize(
    ("training", "warned"),
    [({"accumulate": 50}, "training.accumulate"), ({"warmup_steps": 3}, "warmup_steps"), ({}, None)],
)
def test_a_training_says_what_its_settings_do_not_hold(training, warned, training_words, run_stage, tmp_path, caplog):
    run_stage("train", training_words("transformer", tmp_path, **{"max_steps": 2, "warmup_steps": 2} | training))
    warnings = [message for message in caplog.messages if message.startswith("warning: ")]
    assert [warned in message for message in warnings] == ([True] if warned else [])


@pytest.mark.parametrize(("latents", "warned"), [({"latent": "vae", "head_scale": 1e-3}, True), ({}, False)])
def test_a_training_says_that_its_latents_have_collapsed(latents, warned, training_words, run_stage, tmp_path, caplog):
    """After one update heads that start near 0 say nothing."""
    run_stage("train", training_words("nat", tmp_path, model=latents, max_steps=1, validate_every=1))
    warnings = [record.getMessage() for record in caplog.records if "collapsed" in record.getMessage()]
    assert len(warnings) == warned and all(
        line.startswith("warning: the latents have collapsed: ") for line in warnings
    )
