"""Searching with a session of an engine, as a translator does with one batch, and sources to search with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from workflow_src.decoding.search import own_networks
from workflow_src.engines.choose import FAST, open_session
from workflow_src.engines.session import Request, Session, SessionConfig
from workflow_src.registry import engines
from workflow_src.spec import SearchSettings
from workflow_src.types import Hypotheses, Networks


def sentences(number: int) -> list[list[int]]:
    """Sources of up to 19 subwords from 3 to 12, the same each time."""
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 20, (number,), generator=draw).tolist()
    return [torch.randint(3, 13, (length,), generator=draw).tolist() for length in lengths]


def opened(models: Mapping[str, nn.Module], mode: str = FAST, device: str = "cpu") -> Session:
    """ONNX Runtime, opened for networks by family."""
    return open_session(engines()["onnxruntime"], SessionConfig(device, mode, 1, models))


def request(
    session: Session, settings: SearchSettings, scored: bool = False, networks: Networks | None = None
) -> Request:
    """A request with these networks by role, or with the system's own."""
    return Request(settings, networks or own_networks(session.models, settings), return_scores=scored)


def translated(
    session: Session,
    sources: Sequence[Sequence[int]],
    settings: SearchSettings,
    scored: bool = False,
    networks: Networks | None = None,
) -> Hypotheses:
    """Hypotheses of sources, as one batch."""
    return session.search(sources, request(session, settings, scored, networks))
