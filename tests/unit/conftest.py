"""A corpus of made-up pairs and miniature systems trained on it, by the real stages in this process."""

from __future__ import annotations

import importlib
import itertools
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refusals import fields_of
from stage_words import inputs_of, start_stage

from workflow_src.config.preparation import NormalisationConfig, SubwordsConfig
from workflow_src.data import subwords
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.records.atomic import write_json
from workflow_src.registry import families
from workflow_src.spec import BASE

LEXICON = [
    {"der": "the", "ein": "a", "kein": "no"},
    {"Hund": "dog", "Vogel": "bird", "Baum": "tree", "Mann": "man"},
    {"ruht": "rests", "kommt": "comes", "bleibt": "stays"},
    {"heute": "today", "dort": "there", "noch": "still"},
]
MODEL = {"dim": 16, "feed_forward": 32, "heads": 2, "max_positions": 60}
LAYERS = {
    "transformer": {"encoder_layers": 1, "decoder_layers": 1},
    "lvm": {"encoder_layers": 1, "layers": 1, "latent_dim": 4, "end_symbol": True},
    "dat": {"encoder_layers": 1, "layers": 1, "vertices": 8},
    "score": {"layers": 1, "latent_dim": 4},
    "energy": {"layers": 1, "latent_dim": 4},
    "nat": {"encoder_layers": 1, "layers": 1},
    "seq2seq": {"embedding_dim": 16, "encoder_dim": 8, "encoder_layers": 1, "decoder_layers": 2},
    "cmlm": {"encoder_layers": 1, "layers": 1},
    "inference-network": {"encoder_layers": 1, "layers": 1},
    "inat": {"encoder_layers": 1, "layers": 1},
    "lanmt": {"encoder_layers": 1, "layers": 1, "posterior_layers": 1, "latent_dim": 4},
    "tagger": {"embedding_dim": 16},
    "inference-tagger": {"embedding_dim": 16},
}
TRAINING = {
    "max_steps": 12,
    "batch_tokens": 150,
    "learning_rate": 0.005,
    "warmup_steps": 4,
    "validate_every": 6,
    "keep": "average",
    "dev_sentences": 5,
}
FAMILIES = ("transformer", "lvm", "score", "energy")
NAMES = {"transformer": "teacher"}


def _pairs() -> list[tuple[str, str]]:
    pairs = [
        (" ".join(words), " ".join(part[word] for part, word in zip(LEXICON, words, strict=True)))
        for words in itertools.product(*LEXICON)
    ]
    return random.Random(5).sample(pairs, 48)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> SimpleNamespace:
    """Files of a corpus of 40 training and 8 dev pairs, as the stages before training leave them."""
    root = tmp_path_factory.mktemp("tiny")
    corpus, pairs = root / "corpus", _pairs()
    corpus.mkdir()
    for split, part in (("train", pairs[:40]), ("dev", pairs[40:])):
        for side, code in enumerate(("de", "en")):
            (corpus / f"{split}.{code}").write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
    (corpus / "dev.reference.en").write_bytes((corpus / "dev.en").read_bytes())
    normalisation = NormalisationConfig().model_dump(mode="json")
    write_json(corpus / "corpus.json", {"normalisation": normalisation})
    learned = subwords.learn(
        SubwordsConfig(vocabulary_size=62, joint=True), corpus / "train.de", corpus / "train.en", root / "subwords"
    )
    for split in ("train", "dev"):
        words = ["--settings", '{"max_length": 50}', "--subwords", str(root / "subwords")]
        words += ["--languages", "de", "en", "--split", split]
        words += ["--source", str(corpus / f"{split}.de"), "--target", str(corpus / f"{split}.en")]
        _run("encode", [*words, "--output-prefix", str(root / "encoded" / split)])
    return SimpleNamespace(
        root=root,
        corpus=corpus,
        pairs=pairs,
        normalisation=normalisation,
        folder=root / "subwords",
        subwords=learned,
        train=EncodedCorpus.open(root / "encoded/train"),
        dev=EncodedCorpus.open(root / "encoded/dev"),
        sizes={"source": learned.source_size, "target": learned.target_size, "joint": True},
    )


def _settings(family: str, model=None, objective=None, **training) -> dict:
    parts = families()[family]
    averaged = {"average_last": 2} if training.get("keep", "average") == "average" else {}
    sizes = {name: size for name, size in MODEL.items() if name in parts.model.model_fields}
    return {
        "name": NAMES.get(family, family),
        "family": family,
        "preset": "miniature",
        "data": "raw",
        "model": parts.model(**sizes | LAYERS[family] | (model or {})).model_dump(mode="json"),
        "objective": parts.objective(**objective or {}).model_dump(mode="json"),
        "training": TRAINING | averaged | training,
        "bleu_tokeniser": "13a",
    }


@pytest.fixture(scope="session")
def tiny_settings():
    """What Plan.settings_training gives, for a family's miniature: `make(family, model=..., **training)`."""
    return _settings


@pytest.fixture(scope="session")
def training_words(tiny):
    """Words of a training stage's command line."""

    def make(family, folder: Path, seed=1, base=None, initial=None, state=None, settings=None, **training) -> list[str]:
        content = settings or _settings(family, **{"save_every": 3} | training)
        words = ["--settings", json.dumps(content), "--seed", str(seed)]
        words += ["--train", f"{tiny.root}/encoded/train", "--dev", f"{tiny.root}/encoded/dev"]
        words += ["--subwords", str(tiny.folder), "--reference", str(tiny.corpus / "dev.reference.en")]
        words += ["--corpus-summary", str(tiny.corpus / "corpus.json"), "--state", str(state or folder / "state")]
        words += ["--output-folder", str(folder), "--device", "cpu", "--precision", "float32"]
        words += ["--base", str(base)] if base else []
        return words + (["--initial", str(initial)] if initial else [])

    return make


def _run(stage: str, words: list[str]) -> str:
    """Run a stage in this process; returns its summary. Errors come through."""
    module = importlib.import_module(f"workflow_src.stages.{stage}")
    return module.run(inputs_of(module.Inputs, words))


@pytest.fixture(scope="session")
def run_stage():
    return _run


@pytest.fixture
def refused(capsys):
    """Run a stage that must end with exit code 1; returns the error, whose sentence is its one line on stderr.

    `fields` are those of the error, as `fields_of` takes them.
    """

    def run(stage: str, words: list[str], **fields: Any) -> BaseException:
        module = importlib.import_module(f"workflow_src.stages.{stage}")
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            start_stage(module, words)
        assert exit_info.value.code == 1
        out, error = capsys.readouterr()
        lines = [line for line in error.splitlines() if line.startswith("error: ")]
        assert out == "" and len(lines) == 1 and error.endswith(lines[0] + "\n")
        error = exit_info.value.__context__
        assert error is not None and lines[0] == f"error: {error}"
        assert not fields or fields_of(error, fields) == fields
        return error

    return run


@pytest.fixture(scope="session")
def systems(tiny, training_words) -> dict[str, Path]:
    """Family -> weights of a system trained by its stage; a teacher that has learnt something, the others begun."""
    weights: dict[str, Path] = {}
    for family in FAMILIES:
        folder = tiny.root / "systems" / family
        more = {"max_steps": 40, "validate_every": 20, "save_every": 20} if family == "transformer" else {}
        base = weights["lvm"] if BASE in families()[family].needs else None
        initial = weights["transformer"] if family == "lvm" else None
        _run("train", training_words(family, folder, base=base, initial=initial, **more))
        weights[family] = folder / "model.safetensors"
    return weights


def _export_words(tiny, model: Path, base: Path | None, folder: Path) -> list[str]:
    words = ["--languages", "de", "en", "--model", str(model)]
    words += ["--base", str(base)] if base else []
    words += ["--subwords", str(tiny.folder), "--normalisation", json.dumps(tiny.normalisation)]
    return [*words, "--output-folder", str(folder)]


@pytest.fixture(scope="session")
def export_words(tiny):
    return lambda model, base, folder: _export_words(tiny, model, base, folder)


@pytest.fixture(scope="session")
def tiny_bundles(tiny, systems) -> dict[str, Path]:
    """Family -> exported folder."""
    folders = {}
    for family, weights in systems.items():
        folders[family] = weights.parent / "bundle"
        base = systems["lvm"] if BASE in families()[family].needs else None
        _run("export_bundle", _export_words(tiny, weights, base, folders[family]))
    return folders
