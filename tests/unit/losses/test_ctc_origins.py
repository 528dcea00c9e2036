"""Source positions of outputs against enumeration of all alignments with the slots."""

from __future__ import annotations

import itertools

import pytest
import torch
from miniatures import nat, search, tokens

from workflow_src.decoding.ctc import collapse, slot_logits
from workflow_src.losses import ctc_origins

SIZE = 7
SOURCE = tokens([1, 2, 1], SIZE, end=True)


def one_pass(seed: int, copy_source: str = "uniform", loud: float = 1.0, **settings):
    """A model whose slots differ more with a larger factor `loud` of its embeddings."""
    model = nat(target_size=SIZE, source_size=SIZE, upsample=1.5, copy_source=copy_source, seed=seed, **settings)
    model.requires_grad_(False).target_embedding.weight.mul_(loud)
    return model


def best_alignments(logits, slots: int, blank: int) -> dict[tuple[int, ...], tuple[float, list[int]]]:
    """For every output of a sentence the log-probability of its best alignment, and first slots of its subwords."""
    scores = logits[:slots].log_softmax(-1)
    best: dict[tuple[int, ...], tuple[float, list[int]]] = {}
    for path in itertools.product(range(3, SIZE), repeat=slots):
        value = sum(float(scores[slot, symbol]) for slot, symbol in enumerate(path))
        output = tuple(collapse(list(path), blank))
        if output not in best or value > best[output][0]:
            changes = [slot for slot in range(slots) if slot == 0 or path[slot] != path[slot - 1]]
            best[output] = value, [slot for slot in changes if path[slot] != blank]
    return best


def length(row: int) -> int:
    return int((SOURCE[row] != 0).sum())


@pytest.mark.parametrize("penalty", [0.0, 3.0])
def test_origins_of_greedy_outputs_follow_from_the_best_path(penalty):
    """Each subword begins at a slot of the best path."""
    lengths = [5, 9, 2]
    model = one_pass(2, loud=6.0)
    greedy = search("ctc-greedy", model, blank_penalty=penalty)
    source = tokens(lengths, SIZE, end=True)
    hypotheses = greedy.translate(source)
    origins = greedy.origins(source, [[output] for output in hypotheses.tokens])
    logits, mask = slot_logits(model, model.encode(source), penalty)
    for row, size in enumerate(lengths):
        path, slots = logits[row, mask[row]].argmax(-1).tolist(), int(mask[row].sum())
        changes = [slot for slot in range(slots) if slot == 0 or path[slot] != path[slot - 1]]
        first = [slot for slot in changes if path[slot] != model.blank]
        assert origins[row] == [[slot * (size + 1) // slots for slot in first]]
        assert len(first) == len(hypotheses.tokens[row])
    assert sum(map(len, hypotheses.tokens)) > 8


@pytest.mark.parametrize("rows", [1, 512])
@pytest.mark.parametrize("copy", ["uniform", "soft"])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_outputs_of_a_beam_are_aligned_as_enumeration_aligns_them(seed, copy, rows, monkeypatch):
    monkeypatch.setattr(ctc_origins, "ROWS", rows)
    model = one_pass(seed, copy_source=copy)
    beam = search("ctc-beam", model, beam=30, min_ratio=0.0)
    outputs = [[words for _, words in ranked] for ranked in beam.translate(SOURCE).ranked()]
    origins = beam.origins(SOURCE, outputs)
    logits, mask = slot_logits(model, model.encode(SOURCE))
    for row in range(len(SOURCE)):
        slots, size = int(mask[row].sum()), length(row)
        best = best_alignments(logits[row], slots, model.blank)
        for output, actual in zip(outputs[row], origins[row], strict=True):
            first_slots = best[tuple(output)][1]
            # Centres of slots among source positions, rounded; or those that slots copy.
            centres = [(slot + 0.5) * size / slots - 0.5 for slot in first_slots]
            expected = [slot * size // slots for slot in first_slots]
            if copy == "soft":
                assert all(abs(centre - origin) <= 0.5 for centre, origin in zip(centres, actual, strict=True))
            else:
                assert actual == expected


def test_of_several_draws_the_one_with_the_best_alignment_counts():
    model = one_pass(1, latent="vae", latent_dim=3, posterior_layers=1)
    beam = search("ctc-beam", model, beam=4, draws=3, temperature=3.0, min_ratio=0.0)
    outputs = [[words for _, words in ranked] for ranked in beam.translate(SOURCE).ranked()]
    origins = beam.origins(SOURCE, outputs)
    with torch.no_grad():
        logits, slots = beam(SOURCE)
    winners = set()
    for row in range(len(SOURCE)):
        count = int(slots[3 * row])
        by_draw = [best_alignments(logits[3 * row + draw], count, model.blank) for draw in range(3)]
        for output, origins_of_output in zip(outputs[row], origins[row], strict=True):
            draw = max(range(3), key=lambda draw: by_draw[draw][tuple(output)][0])
            winners.add(draw)
            assert origins_of_output == [slot * length(row) // count for slot in by_draw[draw][tuple(output)][1]]
    assert len(winners) > 1
