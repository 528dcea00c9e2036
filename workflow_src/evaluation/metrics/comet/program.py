"""Score sentences with a COMET model. Reads and writes JSON lines, as workflow_src/stages/score_sentences.py says.

Runs in an environment of its own: standard library and unbabel-comet only.
"""

import hashlib
import importlib
import importlib.metadata
import json
import os
import sys
import traceback

PACKAGE = "unbabel-comet"


class Refused(Exception):
    """Input that cannot be used: what is wrong, and what to do."""

    def __init__(self, problem, fix):
        super().__init__(problem, fix)
        self.problem, self.fix = problem, fix


def import_comet():
    """The package comet."""
    try:
        return importlib.import_module("comet")
    except ImportError as failure:
        raise Refused(
            f"{sys.executable} cannot import COMET ({first_line(failure)})",
            f"install {PACKAGE} for it, name another Python in runtime.pythons.comet, or let Snakemake use Conda",
        ) from None


def first_line(failure):
    """The first line of an error's text, or its kind."""
    return next((line.strip() for line in str(failure).splitlines() if line.strip()), type(failure).__name__)


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def digest(path):
    """SHA-256 of a file."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            total.update(block)
    return total.hexdigest()


class Scorer:
    """A COMET model that is loaded when the first sentences come.

    `settings` are those of the metric, `files` has path and digest of the files that they name.
    """

    def __init__(self, settings, files, device, threads, batch):
        self.device = device
        self.threads = threads
        self.batch = batch
        self.model = None
        if version(PACKAGE) is None:
            import_comet()
        if files:
            self.checkpoint = os.path.abspath(files["checkpoint"]["path"])
            self.name, self.offline = os.path.basename(self.folder), True
            self.digests = {name: file["sha256"] for name, file in files.items()}
        else:
            self.name, self.offline = settings["download"], False
            self.checkpoint = self.downloaded()
            self.digests = {
                "checkpoint": digest(self.checkpoint),
                "hparams": digest(os.path.join(self.folder, "hparams.yaml")),
            }

    @property
    def folder(self):
        """The model's folder, in which COMET looks for hparams.yaml."""
        return os.path.dirname(os.path.dirname(self.checkpoint))

    def downloaded(self):
        """The checkpoint of the model that the settings name; from Hugging Face's cache where that has it."""
        try:
            return import_comet().download_model(self.name)
        except KeyError:
            raise Refused(
                f"the model {self.name} cannot be downloaded",
                "check its name and the network, accept its terms and log in to Hugging Face where it has some, or "
                "set metrics.comet.checkpoint to a file",
            ) from None

    def description(self):
        """The model by name and digest, which figures depend on, and versions of packages."""
        package = version(PACKAGE)
        return {
            "model": {**self.digests, PACKAGE: package},
            "signature": f"model:{self.name}|sha256:{self.digests['checkpoint'][:12]}|{PACKAGE}:{package}",
            "versions": {name: version(name) for name in (PACKAGE, "torch", "transformers", "pytorch-lightning")},
        }

    def loaded(self):
        """The model, on the CPU."""
        comet = import_comet()
        # Installed with COMET.
        torch = importlib.import_module("torch")
        torch.set_num_threads(self.threads)
        if self.device != "cpu" and not torch.cuda.is_available():
            raise Refused(
                f"PyTorch of {sys.executable} can use no GPU and is to compute on {self.device}",
                "install one that can, or set runtime.device to cpu",
            )
        try:
            return comet.load_from_checkpoint(self.checkpoint, local_files_only=self.offline)
        except OSError as failure:
            traceback.print_exc()
            raise Refused(
                f"the encoder that {self.checkpoint} is built on is not here ({first_line(failure)})",
                "download its configuration and tokeniser into Hugging Face's cache; pretrained_model in hparams.yaml "
                "says its name",
            ) from None
        except Exception as failure:  # damaged files raise errors of any kind in three libraries
            traceback.print_exc()
            raise Refused(
                f"{self.checkpoint} cannot be read as a model of COMET ({type(failure).__name__}: "
                f"{first_line(failure)})",
                "name another file",
            ) from None

    def score(self, sentences):
        """Figures of [source, hypothesis, reference] sentences."""
        self.model = self.model or self.loaded()
        gpu, _, number = self.device.partition(":")
        gpus = {"gpus": 1, "devices": [int(number or 0)]} if gpu == "cuda" else {"gpus": 0}
        samples = [{"src": source, "mt": hypothesis, "ref": reference} for source, hypothesis, reference in sentences]
        try:
            prediction = self.model.predict(samples, batch_size=self.batch, progress_bar=False, **gpus)
        except RuntimeError as failure:
            if "out of memory" not in str(failure):
                raise
            raise Refused(
                f"memory does not suffice for {self.batch} sentences at a time", "lower runtime.scoring_batch"
            ) from None
        return [float(figure) for figure in prediction["scores"]]


def main():
    # Output of libraries goes to stderr.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(content):
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    requests = (json.loads(line) for line in iter(sys.stdin.readline, ""))
    try:
        scorer = Scorer(**next(requests))
        answer(scorer.description())
        for request in requests:
            answer({"figures": scorer.score(request["sentences"])})
    except Refused as refusal:
        answer({"problem": refusal.problem, "fix": refusal.fix})
        sys.exit(1)


if __name__ == "__main__":
    main()
