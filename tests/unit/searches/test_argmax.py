"""Best symbols at lengths that are given: against the plain search, and sentence by sentence."""

from __future__ import annotations

import pytest
import torch
from miniatures import cmlm, inat, nat, tokens

from workflow_src.searches.argmax import ArgmaxSettings
from workflow_src.searches.argmax.search import at_lengths, run
from workflow_src.spec import MODEL

SOURCE = tokens([3, 1, 5, 2], 9, end=True)
MODELS = {
    "masked": lambda: cmlm(9, 9, seed=5),
    "iterative": lambda: inat(9, 9, seed=4),
    "one pass": lambda: nat(9, 9, seed=4, loss="ce", max_length_difference=4),
    "latents": lambda: nat(9, 9, seed=4, loss="ce", max_length_difference=4, latent="vae", latent_dim=3),
}


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_at_the_lengths_that_it_predicts_it_is_the_plain_search_and_at_others_by_hand(kind):
    model, settings = MODELS[kind](), ArgmaxSettings()
    plain = run({MODEL: model}, SOURCE, settings)
    predicted = model.length.predict(model.encode(SOURCE))
    same = at_lengths({MODEL: model}, SOURCE, settings, predicted)
    assert same.tokens == plain.tokens and same.scores == pytest.approx(plain.scores, abs=1e-12)
    wanted = torch.tensor([2, 5, 1, 7])
    # Candidates that a search ranks are not asked for.
    found = at_lengths({MODEL: model}, SOURCE, ArgmaxSettings(lengths=3, rescorer="teacher"), wanted)
    assert [len(row) for row in found.tokens] == wanted.tolist()
    for row, length in enumerate(wanted):
        alone = model.encode(SOURCE[row : row + 1])
        hidden, _ = model.hidden(alone, length[None])
        chances, words = model.logits(hidden)[0].log_softmax(-1).max(-1)
        assert found.tokens[row] == words.tolist()
        assert found.scores[row] == pytest.approx(float(chances.mean()), abs=1e-12)
