"""Numbers of positions that are a multiple of a length."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal

import pytest
import torch
from miniatures import dat, nat, pairs

from workflow_src.nn.layers import Width
from workflow_src.nn.widths import multiplied, ratio_of

BATCH = pairs([24, 4], [3, 2])


def test_multiples_are_those_of_decimal_numbers_rounded_up():
    lengths = range(1, 300)
    for hundredths in range(100, 1601):
        factor, ratio = hundredths / 100, ratio_of(hundredths / 100)
        expected = [math.ceil(Decimal(str(factor)) * length) for length in lengths]
        assert [multiplied(length, ratio) for length in lengths] == expected
        assert multiplied(torch.tensor(lengths), ratio).tolist() == expected


@pytest.mark.parametrize("size", [None, 40])
def test_graphs_and_slots_have_as_many_positions_at_a_fixed_width_as_read_from_lengths(size):
    graph, slots = dat(vertices=1.2), nat(upsample=1.2)
    assert graph.vertices_of(BATCH.source_lengths).tolist() == [30, 6] and graph.most_vertices(25) == 30
    assert slots.slots_of(BATCH.source_lengths).tolist() == [30, 6] and slots.most_slots(25) == 30
    for model in (graph, slots):
        memory = dataclasses.replace(model.encode(BATCH.source), width=Width(size))
        assert model.hidden(memory)[1].sum(1).tolist() == [30, 6]
