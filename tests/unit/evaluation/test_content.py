"""Files of analyses: what they say comes back, damaged ones are refused by what the analysis declares."""

import subprocess
import sys
from pathlib import Path

import analysed
import pytest
import reports

from workflow_src import registry
from workflow_src.errors import ArtifactError
from workflow_src.evaluation import content as contents
from workflow_src.records.atomic import read_json, write_json

MANIFEST = reports.manifest()
PROJECT = Path(__file__).resolve().parents[3]


def _check(content):
    return contents.check(content, "file f", "make it again")


def test_every_analysis_has_a_content():
    assert set(analysed.EVERY) == set(registry.analyses())


def within(part, whole) -> bool:
    """Whether everything of `part` is in `whole`, which may have further keys."""
    if isinstance(part, dict):
        return all(str(key) in map(str, whole) and within(value, whole[key]) for key, value in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(within, part, whole))
    return part == whole


@pytest.mark.parametrize("name", analysed.EVERY)
def test_what_a_file_says_comes_back(name, tmp_path):
    file = analysed.raw(name)
    write_json(tmp_path / "file.json", file)
    content = _check(read_json(tmp_path / "file.json"))
    dumped = content.model_dump(mode="json") | {"format": contents.FORMAT}
    assert within(file, dumped)
    with pytest.raises(ValueError, match="frozen"):
        content.split = "test"


def _without(name, *path):
    """An analysis that lacks the key at the end of a path."""
    raw = analysed.raw(name)
    place = raw
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return raw


def _with(name, value, *path):
    """An analysis with another value at the end of a path."""
    raw = analysed.raw(name)
    place = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return raw


NAMES = "marginal, tokens, lengths, energies, latent_space, convergence, latent_paths, components, reordering, samples"
DAMAGED = {
    "no object": ([1], f" is no analysis ({NAMES})"),
    "another format": (analysed.raw("tokens", format=1), " has format 1, and this version reads format 2"),
    "no split": (_without("tokens", "split"), "(split: missing)"),
    "no rows": (_without("latent_paths", "rows"), "(rows: missing)"),
    "no system": (_without("convergence", "rows", 1, "system"), "(rows[1].system: missing)"),
    "no figure": (_without("lengths", "models", 0, "bias"), "(models[0].bias: missing)"),
    "null": (_with("tokens", None, "rows", 0, "changed"), "(rows[0].changed is None; allowed: a valid number)"),
    "no number in a row": (
        _with("marginal", float("nan"), "rows", 2, "gain"),
        "(rows[2].gain is nan; allowed: a finite number)",
    ),
    # Texts of tables name these.
    "no setting": (_without("marginal", "samples"), "(samples: missing)"),
    "no level": (_without("components", "share"), "(share: missing)"),
    "repetitions": (
        analysed.raw("lengths", remove_repetitions="some"),
        "(remove_repetitions is 'some'; allowed: none, subwords, words)",
    ),
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


def _entries(value, place=()):
    """Places of entries in an object, the first one of every list."""
    for key, entry in value.items() if isinstance(value, dict) else enumerate(value[:1]):
        yield (*place, key)
        if isinstance(entry, dict | list):
            yield from _entries(entry, (*place, key))


@pytest.mark.parametrize("name", [name for name, analysis in registry.analyses().items() if analysis.show])
def test_what_is_shown_has_all_that_showing_it_needs(name):
    """A file that lacks an entry, or has an empty one in its place, is refused in a sentence, or it can be shown."""
    for place in _entries(analysed.EVERY[name]):
        for damaged in (_without(name, *place), _with(name, [], *place), _with(name, {}, *place)):
            try:
                content = _check(damaged)
            except ArtifactError:
                continue
            show = registry.import_object(registry.analyses()[name].show)
            assert list(show(content, MANIFEST)), place


def test_reading_and_showing_analyses_needs_no_torch():
    code = (
        "import sys; from workflow_src.registry import analyses, import_object;"
        "[import_object(one.show) for one in analyses().values() if one.show]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == 0
