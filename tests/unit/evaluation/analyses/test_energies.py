from __future__ import annotations

import pytest
import torch
from miniatures import AUTOREGRESSIVE, nat

from workflow_src.evaluation.analyses.energies.measure import energies, summaries
from workflow_src.types import EOS

SOURCES = [[5, 6, 7], [], [8], [9, 4, 5, 6], [3] * 70, [7, 7]]
OUTPUTS = [[4, 5], [4], [], [3, 3, 6, 7, 8], [4], [5] * 70]


@pytest.mark.parametrize("batch", [1, 2, 64])
@pytest.mark.parametrize("kind", AUTOREGRESSIVE)
def test_energies_are_negative_log_probabilities_word_by_word(kind, batch):
    """What is empty on the source side or longer than the positions is not scored."""
    model = AUTOREGRESSIVE[kind](13, 11)
    values = energies(model, SOURCES, OUTPUTS, batch, "cpu")
    assert [value is None for value in values] == [False, True, False, False, True, True]
    with torch.no_grad():
        for i in (0, 2, 3):
            total, memory = 0.0, model.encode(torch.tensor([[*SOURCES[i], EOS]]))
            for place, word in enumerate([*OUTPUTS[i], EOS]):
                before = torch.tensor([OUTPUTS[i][:place]], dtype=torch.int64)
                total -= float(model.logits(model.hidden(memory, before))[0, -1].log_softmax(-1)[word])
            assert values[i] == pytest.approx(total, abs=1e-10)


def test_an_impossible_output_has_no_energy():
    """CTC has no alignment for more symbols than slots."""
    values = energies(nat(13, 12, upsample=1), [[5], [5, 6, 7, 8]], [[4, 5, 6, 7, 8], [4, 5]], 2, "cpu")
    assert values[0] is None and values[1] > 0


def test_means_are_over_the_sentences_of_which_all_outputs_are_scored():
    """Otherwise a row would gain by outputs that cannot be scored."""
    outputs = [[1, 2, 3], [1], [], [5]]
    one, other, nothing = [4.0, None, 8.0, 90.0], [1.0, 2.0, 3.0, None], [None] * 4
    first, second, third = summaries([outputs] * 3, [one, other, nothing])
    assert first == {
        "sentences": 2,
        "unscored": 1,
        "energy_per_sentence": 6.0,
        "error": pytest.approx(2.0),
        "energy_per_token": 12.0 / 5,
    }
    assert (second["sentences"], second["energy_per_sentence"], second["energy_per_token"]) == (2, 2.0, 4.0 / 5)
    unknown = dict.fromkeys(("energy_per_sentence", "error", "energy_per_token"))
    assert third == {"sentences": 0, "unscored": 4} | unknown
    assert summaries([outputs], [one])[0]["energy_per_sentence"] == pytest.approx(102.0 / 3)
    assert summaries([[[1, 2]]], [[3.0]])[0]["error"] == 0.0
