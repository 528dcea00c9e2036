from __future__ import annotations

import pytest
import torch
from miniatures import one, pairs, seq2seq
from torch import Tensor

from workflow_src.nn.recurrent import BidirectionalLSTM
from workflow_src.types import BOS, EOS

SHAPES = [{}, {"encoder_layers": 1, "decoder_layers": 3}]


def cell_step(weights: list[Tensor], x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One step of an LSTM layer (Hochreiter & Schmidhuber 1997; gates in torch's order) for one sentence."""
    of_input, of_hidden, input_bias, hidden_bias = weights
    enter, forget, new, out = (of_input @ x + input_bias + of_hidden @ hidden + hidden_bias).chunk(4)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def encoded(model, source: list[int]) -> tuple[list[Tensor], Tensor, Tensor]:
    """States of a sentence's positions, and the last layer's last hidden state and cell of both directions."""
    embedding, lstm = model.source_embedding, model.encoder.lstm
    xs = [embedding.weight[word] * embedding.weight.size(1) ** 0.5 for word in source]
    for layer in range(model.config.encoder_layers):
        directions, final_states = [], []
        for weights, order in zip(lstm.all_weights[2 * layer : 2 * layer + 2], (xs, xs[::-1]), strict=True):
            hidden, cell = torch.zeros(2, model.config.encoder_dim, dtype=torch.float64)
            states = []
            for x in order:
                hidden, cell = cell_step(weights, x, hidden, cell)
                states.append(hidden)
            directions.append(states)
            final_states.append((hidden, cell))
        xs = [torch.cat(pair) for pair in zip(directions[0], directions[1][::-1], strict=True)]
    hidden, cell = (torch.cat(pair) for pair in zip(*final_states, strict=True))
    return xs, hidden, cell


def by_hand(model, source: list[int], target: list[int]) -> Tensor:
    """log p(. | y_<t, x) of one sentence, (T+1, V), word by word and position by position."""
    states, hidden_end, cell_end = encoded(model, source)
    layers, embedding = model.config.decoder_layers, model.target_embedding
    hidden = list((model.first_hidden.weight @ hidden_end + model.first_hidden.bias).chunk(layers))
    cell = list((model.first_cell.weight @ cell_end + model.first_cell.bias).chunk(layers))
    log_probabilities = []
    for word in [BOS, *target]:
        x = embedding.weight[word] * embedding.weight.size(1) ** 0.5
        for layer in range(layers):
            hidden[layer], cell[layer] = cell_step(model.decoder.all_weights[layer], x, hidden[layer], cell[layer])
            x = hidden[layer]
        scores = torch.stack([x @ model.key.weight @ state for state in states])
        context = sum(share * state for share, state in zip(scores.softmax(0), states, strict=True))
        vector = (model.attentional.weight @ torch.cat([context, x]) + model.attentional.bias).tanh()
        log_probabilities.append((embedding.weight @ vector + model.output_bias).log_softmax(0))
    return torch.stack(log_probabilities)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_model_computes_its_equations(shape, joint):
    sizes = (11, 11) if joint else (13, 11)
    model, batch = seq2seq(*sizes, joint, **shape), pairs([4, 1, 6], [3, 5, 1], sizes)
    with torch.no_grad():
        logits = model.logits(model.hidden(model.encode(batch.source), batch.target))
        chosen = model.log_probabilities(batch.source, batch.target)
        for row in range(3):
            single = one(batch, row)
            source, target = single.source[0].tolist(), single.target[0].tolist()
            expected, labels = by_hand(model, source, target), [*target, EOS]
            assert torch.allclose(logits[row, : len(labels)].log_softmax(-1), expected, rtol=0, atol=1e-12)
            picked = expected[torch.arange(len(labels)), torch.tensor(labels)]
            assert torch.allclose(chosen[row, : len(labels)], picked, rtol=0, atol=1e-12)
            assert (chosen[row, len(labels) :] == 0).all()


def test_states_end_where_sentences_do():
    """States of a layer in both directions depend neither on padding nor on other sentences."""
    torch.manual_seed(0)
    lstm, x = BidirectionalLSTM(5, 4, 2, 0.0).double(), torch.randn(3, 6, 5, dtype=torch.float64)
    lengths = torch.tensor([2, 5, 1])
    mask = torch.arange(6) < lengths[:, None]
    actual = lstm(x, lengths)
    noisy = lstm(torch.where(mask[..., None], x, 1e3), lengths)
    assert all(torch.equal(before, after) for before, after in zip(actual, noisy, strict=True))
    assert actual[0].shape == (3, 6, 8) and (actual[0][~mask] == 0).all()
    for row, length in enumerate((2, 5, 1)):
        single = lstm(x[row : row + 1, :length], lengths[row : row + 1])
        assert torch.allclose(single[0][0], actual[0][row, :length], atol=1e-14)
        assert all(torch.allclose(single[i][0], actual[i][row], atol=1e-14) for i in (1, 2))


def test_dropout_is_drawn_in_training_alone_and_starts_from_the_generator():
    model, batch = seq2seq(dropout=0.4), pairs([4, 1, 6], [3, 5, 1])
    still = model.log_probabilities(batch.source, batch.target)
    assert torch.equal(still, model.log_probabilities(batch.source, batch.target))
    model.train()

    def drawn(seed):
        torch.manual_seed(seed)
        return model.log_probabilities(batch.source, batch.target)

    assert torch.equal(drawn(1), drawn(1)) and not torch.allclose(drawn(1), drawn(2))
    assert not torch.allclose(drawn(1), still)
