"""The sentences of errors: each form once. Other tests look at the fields."""

from __future__ import annotations

import copy
import pickle

import pytest

from workflow_src.config.preparation import SubwordsConfig
from workflow_src.data.learn_subwords import _TooLarge
from workflow_src.errors import (
    ArtifactError,
    ConfigError,
    DeclarationError,
    InputError,
    OutOfMemory,
    nearest,
    short_repr,
)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (InputError("standard output", "is closed"), "standard output is closed."),
        (DeclarationError('search "x"', "has no role", "add it"), 'search "x" has no role; add it.'),
        (ArtifactError("a.json", "does not exist", "make it"), "a.json does not exist; make it."),
        (ArtifactError("my.de", "is not UTF-8", "convert it", line=3), "my.de, line 3, is not UTF-8; convert it."),
        (ConfigError("name", problem="missing", hint="add it"), "name: missing; add it."),
        (ConfigError("seeds", "many", allowed="a whole number"), "seeds is 'many'; allowed: a whole number."),
        (ConfigError("dim", 30, problem="no multiple of heads 4"), "dim is 30: no multiple of heads 4."),
        (ConfigError("base", None, hint="name a system"), "base is None; name a system."),
        (ConfigError("base", "x", allowed=[]), "base is 'x'; allowed: none."),
        (
            ConfigError("base", "lvn", allowed=["teacher", "lvm"]),
            "base is 'lvn'; allowed: lvm, teacher; did you mean \"lvm\"?",
        ),
        (
            ConfigError("systems.a.layer", allowed=["layers", "dim"], problem="no such setting"),
            'systems.a.layer: no such setting; allowed: dim, layers; did you mean "layers"?',
        ),
    ],
)
def test_an_error_is_one_sentence_of_its_fields(error, sentence):
    assert str(error) == sentence


def test_a_setting_of_a_section_keeps_its_other_fields():
    inner = ConfigError("beam", 0, allowed=["1", "2"], problem="too small", hint="raise it")
    outer = inner.within("decodes[0]")
    assert outer.setting == "decodes[0].beam" and inner.within("").setting == "beam"
    assert ConfigError("", allowed="above 0").within("steps", 0).value == 0
    names = ("value", "allowed", "problem", "hint", "nearest")
    assert [getattr(outer, name) for name in names] == [getattr(inner, name) for name in names]


def test_values_are_shown_in_one_line():
    assert short_repr("a\nb") == r"'a\nb'" and len(short_repr("x" * 400)) == 100
    assert nearest("sedes", ["seeds", "name"]) == "seeds" and nearest("zzz", ["seeds"]) is None


PICKLED = (
    InputError("standard output", "is closed", "open it"),
    DeclarationError('search "x"', "has no role", "add it"),
    ArtifactError("my.de", "is not UTF-8", "convert it", line=3),
    ConfigError("base", "lvn", allowed=["teacher", "lvm"], hint="add one"),
    ConfigError("name", problem="missing"),
    OutOfMemory("in update 1", "lower batch_tokens"),
    _TooLarge(SubwordsConfig(), "joint", 7),
)


@pytest.mark.parametrize("error", PICKLED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("copied", [lambda error: pickle.loads(pickle.dumps(error)), copy.deepcopy])
def test_an_error_of_another_process_keeps_its_sentence_and_fields(error, copied):
    """An absent value stays absent, as `within` asks."""
    twin = copied(error)
    assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))
    if isinstance(error, ConfigError):
        assert str(twin.within("systems")) == str(error.within("systems"))


def test_all_classes_of_errors_are_pickled_above():
    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    ours = {kind for kind in below(InputError) if kind.__module__.startswith("workflow_src")}
    assert ours == {type(error) for error in PICKLED}
