"""Contents of analyses: what files say comes back, damaged ones are refused."""

import json
import subprocess
import sys
from pathlib import Path

import analysed
import pydantic
import pytest

from workflow_src import registry
from workflow_src.errors import ArtifactError
from workflow_src.evaluation.analyses import content as contents
from workflow_src.evaluation.analyses.content import Entry
from workflow_src.evaluation.analyses.lengths import LengthsRow
from workflow_src.records.atomic import read_json, write_json

PROJECT = Path(__file__).resolve().parents[4]


def _check(content):
    return contents.check(content, "file f", "make it again")


def test_every_analysis_has_a_content():
    assert set(analysed.EVERY) == set(registry.analyses())


@pytest.mark.parametrize("name", analysed.EVERY)
def test_what_a_file_says_comes_back(name, tmp_path):
    raw = analysed.raw(name)
    write_json(tmp_path / "file.json", raw)
    content = _check(read_json(tmp_path / "file.json"))
    assert isinstance(content, registry.analyses()[name].content)
    assert analysed.to_raw(content) | {"analysis": name, "format": contents.FORMAT} == json.loads(json.dumps(raw))
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        content.split = "test"


def test_settings_of_searches_are_kept_whatever_their_names():
    entries = {"system": "a", "search": "b", "model": "c", "iterations": 4, "size": 0.5, "stop": True, "kind": "x"}
    entry = Entry.model_validate(entries | {"none": None, "many": [1, 2]})
    # A list is no setting.
    assert entry.kept == {"iterations": 4, "size": 0.5, "stop": True, "kind": "x", "none": None}
    assert [type(value) for value in entry.kept.values()] == [int, float, bool, str, type(None)]
    assert entry.settings == {"system": "a", "search": "b", **entry.kept}
    row = LengthsRow.model_validate(
        entries | {"steps": 2, "label": "words", "bleu": dict.fromkeys(("predicted", "reference", "oracle"), 1)}
    )
    assert "steps" not in row.kept and "label" not in row.kept and row.kept["iterations"] == 4


def test_energies_are_by_the_names_of_their_scorers():
    other = analysed.energies()["reference"] | {"per_sentence": 33.25}
    energies = _check(analysed.raw("energies", reference=other | {"others": {"seq2seq": other}}))
    under = energies.by_scorer(energies.reference)
    assert list(under) == ["teacher", "seq2seq"] and under["seq2seq"].per_sentence == 33.25


def _without(name, *path):
    """An analysis that lacks the key at the end of a path."""
    raw = analysed.raw(name)
    place = raw
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return raw


NAMES = "marginal, tokens, lengths, energies, latent_space, convergence, latent_paths, components, reordering, samples"
DAMAGED = {
    "no object": ([1], f" is no analysis ({NAMES})"),
    "no name": ({"split": "dev"}, f" is no analysis ({NAMES})"),
    "another name": ({"analysis": ["marginal"]}, f" is no analysis ({NAMES})"),
    "no format": (_without("tokens", "format"), " has format None, and this version reads format 1"),
    "another format": (analysed.raw("tokens", format=2), " has format 2, and this version reads format 1"),
    "no split": (_without("tokens", "split"), "(split: missing)"),
    "no curves": (_without("latent_paths", "curves"), "(curves: missing)"),
    "no model": (_without("convergence", "curves", 1, "model"), "(curves[1].model: missing)"),
    "no figure": (_without("lengths", "models", "lvm", "bias"), "(models.lvm.bias: missing)"),
    "no BLEU": (_without("lengths", "rows", 0, "bleu", "oracle"), "(rows[0].bleu.oracle: missing)"),
    "words": (analysed.raw("samples", sentences="many"), "(sentences is 'many'; allowed: a valid integer)"),
    "no number": (analysed.raw("components", share=float("nan")), "(share is nan; allowed: a finite number)"),
    "repetitions": (
        analysed.raw("lengths", remove_repetitions="some"),
        "(remove_repetitions is 'some'; allowed: none, subwords, words)",
    ),
    "energies": (analysed.raw("energies", reference={}), "(reference.sentences: missing)"),
    "a path": (_without("latent_space", "panels", 0, "delta"), "(panels: one lacks a path"),
    "an output": (_without("latent_space", "outputs", "score"), "(outputs: they or texts lack score "),
    "a text": (_without("latent_space", "texts", "prior"), "(outputs: they or texts lack prior "),
    "a piece": (_without("latent_space", "pieces", "9"), "(pieces: they lack the id 9)"),
    "labels": (_without("reordering", "example", "target_pieces"), "(example.target_pieces: missing)"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_files_are_refused_in_a_sentence(what):
    content, problem = DAMAGED[what]
    with pytest.raises(ArtifactError) as raised:
        _check(content)
    message = str(raised.value)
    assert message.startswith("file f ") and problem in message and message.endswith("; make it again.")
    assert "\n" not in message


def test_reading_and_showing_analyses_needs_no_torch():
    code = (
        "import sys; from workflow_src.registry import analyses, import_object;"
        "[import_object(one.show) for one in analyses().values()]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == 0
