"""Systems of every other family from training to translation: exported, served in Python and as a command."""

from __future__ import annotations

import json

import pytest
import torch

from workflow_src import cli
from workflow_src.records.atomic import load_tensors
from workflow_src.serving.translator import Translator

LINES = ["der Hund ruht heute", "", "kein Vogel kommt dort noch heute", "Baum"]
SEARCHES = {
    "lanmt": ("delta", {"steps": 2}),
    "cmlm": ("mask-predict", {"iterations": 3, "length_beam": 2}),
    "tagger": ("argmax", {"lengths": 2}),
    "seq2seq": ("beam", {"beam": 2}),
}


def check(bundle, search, settings, folder):
    """Single sentences, a batch and the command give the same translations."""
    translator = Translator.load(bundle, device="cpu", threads=1, engine="eager")
    outputs = translator.translate(LINES, search=search, **settings)
    assert outputs == [translator.translate([line], search=search, **settings)[0] for line in LINES]
    assert outputs[1] == ""
    source, written = folder / "lines.de", folder / "lines.en"
    source.write_text("".join(f"{line}\n" for line in LINES))
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words += ["--engine", "eager", "--device", "cpu", "--input", str(source), "--output", str(written)]
    cli.main(["translate", "--bundle", str(bundle), "--search", search, *words])
    assert written.read_text().splitlines() == outputs


@pytest.mark.parametrize("family", SEARCHES)
def test_a_trained_system_translates(family, training_words, export_words, run_stage, tmp_path):
    run_stage("train", training_words(family, tmp_path / "model"))
    run_stage("export_bundle", export_words(tmp_path / "model/model.safetensors", None, tmp_path / "bundle"))
    check(tmp_path / "bundle", *SEARCHES[family], tmp_path)
    # Recurrent layers of taggers compute in float32 in any precision, and report it.
    narrow = Translator.load(tmp_path / "bundle", device="cpu", precision="bfloat16", threads=1, engine="eager")
    types = {parameter.dtype for model in narrow.models.values() for parameter in model.parameters()}
    assert narrow.precision == ("bfloat16" if torch.bfloat16 in types else "float32")
    assert (narrow.precision == "float32") == (family == "tagger")


def test_weights_of_other_heads_are_not_continued(training_words, run_stage, refused, tmp_path):
    """The number of heads shapes no tensor: a wrong one would load the same weights into another network."""
    run_stage("train", training_words("transformer", tmp_path / "energy", max_steps=2, validate_every=2))
    run_stage("train", training_words("cmlm", tmp_path / "start", max_steps=2, validate_every=2))
    weights, described = tmp_path / "start/model.safetensors", tmp_path / "start/config.json"
    description = json.loads(described.read_text())
    described.write_text(json.dumps(description | {"model": description["model"] | {"heads": 4}}))
    words = training_words("inference-network", tmp_path / "model", initial=weights)
    error = refused("train", [*words, "--roles", f"energy={tmp_path / 'energy/model.safetensors'}"])
    assert (error.path, error.problem) == (str(weights), "has model.heads 4, this model has 2")
    assert not (tmp_path / "model/model.safetensors").exists()


@pytest.mark.parametrize(
    "family, start, search",
    [
        ("inference-network", "cmlm", ("mask-predict", {"iterations": 1, "length_beam": 1})),
        ("inference-tagger", "tagger", ("argmax", {"lengths": 1})),
    ],
)
def test_a_network_that_learned_from_an_energy_translates_without_it(
    family, start, search, training_words, export_words, run_stage, tmp_path
):
    run_stage("train", training_words("transformer", tmp_path / "energy", max_steps=2, validate_every=2))
    run_stage("train", training_words(start, tmp_path / "start"))
    words = training_words(family, tmp_path / "model", initial=tmp_path / "start/model.safetensors")
    run_stage("train", [*words, "--roles", f"energy={tmp_path / 'energy/model.safetensors'}"])
    run_stage("export_bundle", export_words(tmp_path / "model/model.safetensors", None, tmp_path / "bundle"))
    trained_weights = load_tensors(tmp_path / "model/model.safetensors")
    (bundled,) = (tmp_path / "bundle").glob("*.safetensors")
    assert load_tensors(bundled).keys() == trained_weights.keys()
    check(tmp_path / "bundle", *search, tmp_path)
