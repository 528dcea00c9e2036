"""Write a miniature checkpoint in COMET's own format: `PYTHON real_comet.py FOLDER SEED < SENTENCES`.

PYTHON has unbabel-comet. Prints figures of the sentences, computed one by one, and the arguments of COMET's functions.

The encoder is a BERT of two layers with random weights; its vocabulary is the letters. COMET's `RegressionMetric` and
Lightning write FOLDER/checkpoints/model.ckpt and FOLDER/hparams.yaml.
"""

from __future__ import annotations

import inspect
import json
import string
import sys
from pathlib import Path

import comet
import pytorch_lightning
import torch
import yaml
from comet.models import RegressionMetric


def write(folder: Path, seed: int) -> RegressionMetric:
    encoder = folder / "encoder"
    encoder.mkdir(parents=True)
    letters = list(string.ascii_lowercase)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (encoder / "vocab.txt").write_text("\n".join(words) + "\n")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = {"model_type": "bert", "vocab_size": len(words), "max_position_embeddings": 128, **sizes}
    (encoder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    model = RegressionMetric(
        encoder_model="BERT", pretrained_model=str(encoder), hidden_sizes=[16], load_pretrained_weights=False
    )
    trainer = pytorch_lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.strategy.connect(model)
    trainer.save_checkpoint(folder / "checkpoints" / "model.ckpt", weights_only=False)
    settings = {name: value for name, value in model.hparams.items()} | {"class_identifier": "regression_metric"}
    (folder / "hparams.yaml").write_text(yaml.safe_dump(settings))
    return model.eval()


def figure(model: RegressionMetric, source: str, hypothesis: str, reference: str) -> float:
    """The figure of one sentence, without COMET's batches."""
    inputs = model.prepare_sample([{"src": source, "mt": hypothesis, "ref": reference}], stage="predict")
    with torch.inference_mode():
        return float(model(**inputs).score)


if __name__ == "__main__":
    network = write(Path(sys.argv[1]), int(sys.argv[2]))
    functions = (comet.load_from_checkpoint, comet.download_model, RegressionMetric.predict)
    arguments = {function.__name__: list(inspect.signature(function).parameters) for function in functions}
    print(json.dumps({"figures": [figure(network, *line) for line in json.load(sys.stdin)], "arguments": arguments}))
