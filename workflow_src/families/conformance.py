"""Models of families fit the protocols of `types.py`. mypy checks it here; nothing of it runs.

Families are built by name, so that no call shows mypy which class a search gets. Taggers and n-gram models have no
protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workflow_src import types
    from workflow_src.decoding.ranking import Rescorer
    from workflow_src.families.autoregressive import Autoregressive
    from workflow_src.families.cmlm.model import MaskedLanguageModel
    from workflow_src.families.energy.model import EnergyNetwork
    from workflow_src.families.inat.model import IterativeModel
    from workflow_src.families.lanmt.model import SourceLatentVariableModel
    from workflow_src.families.lvm.model import LatentVariableModel
    from workflow_src.families.nat.model import NonAutoregressiveModel
    from workflow_src.families.score.model import ScoreNetwork

    def autoregressive(model: Autoregressive) -> Rescorer:
        return model

    def cmlm(model: MaskedLanguageModel) -> types.MaskedModel:
        return model

    def energy(model: EnergyNetwork) -> types.Refiner:
        return model

    def inat(model: IterativeModel) -> types.IterativeModel:
        return model

    def lanmt(model: SourceLatentVariableModel) -> types.LatentLengthModel:
        return model

    def lvm(model: LatentVariableModel) -> types.LatentModel:
        return model

    def nat(model: NonAutoregressiveModel) -> types.AlignedLatentModel:
        return model

    def score(model: ScoreNetwork) -> types.Refiner:
        return model
