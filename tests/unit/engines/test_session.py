"""What every engine refuses."""

from __future__ import annotations

import pytest
from miniatures import lvm, nat, ngram, refiner, transformer
from refusals import fields_of
from sessions import translated

from workflow_src.decoding.settings import LM, RESCORER
from workflow_src.engines.eager import EagerSession
from workflow_src.errors import InputError
from workflow_src.registry import searches
from workflow_src.spec import MODEL, REFINER

SOURCES = [[5, 6, 7, 8], [9, 6]]
# Networks, a setting and a value of it for which numbers leave their range.
OVERFLOWS = {
    "ctc-beam": (lambda: {MODEL: nat(loss="ctc"), LM: ngram(11)}, "lm_weight", 1e308),
    "beam": (lambda: {MODEL: transformer().float(), LM: ngram(11)}, "lm_weight", 1e308),
    "score": (lambda: {MODEL: lvm().float(), REFINER: refiner("score").float()}, "step_size", 1e30),
    "npd": (lambda: {MODEL: nat(latent="vae").float()}, "temperature", 1e38),
}


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("name", OVERFLOWS)
def test_scores_that_are_no_finite_numbers_are_refused(name, scored):
    networks, setting, huge = OVERFLOWS[name]
    declared, session, networks = searches()[name].settings, EagerSession("cpu"), networks()
    fields = {"steps": 2} if name == "score" else {}
    assert translated(session, SOURCES, declared(**fields), scored, networks).tokens
    with pytest.raises(InputError) as refused:
        translated(session, SOURCES, declared(**fields, **{setting: huge}), scored, networks)
    expected = {"subject": f"search {name}", "fix": "use smaller values"}
    assert fields_of(refused.value, expected) == expected


def test_a_rescorer_hides_no_score_that_is_no_number():
    networks = {MODEL: nat(latent="vae").float(), RESCORER: transformer().float()}
    settings = searches()["npd"].settings(temperature=1e38)
    with pytest.raises(InputError):
        translated(EagerSession("cpu"), SOURCES, settings, True, networks)
