"""Names of a bundle's networks."""

from __future__ import annotations

from workflow_src.serving.bundle import names


def test_networks_of_one_family_have_names_of_their_own_in_a_bundle():
    assert names({"base": "lvm", "model": "score"}) == {"base": "lvm", "model": "score"}
    assert names({"base": "lvm", "model": "lvm"}) == {"base": "base-lvm", "model": "lvm"}
    network_names = names({"model": "cmlm", "energy": "transformer", "critic": "transformer"})
    assert network_names == {"model": "cmlm", "energy": "energy-transformer", "critic": "critic-transformer"}
