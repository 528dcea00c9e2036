"""Models of families fit the protocols of `types.py`. mypy checks it here; nothing of it runs.

Families are built by name, so that no call shows mypy which class a search gets. N-gram models have no protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workflow_src import types
    from workflow_src.families.autoregressive import Autoregressive
    from workflow_src.families.cmlm.model import MaskedLanguageModel
    from workflow_src.families.energy.model import EnergyNetwork
    from workflow_src.families.inat.model import IterativeModel
    from workflow_src.families.lanmt.model import SourceLatentVariableModel
    from workflow_src.families.lvm.model import LatentVariableModel
    from workflow_src.families.nat.model import NonAutoregressiveModel
    from workflow_src.families.score.model import ScoreNetwork
    from workflow_src.families.tagger.model import Tagger

    autoregressive: type[types.AutoregressiveModel] = Autoregressive
    rescorer: type[types.RelaxedRescorer] = Autoregressive
    cmlm: type[types.MaskedModel] = MaskedLanguageModel
    energy: type[types.Refiner] = EnergyNetwork
    inat: type[types.IterativeModel] = IterativeModel
    lanmt: type[types.LatentLengthModel] = SourceLatentVariableModel
    lvm: type[types.LatentModel] = LatentVariableModel
    nat: type[types.AlignedLatentModel] = NonAutoregressiveModel
    score: type[types.Refiner] = ScoreNetwork
    tagger: type[types.OnePassModel] = Tagger
