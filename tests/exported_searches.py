"""Exported searches compared with those of our own code."""

from __future__ import annotations

import pytest
import torch
from miniatures import searched
from sessions import translated
from torch import Tensor

from workflow_src.types import EOS, PAD


def check_outputs_and_scores(engine, networks, source: Tensor, settings, together: bool) -> None:
    """Each sentence of source (B, S) by itself, and all `together`, where their graph is to be exported too."""
    lines = [[i for i in row if i not in (PAD, EOS)] for row in source.tolist()]
    with torch.no_grad():
        expected = searched(networks, source, settings)
    assert len({word for row in expected.tokens for word in row}) > 1
    singles = [translated(engine, [line], settings, True, networks) for line in lines]
    assert [single.tokens[0] for single in singles] == expected.tokens
    assert [single.scores[0] for single in singles] == pytest.approx(expected.scores, abs=1e-4)
    if together:
        batched = translated(engine, lines, settings, True, networks)
        assert batched.tokens == expected.tokens and batched.scores == pytest.approx(expected.scores, abs=1e-4)
