"""Stages of a large corpus give the same bytes with any number of threads."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from workflow_src.config.preparation import SubwordsConfig
from workflow_src.data import cleaning, subwords
from workflow_src.runtime import workers
from workflow_src.stages import encode, normalise

FILTERS = [
    ["garbled", {}],
    ["length", {"max_words": 12}],
    # Between others, so that pairs go to the processes twice.
    ["repeated", {"source": 2}],
    ["letters", {}],
    ["ratio", {}],
    ["numbers", {}],
]
WORDS = {
    "de": "der Hund Baum ruht schläft fünf &amp; 1950 %1 http://a.example 😀 fÃ¼nf und noch".split(),
    "en": "the dog tree rests sleeps five &amp; 1951 %1 http://a.example 😀 fÃ¼nf and still".split(),
}
COUNT = 300
PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """Raw text with what filters and normalisation repair and leave out, in blocks so small that there are many."""
    monkeypatch.setattr(workers, "WORTHWHILE", COUNT // 2)
    for module, name in ((cleaning, "BATCH"), (normalise, "BLOCK")):
        monkeypatch.setattr(module, name, 17)
    monkeypatch.setattr(encode, "CHUNK", 17)
    draw = random.Random(3)
    folder = tmp_path / "raw"
    folder.mkdir()
    counts = {"train": COUNT, "test": 9}
    for split, count in counts.items():
        choices = [[draw.randrange(13) for _ in range(draw.randrange(16))] for _ in range(count)]
        for code, lexicon in WORDS.items():
            lines = [" ".join(lexicon[number] for number in choice) for choice in choices]
            (folder / f"{split}.{code}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    description = {"pairs": counts, "dropped": {split: {} for split in counts}, "places": {}}
    (folder / "raw.json").write_text(json.dumps(description | {"dataset": "mine", "languages": ["de", "en"]}))
    (folder / "monolingual.de").write_bytes((folder / "train.de").read_bytes())
    counts = {"pairs": {"monolingual": COUNT}, "dropped": {"monolingual": {}}, "places": {}}
    (folder / "monolingual.json").write_text(json.dumps(counts | {"dataset": "mine", "languages": ["de"]}))
    return folder


def contents(folder):
    """Names and contents of files, without the times in records."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    for name, content in files.items():
        if name.endswith(".json"):
            files[name] = json.loads(content)
            files[name].pop("provenance")
    return files


def test_any_number_of_threads_gives_the_same_bytes(raw, tmp_path, run_stage):
    rules = {"moses_tokenise": True, "max_words": 9}
    kinds = ["urls", "variables"]
    augment = {"upper": 0.5, "typos": 0.5}

    def stages(number):
        """The files of each stage, with so many threads; each reads what the first one left with one thread."""
        folder, first = tmp_path / f"with {number}", tmp_path / "with 1"

        def run(stage, settings, *words):
            run_stage(stage, ["--settings", json.dumps(settings), "--threads", str(number), *map(str, words)])

        def files(before, name, after):
            return "--raw", before / f"{name}.json", "--summary", after / f"{name}.json"

        pairs, text = {"languages": ["de", "en"]}, {"languages": ["de"]}
        run("clean", pairs | {"clean": FILTERS}, *files(raw, "raw", folder / "clean"))
        run("clean", text | {"clean": FILTERS[:2]}, *files(raw, "monolingual", folder / "clean"))
        settings = {"normalisation": rules, "placeholders": kinds}
        split = {"split": {"method": "every-nth", "every": 40}, "held_out": "remove", "limits": {"train": 60}}
        run("normalise", pairs | settings | split, *files(first / "clean", "raw", folder / "corpus"))
        text |= settings | {"limits": {"monolingual": 90}}
        words = files(first / "clean", "monolingual", folder / "monolingual")
        run("normalise", text, *words, "--held-out", first / "corpus/dev.de")
        texts = [first / "corpus/train.de", first / "corpus/train.en"]
        if number == 1:
            settings = SubwordsConfig(vocabulary_size="auto", method="subword-nmt", model="bpe")
            subwords.learn(settings, *texts, tmp_path / "subwords", placeholders=kinds)
        words = ["--source", texts[0], "--target", texts[1], "--languages", "de", "en", "--split", "train"]
        words += ["--subwords", tmp_path / "subwords"]
        run("encode", {"max_length": 40, "augment": augment}, *words, "--output-prefix", folder / "encoded/train")
        return {path.name: contents(path) for path in folder.iterdir()}

    alone = stages(1)
    assert stages(3) == alone
    # The stages had something to do.
    dropped, corpus = alone["clean"]["raw.json"]["cleaning"], alone["corpus"]["raw.json"]
    assert all(step["dropped"] or step["repaired"] for step in dropped[:3])
    assert {"max_words", "limit"} <= set(corpus["dropped"]["train"]) and corpus["pairs"]["train"] == 60
    assert alone["monolingual"]["monolingual.json"]["pairs"] == {"monolingual": 90}
    # A line has no other side that could lack its placeholders.
    assert "placeholders" in corpus and "placeholders" not in alone["monolingual"]["monolingual.json"]
    encoded = alone["encoded"]["train.json"]
    assert encoded["augmented"]["upper"] and encoded["placeholders"]["spans"]


def test_processes_of_these_stages_start_without_pytorch():
    modules = ("clean", "normalise", "encode")
    names = ", ".join(f"workflow_src.stages.{module}" for module in modules)
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == 0
