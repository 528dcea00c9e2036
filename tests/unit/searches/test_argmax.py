"""Best symbols at given lengths, and the best of several lengths, against the plain search and one by one."""

from __future__ import annotations

import pytest
import torch
from miniatures import cmlm, inat, nat, searched, tokens

from workflow_src.searches.argmax import ArgmaxSettings
from workflow_src.searches.iterative_refinement import IterativeRefinementSettings
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
    plain = searched({MODEL: model}, SOURCE, settings)
    predicted = model.length.predict(model.encode(SOURCE))
    at_predicted = searched({MODEL: model}, SOURCE, settings, lengths=predicted)
    assert at_predicted.tokens == plain.tokens and at_predicted.scores == pytest.approx(plain.scores, abs=1e-12)
    lengths = torch.tensor([2, 5, 1, 7])
    hypotheses = searched({MODEL: model}, SOURCE, settings, lengths=lengths)
    assert [len(row) for row in hypotheses.tokens] == lengths.tolist()
    for row, length in enumerate(lengths):
        alone = model.encode(SOURCE[row : row + 1])
        hidden, _ = model.hidden(alone, length[None])
        chances, words = model.logits(hidden)[0].log_softmax(-1).max(-1)
        assert hypotheses.tokens[row] == words.tolist()
        assert hypotheses.scores[row] == pytest.approx(float(chances.mean()), abs=1e-12)


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_of_several_lengths_the_best_by_the_length_penalty_wins(kind):
    model, longest = MODELS[kind](), []
    lengths = model.length.likely(model.encode(SOURCE), 4)
    by_length = [searched({MODEL: model}, SOURCE, ArgmaxSettings(), lengths=lengths[:, k]) for k in range(4)]
    for penalty in (0.0, 1.0, 3.0):
        hypotheses = searched({MODEL: model}, SOURCE, ArgmaxSettings(lengths=4, length_penalty=penalty))
        for row in range(4):
            scores = {
                # The mean is over symbols; of these models none is dropped.
                tuple(h.tokens[row]): h.scores[row] * len(h.tokens[row]) / len(h.tokens[row]) ** penalty
                for h in by_length
            }
            best = max(scores, key=scores.__getitem__)
            assert tuple(hypotheses.tokens[row]) == best and hypotheses.scores[row] == pytest.approx(
                scores[best], abs=1e-12
            )
        longest.append(sum(map(len, hypotheses.tokens)))
    assert longest[0] < longest[-1]


@torch.no_grad()
def test_refined_outputs_of_several_lengths_are_ranked_alike():
    model, penalty = MODELS["iterative"](), 3.0
    memory = model.encode(SOURCE)
    lengths = model.length.likely(memory, 4)
    one = IterativeRefinementSettings(passes=3)
    by_length = [searched({MODEL: model}, SOURCE, one, lengths=lengths[:, k]) for k in range(4)]
    settings = IterativeRefinementSettings(passes=3, lengths=4, length_penalty=penalty)
    for stop in ("fixed", "adaptive"):
        hypotheses = searched({MODEL: model}, SOURCE, settings.model_copy(update={"stop": stop, "patience": 3}))
        for row in range(4):
            scores = [by_length[k].scores[row] * int(lengths[row, k]) ** (1 - penalty) for k in range(4)]
            best = max(range(4), key=scores.__getitem__)
            assert hypotheses.tokens[row] == by_length[best].tokens[row]
            assert hypotheses.scores[row] == pytest.approx(scores[best], abs=1e-12)
    plain = searched({MODEL: model}, SOURCE, settings.model_copy(update={"length_penalty": 1.0}))
    assert plain.tokens != hypotheses.tokens
