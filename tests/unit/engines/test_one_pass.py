"""Searches of one-pass models with latents or a length head in ONNX Runtime, against our own code."""

from __future__ import annotations

import pytest
from exported_searches import check_outputs_and_scores
from miniatures import nat, refiner, tokens

from workflow_src import registry
from workflow_src.spec import MODEL

pytest.importorskip("onnx", reason="needs the extra fast")
pytest.importorskip("onnxruntime", reason="needs the extra fast")
pytest.importorskip("onnxscript", reason="needs the extra fast")

SIZE = 9
SOURCE = tokens([3, 1, 5, 2], SIZE, end=True)
# What takes time is the exporter, which goes from operator to operator.
SMALL = {"encoder_layers": 1, "layers": 1}
# Search, settings of the model and of the search.
CASES = {
    "ctc-greedy": ("ctc-greedy", {}, {}),
    "ctc-greedy, blank penalty": ("ctc-greedy", {}, {"blank_penalty": 1.5}),
    "argmax": ("argmax", {"loss": "axe", "latent": "vae"}, {"lengths": 3, "rescorer": "teacher"}),
    "npd": ("npd", {"latent": "vae", "loss": "ce"}, {"draws": 3, "temperature": 2.0}),
    "ctc-beam": ("ctc-beam", {"latent": "vae"}, {"beam": 3, "draws": 3, "temperature": 2.0}),
    "delta": ("delta", {"latent": "vae"}, {"steps": 1}),
    "score": ("score", {"latent": "vae"}, {"steps": 2}),
}


# Graphs of several sentences, which have padding, take as long to export again.
TOGETHER = ("ctc-greedy, blank penalty", "argmax")


@pytest.mark.graphs
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("graphs")
def test_outputs_and_scores_are_those_of_our_own_code(case, rescorer):
    from sessions import opened

    name, model, fields = CASES[case]
    search = registry.searches()[name]
    wide = {"latent_dim": 3} if model.get("latent") else {}
    network = nat(SIZE, SIZE, max_length_difference=4, seed=38, **SMALL, **model, **wide).float()
    settings = search.settings(**fields)
    networks = {MODEL: network} | ({"rescorer": rescorer} if "rescorer" in fields else {})
    models = {"nat": network}
    if search.name == "score":
        networks["refiner"] = models["score"] = refiner("score", seed=3).float()
    assert registry.engines()["onnxruntime"].serves(registry.families()["nat"], search, settings) is None
    engine = opened(dict(reversed(models.items())))
    check_outputs_and_scores(engine, networks, SOURCE, settings, together=case in TOGETHER)
