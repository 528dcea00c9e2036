"""The recurrent sequence-to-sequence model with attention: a teacher and an energy beside the Transformer."""

from pathlib import Path

from pydantic import Field

from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.spec import AUTOREGRESSIVE, SCORER, Family, Frozen, Look


class Seq2SeqConfig(Frozen):
    dim: int = Field(gt=0, description="width of the decoder's LSTM")
    embedding_dim: int = Field(gt=0, description="width of embeddings and of the output projection's inputs")
    encoder_dim: int = Field(gt=0, description="width of the encoder's LSTM, of each direction")
    encoder_layers: int = Field(2, gt=0)
    decoder_layers: int = Field(2, gt=0)
    dropout: float = Field(0.1, ge=0, lt=1)
    max_positions: int = Field(512, gt=0, description="longest sequence in subwords, end symbol counted")


FAMILY = Family(
    name="seq2seq",
    title="Autoregressive LSTM with attention",
    model=Seq2SeqConfig,
    objective=CrossEntropyConfig,
    presets=Path(__file__).parents[3] / "config/models/seq2seq.yaml",
    build="workflow_src.families.seq2seq.model:Seq2Seq",
    loss="workflow_src.losses.cross_entropy:cross_entropy",
    validation="workflow_src.families.autoregressive:validate",
    searches=("beam", "greedy", "verified"),
    traits=frozenset({AUTOREGRESSIVE, SCORER}),
    rule="train_teacher",
    look=Look("#8c564b", dark="#c49c94"),
    order=1,
    static=False,
)
