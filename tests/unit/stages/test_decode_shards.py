"""Decodes spread over jobs: the same translations as in one job, joined in order and verified."""

import json
import shutil

import pytest

from workflow_src.config.resolved import Decode
from workflow_src.records.atomic import read_json
from workflow_src.records.provenance import described_by
from workflow_src.serving.translator import Translator
from workflow_src.spec import parse

SEARCHES = {
    "beam": ("transformer", {"search": "beam", "beam": 3, "length_penalty": 0.6}),
    "delta": ("lvm", {"search": "delta", "steps": 2}),
    "score": ("score", {"search": "score", "steps": 2, "stop_threshold": 0.05}),
    "latent-search": (
        "score",
        {"search": "latent-search", "steps": 1, "lengths": 2, "samples": 3, "mean_first": False, "search_seed": 4},
    ),
}


@pytest.fixture
def words(tiny, tiny_bundles):
    def make(search, output, source=None, bundle=None, **changes):
        family, settings = SEARCHES[search]
        arguments = ["--settings", json.dumps(settings | changes), "--bundle", str(bundle or tiny_bundles[family])]
        arguments += ["--device", "cpu"]
        if search == "latent-search":
            arguments += ["--systems", f"rescorer={tiny_bundles['transformer']}"]
        arguments += ["--source", str(source or tiny.corpus / "train.de"), "--output", str(output), "--batch", "7"]
        return arguments

    return make


@pytest.fixture
def decoded(words, run_stage):
    """Decode in `count` shards and join them; returns the shards."""

    def make(search, folder, count, source=None):
        paths = [folder / f"{shard}-of-{count}.jsonl" for shard in range(count)]
        for shard, path in enumerate(paths):
            shard_words = ["--shard", str(shard), "--shards", str(count)]
            run_stage("decode", [*words(search, path, source), *shard_words])
        run_stage("decode", [*words(search, folder / "train.txt", source), "--join", *map(str, paths)])
        return paths

    return make


def details(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record.pop("score") for record in records], records


@pytest.mark.parametrize("search", SEARCHES)
def test_shards_change_no_translation(search, words, decoded, run_stage, tmp_path):
    run_stage("decode", words(search, tmp_path / "train.txt"))
    scores, other_fields = details(tmp_path / "train.jsonl")
    for count in (1, 3):
        folder = tmp_path / str(count)
        folder.mkdir()
        decoded(search, folder, count)
        assert (folder / "train.txt").read_bytes() == (tmp_path / "train.txt").read_bytes()
        shard_scores, shard_fields = details(folder / "train.jsonl")
        assert shard_fields == other_fields and len(other_fields) == 40
        # Batches differ between shards, and with them the last bits of sums.
        assert shard_scores == pytest.approx(scores, abs=2e-5)


def test_shards_of_another_precision_or_device_are_not_joined(words, decoded, refused, run_stage, tmp_path):
    first, second = decoded("delta", tmp_path, 2)
    shard_words = ["--shard", "1", "--shards", "2", "--precision", "bfloat16"]
    run_stage("decode", [*words("delta", second), *shard_words])
    error = refused("decode", [*words("delta", tmp_path / "train.txt"), "--join", str(first), str(second)])
    assert error.path == str(second) and "cpu in bfloat16" in error.problem and "cpu in float32" in error.problem
    assert second.name in error.fix


def test_a_decode_ranks_with_the_system_that_it_is_handed(words, run_stage, tiny, tiny_bundles, tmp_path):
    run_stage("decode", words("latent-search", tmp_path / "train.txt"))
    opened = {name: Translator.load(tiny_bundles[name], device="cpu", threads=1) for name in ("score", "transformer")}
    lines = (tiny.corpus / "train.de").read_text().splitlines()
    settings = parse(Decode, SEARCHES["latent-search"][1]).values
    ranked, plain = (
        opened["score"].search(
            lines, opened["score"].request(settings, systems, batch=7, normalised=True, return_scores=True)
        )
        for systems in ({"rescorer": opened["transformer"]}, {})
    )
    assert (tmp_path / "train.txt").read_text().splitlines() == opened["score"].text(ranked.tokens)
    assert ranked.tokens != plain.tokens


def test_more_shards_than_lines(decoded, run_stage, tmp_path):
    source = tmp_path / "one.de"
    source.write_text("der Hund ruht heute\n")
    decoded("beam", tmp_path, 3, source)
    assert len((tmp_path / "train.txt").read_text().splitlines()) == 1


def test_a_line_that_is_too_long_is_named_by_its_place_in_the_whole_text(words, refused, tmp_path):
    source = tmp_path / "long.de"
    source.write_text("der Hund\n" * 3 + "Hund " * 80 + "\n")
    shard_words = ["--shard", "1", "--shards", "2"]
    error = refused("decode", [*words("beam", tmp_path / "s.jsonl", source), *shard_words])
    assert error.subject == "line 4" and list(tmp_path.glob("s.*")) == []


def test_a_shard_that_cannot_be_joined_is_named_and_made_anew_alone(words, decoded, refused, run_stage, tmp_path):
    paths = decoded("beam", tmp_path, 3)
    text = (tmp_path / "train.txt").read_bytes()
    join = [*words("beam", tmp_path / "out/train.txt"), "--join", *map(str, paths)]
    content = paths[1].read_bytes()

    def again():
        run_stage("decode", [*words("beam", paths[1]), "--shard", "1", "--shards", "3"])
        run_stage("decode", join)
        assert (tmp_path / "out/train.txt").read_bytes() == text and paths[1].read_bytes() == content
        shutil.rmtree(tmp_path / "out")

    paths[1].write_bytes(content[:-5] + bytes([content[-5] ^ 2]) + content[-4:])
    refused("decode", join, path=str(paths[1]), mentions=("missing or damaged",))
    again()
    paths[1].unlink()
    refused("decode", join, path=str(paths[1]), mentions=("missing or damaged",))
    again()
    paths[1].with_suffix(".json").unlink()
    refused("decode", join, path=str(paths[1]), mentions=("no record 1-of-3.json",))
    again()
    swapped = [*words("beam", tmp_path / "out/train.txt"), "--join", *map(str, [paths[0], paths[2], paths[1]])]
    refused("decode", swapped, path=str(paths[2]), mentions=("shard 1 of 3",))
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_shards_of_another_request_are_not_joined(words, decoded, refused, run_stage, tiny_bundles, tmp_path):
    """They fit each other; the settings, the system or the text have changed since."""
    paths = decoded("beam", tmp_path, 2)
    text = (tmp_path / "train.txt").read_bytes()

    def join(*source, **changes):
        return [*words("beam", tmp_path / "out/train.txt", *source, **changes), "--join", *map(str, paths)]

    def differs(words, problem):
        both = "0-of-2.jsonl, 1-of-2.jsonl"
        refused("decode", words, path=str(paths[0]), problem=f"was made {problem}", mentions=(both,))

    differs(join(beam=9), "with beam 3, and not 9")
    differs(join(max_length_ratio=1.5), "with max_length_ratio unset, and not 1.5")
    retrained = tmp_path / "retrained"
    retrained.mkdir()
    (retrained / "bundle.json").write_text("{}")
    differs(join(bundle=retrained), f"from another bundle than {retrained / 'bundle.json'} holds now")
    ranked = [*join(), "--systems", f"rescorer={tiny_bundles['transformer']}"]
    differs(ranked, f"without {tiny_bundles['transformer'] / 'bundle.json'} (rescorer)")
    # One of them alone is made anew.
    shard_words = ["--shard", "1", "--shards", "2"]
    run_stage("decode", [*words("beam", paths[1], beam=2), *shard_words])
    refused("decode", join(), path=str(paths[1]), problem="was made with beam 2, and not 3")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    run_stage("decode", [*words("beam", paths[1]), *shard_words])
    run_stage("decode", join())
    assert (tmp_path / "out/train.txt").read_bytes() == text


@pytest.mark.parametrize("shard", [-1, 2])
def test_a_shard_that_is_none_is_refused(words, refused, tmp_path, shard):
    shard_words = ["--shard", str(shard), "--shards", "2"]
    refused("decode", [*words("beam", tmp_path / "s"), *shard_words], setting="shard", value=shard, allowed="0 to 1")


def test_records_say_what_translations_were_made_from(decoded, tiny, tiny_bundles, tmp_path):
    paths = decoded("latent-search", tmp_path, 2)
    provenance = read_json(tmp_path / "train.json")["provenance"]
    assert sorted(provenance["files"]) == ["train.jsonl", "train.txt"]
    assert sorted(provenance["inputs"]) == ["bundle", "rescorer", "shard 0", "shard 1", "source"]
    assert provenance["inputs"]["shard 1"]["record"] == str(paths[1].with_suffix(".json"))
    assert described_by(tmp_path / "train.txt") == tmp_path / "train.json"
    assert described_by(tiny_bundles["score"] / "lvm.safetensors") == tiny_bundles["score"] / "bundle.json"
