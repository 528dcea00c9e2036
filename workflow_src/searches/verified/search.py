"""Drafts of a one-pass system, checked by an autoregressive one."""

from __future__ import annotations

from workflow_src.decoding.drafts import DraftSearch
from workflow_src.decoding.search import open_search
from workflow_src.decoding.settings import DRAFTER, LM
from workflow_src.registry import families
from workflow_src.searches.verified import VerifiedSettings, draft_settings
from workflow_src.spec import MODEL
from workflow_src.types import Networks


class Verified(DraftSearch):
    """Outputs are those of greedy search where `tolerance` is 0; steps are passes of the decoder."""

    def __init__(self, networks: Networks, settings: VerifiedSettings, scored: bool = True):
        super().__init__(networks, settings, scored)
        drafter = networks[DRAFTER]
        family = families()[drafter.family]
        self.static, self.drafting_networks = family.static, {MODEL: drafter}
        if LM in networks:
            self.drafting_networks[LM] = networks[LM]
        drafting = draft_settings(settings, family, drafter.config)
        self.drafting = open_search(self.drafting_networks, drafting, scored=False)
