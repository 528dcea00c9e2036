"""The recurrent sequence-to-sequence model with attention: a teacher and an energy beside the Transformer."""

from pathlib import Path

from pydantic import Field

from workflow_src.losses.settings import CrossEntropyConfig
from workflow_src.nn.settings import bidirectional_weights, lstm_weights
from workflow_src.spec import AUTOREGRESSIVE, SCORER, Family, Frozen, Look


class Seq2SeqConfig(Frozen):
    dim: int = Field(gt=0, description="width of the decoder's LSTM")
    embedding_dim: int = Field(gt=0, description="width of embeddings and of the output projection's inputs")
    encoder_dim: int = Field(gt=0, description="width of the encoder's LSTM, of each direction")
    encoder_layers: int = Field(2, gt=0)
    decoder_layers: int = Field(2, gt=0)
    dropout: float = Field(0.1, ge=0, lt=1)
    max_positions: int = Field(512, gt=0, description="longest sequence in subwords, end symbol counted")


def weights(model: Seq2SeqConfig, vocabulary: int) -> dict[str, int]:
    """Keys are the encoder's, because they are computed once for a source position."""
    states = 2 * model.encoder_dim
    layers = lstm_weights(model.embedding_dim, model.dim) + (model.decoder_layers - 1) * lstm_weights(
        model.dim, model.dim
    )
    return {
        "encoder": bidirectional_weights(model.embedding_dim, model.encoder_dim, model.encoder_layers)
        + states * model.dim,
        "decoder": layers + (states + model.dim) * model.embedding_dim,
        "output": vocabulary * model.embedding_dim,
    }


FAMILY = Family(
    name="seq2seq",
    title="Autoregressive LSTM with attention",
    model=Seq2SeqConfig,
    objective=CrossEntropyConfig,
    presets=Path(__file__).parents[3] / "config/models/seq2seq.yaml",
    build="workflow_src.families.seq2seq.model:Seq2Seq",
    loss="workflow_src.losses.cross_entropy:cross_entropy",
    validation="workflow_src.families.autoregressive:validate",
    searches=("beam", "greedy"),
    weights=weights,
    layers=lambda model: model.encoder_layers + model.decoder_layers,
    traits=frozenset({AUTOREGRESSIVE, SCORER}),
    rule="train_teacher",
    look=Look("#8c564b", dark="#c49c94"),
    order=1,
)
