from __future__ import annotations

import pytest
import torch
from miniatures import AUTOREGRESSIVE, nat

from workflow_src.evaluation.analyses.energies.measure import energies, summary
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


def test_means_are_over_what_is_scored():
    means = summary([4.0, None, 8.0], [[1, 2, 3], [1], []])
    assert means == {
        "sentences": 2,
        "unscored": 1,
        "per_sentence": 6.0,
        "error": pytest.approx(2.0),
        "per_token": 12.0 / 5,
    }
    assert summary([None], [[1]]) == {
        "sentences": 0,
        "unscored": 1,
        "per_sentence": None,
        "error": None,
        "per_token": None,
    }
    assert summary([3.0], [[1, 2]])["error"] == 0.0
