"""ENGINE (Tu et al. 2020): a masked language model, all masked, that minimises an autoregressive energy."""

from pathlib import Path

from workflow_src.families import cmlm
from workflow_src.families.cmlm import CmlmConfig
from workflow_src.losses.settings import RelaxedEnergyConfig
from workflow_src.spec import AUTOREGRESSIVE, LENGTHS, MASKED, PARALLEL, Family, Look, Role

FAMILY = Family(
    name="inference-network",
    title="Inference network",
    model=CmlmConfig,
    objective=RelaxedEnergyConfig,
    presets=Path(__file__).parents[3] / "config/models/inference-network.yaml",
    build=cmlm.FAMILY.build,
    loss="workflow_src.families.inference:relaxed_energy_loss",
    validation="workflow_src.families.inference:validate",
    # Training masks all subwords, as argmax does. With some unmasked, as in mask-predict, the network has only what its
    # first weights learned.
    searches=("argmax", "mask-predict"),
    needs={"energy": Role(AUTOREGRESSIVE, agree=("max_positions", "subwords"), training=True)},
    traits=frozenset({LENGTHS, MASKED, PARALLEL}),
    refuses=cmlm.FAMILY.refuses,
    symbols=cmlm.FAMILY.symbols,
    continues=lambda _objective: "missing",
    look=Look("#c2185b", dark="#f06292"),
    order=6,
    loss_title=lambda _objective: "Energy and length loss",
)
