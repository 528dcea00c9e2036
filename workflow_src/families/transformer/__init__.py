"""The autoregressive Transformer: teacher of the others, and baseline."""

from pathlib import Path

from pydantic import Field

from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.nn.settings import StackConfig
from workflow_src.spec import AUTOREGRESSIVE, SCORER, Family, Look


class TransformerConfig(StackConfig):
    encoder_layers: int = Field(gt=0)
    decoder_layers: int = Field(gt=0)


FAMILY = Family(
    name="transformer",
    title="Autoregressive Transformer",
    model=TransformerConfig,
    objective=CrossEntropyConfig,
    presets=Path(__file__).parents[3] / "config/models/transformer.yaml",
    build="workflow_src.families.transformer.model:Transformer",
    loss="workflow_src.losses.cross_entropy:cross_entropy",
    validation="workflow_src.families.autoregressive:validate",
    searches=("beam", "greedy", "verified"),
    traits=frozenset({AUTOREGRESSIVE, SCORER}),
    rule="train_teacher",
    look=Look("#4d4d53", dark="#b9b9c0"),
    order=0,
    blocks=True,
)
