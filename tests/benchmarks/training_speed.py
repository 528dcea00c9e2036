"""Target tokens a second in training, padding not counted. A benchmark, not a test: nothing is asserted.

python tests/benchmarks/training_speed.py --train results/tatoeba/encoded/raw/train --family transformer --threads 2
"""

from __future__ import annotations

import argparse
import json
import tempfile

import torch
import yaml

from workflow_src.config.files import CONFIG_FOLDER
from workflow_src.config.training import TrainingConfig
from workflow_src.data.encoded import EncodedCorpus
from workflow_src.families.build import build, build_objective
from workflow_src.nn.weights import count_parameters
from workflow_src.runtime.device import choose, keep_memory, set_threads
from workflow_src.training.dev import Validation
from workflow_src.training.loop import Trainer
from workflow_src.training.state import StateFolder
from workflow_src.training.update import Task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", required=True, help="prefix of an encoded training corpus")
    parser.add_argument(
        "--family", default="transformer", choices=("transformer", "nat", "dat", "lvm", "score", "energy")
    )
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--batch-tokens", type=int, default=2000)
    parser.add_argument("--warmup", type=int, default=50, help="updates before the clock starts")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    keep_memory()
    set_threads(arguments.threads)
    runtime = choose(arguments.device, arguments.precision, arguments.compile)
    torch.manual_seed(1)
    sizes = {"source": arguments.vocabulary, "target": arguments.vocabulary, "joint": True}

    def model(family: str):
        presets = yaml.safe_load((CONFIG_FOLDER / "models" / f"{family}.yaml").read_text())
        return build(family, presets[arguments.preset], sizes)

    frozen = model("lvm") if arguments.family in ("score", "energy") else None
    trained = model(arguments.family)
    corpus = EncodedCorpus.open(arguments.train)
    rates = []
    for steps in (arguments.warmup, arguments.steps):
        never = 10**9
        config = TrainingConfig(
            max_steps=steps, batch_tokens=arguments.batch_tokens, validate_every=never, save_every=never, keep="last"
        )
        with tempfile.TemporaryDirectory() as folder:
            task = Task(trained, build_objective(arguments.family, {}), corpus, config, 1, runtime, frozen=frozen)
            trainer = Trainer(task, Validation(lambda _: {"none": 0.0}, "none"), StateFolder(folder, "benchmark"))
            progress = trainer.run()
        rates.append(progress.target_tokens / progress.seconds)
    print(
        json.dumps(
            vars(arguments)
            | {"parameters": count_parameters(trained), "device": str(runtime.device), "dtype": str(runtime.dtype)}
            | {"torch": torch.__version__, "target_tokens_per_second": round(rates[-1])}
        )
    )


if __name__ == "__main__":
    main()
