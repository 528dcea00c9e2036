"""ENGINE (Tu et al. 2020): a BiLSTM tagger that minimises an autoregressive energy."""

from pathlib import Path

from workflow_src.families import tagger
from workflow_src.families.tagger import TaggerConfig
from workflow_src.losses.settings import RelaxedEnergyConfig
from workflow_src.spec import AUTOREGRESSIVE, LENGTHS, PARALLEL, Family, Look, Role

FAMILY = Family(
    name="inference-tagger",
    title="BiLSTM inference network",
    model=TaggerConfig,
    objective=RelaxedEnergyConfig,
    presets=Path(__file__).parents[3] / "config/models/inference-tagger.yaml",
    build=tagger.FAMILY.build,
    loss="workflow_src.families.inference:relaxed_energy_loss",
    validation="workflow_src.families.inference:validate",
    searches=("argmax",),
    refuses=tagger.FAMILY.refuses,
    needs={"energy": Role(AUTOREGRESSIVE, agree=("max_positions", "subwords"), training=True)},
    traits=frozenset({LENGTHS, PARALLEL}),
    continues=lambda _objective: "missing",
    look=Look("#00838f", dark="#4dd0e1"),
    order=6,
    static=tagger.FAMILY.static,
    rule="train_inference_network",
    loss_title=lambda _objective: "Energy and length loss",
)
