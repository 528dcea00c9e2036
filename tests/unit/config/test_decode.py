"""A resolved decode as jobs read it: what is written is read back, and what does not fit is refused."""

from __future__ import annotations

import json

import pytest
from refusals import refuses

from workflow_src.config.resolved import Decode
from workflow_src.errors import ConfigError
from workflow_src.registry import searches
from workflow_src.spec import compared, parse

PENALTY = "length_penalty"
INT8 = {"engine": "onnxruntime", "compute_type": "int8"}


@pytest.mark.parametrize("name", searches())
def test_a_document_gives_the_decode_back(name):
    decode = Decode(system="a", search=name, name="row", values=searches()[name].settings(), splits=("dev",), **INT8)
    document = json.loads(json.dumps(decode.model_dump(mode="json")))
    assert parse(Decode, document) == decode
    assert document.items() >= decode.values.model_dump(mode="json").items()


def test_without_an_engine_it_is_computed_by_our_own_code():
    decode = parse(Decode, {"search": "greedy"})
    assert decode.own_engine and decode.engine_word == "eager"
    assert not parse(Decode, {"search": "greedy"} | INT8).own_engine
    assert parse(Decode, {"search": "greedy"} | INT8).engine_word == "onnxruntime-int8"


def test_snakemake_compares_what_is_no_default():
    fields = {"search": "beam", "beam": 7, "max_length_ratio": searches()["beam"].settings().max_length_ratio}
    assert compared(parse(Decode, fields)) == {"search": "beam", "beam": 7}
    assert compared(parse(Decode, fields | INT8)) == {"search": "beam", "beam": 7} | INT8


def test_what_changes_translations_has_no_names_and_no_sizes_of_jobs():
    fields = {"search": "beam", "beam": 7}
    plain, named = (
        parse(Decode, fields | more) for more in ({}, {"system": "a", "name": "b", "batch": 3, "shards": 2})
    )
    assert plain.settings == named.settings and plain.settings.items() >= fields.items()


def test_values_that_dev_chose_replace_those_of_the_decode_alone():
    decode = parse(Decode, {"system": "a", "name": "b", "search": "beam", "beam": 2, "length_penalty": 0.5} | INT8)
    # They are computed once, and are those of the decode that is asked.
    assert decode.settings["beam"] != 5
    chosen = decode.with_values({"beam": 5})
    assert chosen.settings["beam"] == 5
    assert (chosen.values.beam, chosen.values.length_penalty) == (5, 0.5)
    assert (chosen.key, chosen.engine_word) == (decode.key, decode.engine_word) and decode.values.beam == 2
    assert decode.with_values({}) == decode
    with pytest.raises(ConfigError, match=r"^beans: "):
        decode.with_values({"beans": 5})


def test_systems_beside_its_own_are_named_by_their_roles():
    assert parse(Decode, {"search": "beam"}).others == {}
    assert parse(Decode, {"search": "beam", "rescorer": "judge"}).others == {"rescorer": "judge"}


def test_values_to_choose_from_are_of_the_type_of_their_setting():
    """Configurations may hand whole numbers over as floats."""
    decode = parse(Decode, {"search": "beam", "tune": {"beam": [2.0, 4], "length_penalty": [1, 0.5]}})
    types = {name: [type(value) for value in values] for name, values in decode.tune.items()}
    assert types == {"beam": [int, int], "length_penalty": [float, float]}
    assert [(s.beam, s.length_penalty) for s in decode.combinations] == [(2, 1.0), (2, 0.5), (4, 1.0), (4, 0.5)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"setting": "here.search", "problem": "missing"}),
        ({"search": "bean"}, {"setting": "here.search", "value": "bean", "nearest": "beam"}),
        ({"search": "beam", "bean": 2}, {"setting": "here.bean", "nearest": "beam"}),
        ({"search": "greedy", "beam": 2}, {"setting": "here.beam"}),
        ({"search": "beam", "beam": "many"}, {"setting": "here.beam", "value": "many"}),
        ({"search": "beam", "engine": "eagr"}, {"setting": "here.engine", "value": "eagr", "nearest": "eager"}),
        ({"search": "beam", "tune": {"beam": [2, 2.5]}}, {"setting": "here.tune.beam", "value": 2.5}),
        ({"search": "beam", "tune": {"bean": [2]}}, {"setting": "here.tune.bean", "nearest": "beam"}),
        ({"search": "beam", "tune": {"length_penalty": [1, 11]}}, {"setting": "here.tune.length_penalty", "value": 11}),
    ],
)
def test_a_document_that_does_not_fit_is_refused(fields, expected):
    with refuses(**expected):
        parse(Decode, fields, "here")


@pytest.mark.parametrize(
    "name", [name for name, search in searches().items() if PENALTY in search.settings.model_fields]
)
def test_a_length_penalty_that_would_make_all_scores_0_is_refused(name):
    for value in (10.1, 300, -0.1):
        with refuses(setting=f"here.{PENALTY}", value=value):
            parse(Decode, {"search": name, PENALTY: value}, "here")
