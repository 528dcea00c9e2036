"""Our own code: PyTorch, as models and searches are written. The reference of all engines."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from workflow_src.data.batching import pad
from workflow_src.engines.session import Request, Session, SessionConfig
from workflow_src.types import Hypotheses


class EagerSession(Session):
    """Searches of any family on a device, with the networks of the request."""

    def __init__(self, device: str | torch.device):
        super().__init__()
        self.device = str(device)

    def compute(self, sources: Sequence[Sequence[int]], request: Request) -> Hypotheses:
        source = pad(sources, eos=True).to(self.device, non_blocking=True)
        return self.opened(request).translate(source, trace=request.trace)


def open_networks(config: SessionConfig) -> EagerSession:
    return EagerSession(config.device)
