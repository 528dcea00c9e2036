"""A tagger of bidirectional LSTM layers: every target word from source states around its place, in one pass."""

from pathlib import Path

from pydantic import Field

from workflow_src.decoding.settings import lengths_refusal
from workflow_src.losses.settings import OnePassConfig
from workflow_src.spec import LENGTHS, PARALLEL, Family, Frozen, Look


class TaggerConfig(Frozen):
    dim: int = Field(gt=0, description="width of the LSTM layers in each direction")
    embedding_dim: int = Field(gt=0, description="width of the source embeddings")
    source_layers: int = Field(1, gt=0, description="LSTM layers over the source")
    target_layers: int = Field(1, gt=0, description="LSTM layers over the positions of the target")
    dropout: float = Field(0.1, ge=0, lt=1)
    max_positions: int = Field(512, gt=0, description="longest sequence in subwords, end symbol counted")
    max_length_difference: int = Field(50, gt=0, description="the length head classifies |y|-|x| in [-this, this]")


FAMILY = Family(
    name="tagger",
    title="BiLSTM tagger",
    model=TaggerConfig,
    objective=OnePassConfig,
    presets=Path(__file__).parents[3] / "config/models/tagger.yaml",
    build="workflow_src.families.tagger.model:Tagger",
    loss="workflow_src.families.tagger.objective:tagging_loss",
    validation="workflow_src.families.tagger.validation:validate",
    searches=("argmax",),
    traits=frozenset({LENGTHS, PARALLEL}),
    look=Look("#9e9d24", dark="#d4e157"),
    order=6,
    static=False,
    refuses=lambda model, _search, settings: lengths_refusal(model.max_length_difference, settings),
)
