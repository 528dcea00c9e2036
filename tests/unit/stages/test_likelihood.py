"""Likely pairs: scores against a search's steps one by one; what is kept, against sorting; planted pairs go first."""

import json
import math
import random
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from workflow_src.config.preparation import SubwordsConfig
from workflow_src.data import encoded
from workflow_src.data.batching import pad
from workflow_src.data.drops import left_out
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.data.subwords import learn
from workflow_src.errors import ArtifactError
from workflow_src.records.atomic import read_json
from workflow_src.stages.keep_likely import dual_cross_entropy, reasons
from workflow_src.training.systems import load_system
from workflow_src.types import BOS, EOS


def scoring_words(model, subwords, pairs, output, shard=0, shards=1, batch=7):
    words = ["--model", str(model), "--subwords", str(subwords), "--pairs", str(pairs), "--output", str(output)]
    words += ["--settings", json.dumps({"batch": batch}), "--device", "cpu"]
    return [*words, "--shard", str(shard), "--shards", str(shards)]


def keeping_words(model, subwords, pairs, shards, prefix, **settings):
    content = {"backward": None, "keep": 1.0, "maximum": None} | settings
    words = ["--settings", json.dumps(content), "--system", "teacher", "--model", str(model)]
    words += ["--subwords", str(subwords), "--pairs", str(pairs), "--shards", *map(str, shards)]
    return [*words, "--output-prefix", str(prefix)]


def read_scores(*paths):
    return [json.loads(line)["score"] for path in paths for line in path.read_text().splitlines()]


def cost(model, source, target):
    """Mean -log p of a target subword by the search's own steps, which read one subword after the other."""
    decoder, total = model.start(model.encode(pad([source], eos=True))), 0.0
    for before, following in zip([BOS, *target], [*target, EOS], strict=True):
        logits = decoder.step(torch.tensor([before]))
        total -= float(logits.log_softmax(1)[0, following])
    return total / (len(target) + 1)


@pytest.mark.parametrize("batch", [1, 7])
def test_scores_are_those_of_reading_one_subword_after_the_other(tiny, systems, run_stage, tmp_path, batch):
    pairs = tiny.root / "encoded/train"
    paths = [tmp_path / f"{shard}.jsonl" for shard in range(3)]
    for shard, path in enumerate(paths):
        run_stage("score_pairs", scoring_words(systems["transformer"], tiny.folder, pairs, path, shard, 3, batch))
    model, _ = load_system(systems["transformer"])
    with torch.inference_mode():
        expected = [cost(model, tiny.train.source(row).tolist(), tiny.train.target(row).tolist()) for row in range(40)]
    assert [len(path.read_text().splitlines()) for path in paths] == [13, 13, 14]
    assert read_scores(*paths) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize(
    ("keep", "maximum"), [(1.0, None), (0.5, None), (0.1, None), (1.0, 0.4), (0.5, 0.3), (0.001, 5)]
)
def test_the_likeliest_pairs_are_kept(keep, maximum):
    draw = np.random.default_rng(3)
    scores = np.round(draw.random(101), 1)
    verdicts = reasons(scores, keep, maximum)
    count = max(1, round(keep * 101))
    ranked = sorted(range(101), key=lambda row: (scores[row], row))
    expected = {row for row in ranked[:count] if maximum is None or scores[row] <= maximum}
    assert {row for row, verdict in enumerate(verdicts) if verdict is None} == expected
    assert all(verdicts[row] == "maximum" for row in ranked if maximum is not None and scores[row] > maximum)
    assert reasons(np.array([math.inf, 1.0]), 0.5, None) == ["keep", None]


@pytest.fixture(scope="module")
def planted(tiny, training_words, run_stage, tmp_path_factory):
    """Pairs of which 12 have the target of another pair, and a teacher that has learnt from all of them."""
    folder, draw = tmp_path_factory.mktemp("planted"), random.Random(1)
    pairs = [(tiny.train.source(row).tolist(), tiny.train.target(row).tolist(), False) for row in range(40)]
    for source, target, _ in draw.sample(pairs, 12):
        near = [other for _, other, _ in pairs[:40] if other != target and abs(len(other) - len(target)) <= 1]
        pairs.append((source, draw.choice(near), True))
    draw.shuffle(pairs)
    counted = ("format", "pairs", "digest", "dtype", "provenance")
    summary = {name: value for name, value in tiny.train.summary.items() if name not in counted}
    summary["placeholders"] = {"pairs": 3, "spans": 4, "without_partner": 1}
    prefix, scores = folder / "train", folder / "0.jsonl"
    encoded.write(prefix, ((source, target) for source, target, _ in pairs), summary)
    much = {"max_steps": 300, "warmup_steps": 50, "learning_rate": 0.01, "batch_tokens": 300}
    words = training_words("transformer", folder, validate_every=300, save_every=300, **much)
    words[words.index("--train") + 1] = str(prefix)
    run_stage("train", words)
    model = folder / "model.safetensors"
    run_stage("score_pairs", scoring_words(model, tiny.folder, prefix, scores))
    wrong = [row for row, pair in enumerate(pairs) if pair[2]]
    return SimpleNamespace(prefix=prefix, model=model, shard=scores, wrong=wrong, pairs=pairs)


def test_wrong_targets_are_less_likely_and_go_first(tiny, planted, run_stage, tmp_path):
    scores = np.array(read_scores(planted.shard))
    wrong, right = scores[planted.wrong], np.delete(scores, planted.wrong)
    # The share of pairs of a wrong and a right one in which the wrong one is less likely.
    assert (wrong[:, None] > right[None]).mean() > 0.9
    words = keeping_words(
        planted.model, tiny.folder, planted.prefix, [planted.shard], tmp_path / "likely", keep=40 / 52
    )
    assert run_stage("keep_likely", words) == f"kept 40 of 52 pairs{left_out({'unlikely': 12})}"
    kept = EncodedCorpus.open(tmp_path / "likely")
    kept.verify()
    expected = [row for row in range(52) if scores[row] <= np.sort(scores)[39]]
    own = [(kept.source(row).tolist(), kept.target(row).tolist()) for row in range(40)]
    assert own == [planted.pairs[row][:2] for row in expected]
    assert len(set(expected) & set(planted.wrong)) <= 4
    summary = read_json(tmp_path / "likely.json")
    assert summary["placeholders"] == {"pairs": 3, "spans": 4, "without_partner": 1}
    step = summary["likelihood"]
    assert (step["read"], step["dropped"], summary["dropped"]) == (52, {"keep": 12}, {"unlikely": 12})
    assert step["largest_kept"] == pytest.approx(np.sort(scores)[39]) and len(step["examples"]) == 3
    for example in step["examples"]:
        row = example["line"] - 1
        assert row not in expected and example["reason"] == f"{scores[row]:.2f} nats"
        assert [example["source"]] == tiny.subwords.decode_source([planted.pairs[row][0]])
        assert [example["target"]] == tiny.subwords.decode_target([planted.pairs[row][1]])


def test_scores_of_other_pairs_and_damaged_ones_are_refused(tiny, planted, run_stage, tmp_path):
    words = keeping_words(planted.model, tiny.folder, tiny.root / "encoded/train", [planted.shard], tmp_path / "likely")
    with pytest.raises(ArtifactError) as refused:
        run_stage("keep_likely", words)
    assert refused.value.path == str(planted.shard) and "pairs" in refused.value.problem
    damaged = tmp_path / "0.jsonl"
    shutil.copy(planted.shard.with_suffix(".json"), tmp_path)
    damaged.write_text(planted.shard.read_text().replace("0.", "1.", 1))
    with pytest.raises(ArtifactError) as refused:
        run_stage("keep_likely", keeping_words(planted.model, tiny.folder, planted.prefix, [damaged], tmp_path / "x"))
    assert refused.value.path == str(damaged) and not list(tmp_path.glob("x*"))


def test_a_maximum_that_leaves_nothing_is_refused(tiny, planted, run_stage, tmp_path):
    words = keeping_words(
        planted.model, tiny.folder, planted.prefix, [planted.shard], tmp_path / "likely", maximum=1e-6
    )
    with pytest.raises(ArtifactError) as refused:
        run_stage("keep_likely", words)
    assert "likelihood.teacher.maximum" in str(refused.value) and not list(tmp_path.glob("likely*"))


@pytest.fixture(scope="module")
def directions(tiny, run_stage, tmp_path_factory):
    """Encoded pairs with a vocabulary for each language, and the same with the languages exchanged, by folder."""
    folders = []
    for codes in (("de", "en"), ("en", "de")):
        root = tmp_path_factory.mktemp("-".join(codes))
        texts = [tiny.corpus / f"train.{code}" for code in codes]
        learn(SubwordsConfig(vocabulary_size=45, joint=False), *texts, root / "subwords")
        for split in ("train", "dev"):
            words = ["--settings", '{"max_length": 50}', "--subwords", str(root / "subwords")]
            words += ["--languages", "de", "en", "--split", split]
            words += ["--source", str(tiny.corpus / f"{split}.{codes[0]}")]
            words += ["--target", str(tiny.corpus / f"{split}.{codes[1]}")]
            run_stage("encode", [*words, "--output-prefix", str(root / "encoded" / split)])
        folders.append(root)
    return folders


def trained_weights(root, reference, output, training_words, run_stage, **more):
    """Weights of a teacher trained a little on the encoded pairs of `root`."""
    words = training_words("transformer", output, max_steps=4, validate_every=4)
    settings = json.loads(words[1]) | more
    words[1] = json.dumps(settings)
    options = {"--train": "encoded/train", "--dev": "encoded/dev", "--subwords": "subwords"}
    for option, path in options.items():
        words[words.index(option) + 1] = str(root / path)
    words[words.index("--reference") + 1] = str(reference)
    run_stage("train", words)
    return output / "model.safetensors"


@pytest.fixture(scope="module")
def reversed_weights(directions, tiny, training_words, run_stage, tmp_path_factory):
    output = tmp_path_factory.mktemp("reversed")
    return trained_weights(directions[0], tiny.corpus / "dev.de", output, training_words, run_stage, reversed=True)


def test_a_reversed_system_is_one_of_the_languages_exchanged(
    directions, tiny, training_words, run_stage, reversed_weights, tmp_path
):
    exchanged = trained_weights(directions[1], tiny.corpus / "dev.de", tmp_path, training_words, run_stage)
    (ours, description), (theirs, _) = load_system(reversed_weights), load_system(exchanged)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in ours.state_dict().items())
    assert description["reversed"] is True
    figures = [(path.parent / "training.jsonl").read_text().splitlines()[-1] for path in (reversed_weights, exchanged)]
    assert json.loads(figures[0])["dev_bleu"] == json.loads(figures[1])["dev_bleu"]


def test_a_reversed_system_scores_the_source_by_the_target(directions, run_stage, reversed_weights, tmp_path):
    root = directions[0]
    run_stage(
        "score_pairs", scoring_words(reversed_weights, root / "subwords", root / "encoded/train", tmp_path / "0.jsonl")
    )
    model, _ = load_system(reversed_weights)
    corpus = EncodedCorpus.open(root / "encoded/train")
    with torch.inference_mode():
        expected = [cost(model, corpus.target(row).tolist(), corpus.source(row).tolist()) for row in range(len(corpus))]
    assert read_scores(tmp_path / "0.jsonl") == pytest.approx(expected, abs=2e-5)


def test_the_dual_cross_entropy_asks_for_both_directions_and_their_agreement():
    forward, backward = np.array([1.0, 1.0, 3.0, 2.0]), np.array([1.0, 3.0, 1.0, 2.0])
    assert dual_cross_entropy(forward, backward).tolist() == [1.0, 4.0, 4.0, 2.0]


def test_pairs_are_kept_by_the_scores_of_both_directions(
    directions, tiny, training_words, run_stage, reversed_weights, tmp_path
):
    root = directions[0]
    reference = tiny.corpus / "dev.reference.en"
    forward = trained_weights(root, reference, tmp_path / "forward", training_words, run_stage)
    paths = {name: tmp_path / f"{name}.jsonl" for name in ("forward", "backward")}
    pairs = root / "encoded/train"
    for path, model in zip(paths.values(), (forward, reversed_weights), strict=True):
        run_stage("score_pairs", scoring_words(model, root / "subwords", pairs, path))
    words = keeping_words(
        forward, root / "subwords", pairs, [paths["forward"]], tmp_path / "likely", keep=0.5, backward="back"
    )
    words += ["--backward-model", str(reversed_weights), "--backward-shards", str(paths["backward"])]
    run_stage("keep_likely", words)
    scores = dual_cross_entropy(*(np.array(read_scores(path)) for path in paths.values()))
    kept, whole = EncodedCorpus.open(tmp_path / "likely"), EncodedCorpus.open(pairs)
    rows = sorted(np.argsort(scores, kind="stable")[:20].tolist())
    assert [kept.source(row).tolist() for row in range(20)] == [whole.source(row).tolist() for row in rows]
    step = read_json(tmp_path / "likely.json")["likelihood"]
    assert step["title"] == "Likelihood under teacher and back"
    assert step["mean"] == pytest.approx(scores.mean(), abs=1e-9)
    # Shards of another system are refused.
    words[-1] = str(paths["forward"])
    with pytest.raises(ArtifactError):
        run_stage("keep_likely", words)
