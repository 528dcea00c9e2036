"""A package from outside, as text, with a family, a search, an engine, an analysis, a metric and a filter."""

from __future__ import annotations

from pathlib import Path

COLOUR = "#a0522d"
DECLARATIONS = """
from pathlib import Path
from typing import Annotated

from pydantic import Field

from workflow_src.config.plan.selection import rows
from workflow_src.spec import (
    Analysis, AnalysisSettings, Engine, Family, Figure, FigureTable, Filter, Frozen, Generator, Key, Look, Metric,
    Option, Plugin, Program, Search, SearchSettings, Selection,
)


class Model(Frozen):
    dim: int = Field(gt=0)
    max_positions: int = 200


class Objective(Frozen):
    sharpness: float = Field(1.0, gt=0)


class Settings(SearchSettings):
    passes: Annotated[int, Option(required=True, part="-{}", always=True)] = Field(1, ge=0, description="over a line")
    stretch: Annotated[float, Option(tune=(0.5, 1.0), part="-stretch{:g}")] = Field(1.0, gt=0, description="of lengths")


FAMILY = Family(
    name="wordbag", title="Bag of words", model=Model, objective=Objective,
    presets=Path(__file__).with_name("presets.yaml"),
    build="bagged.code:build", loss="bagged.code:loss", validation="bagged.code:validate", searches=("unrepeat",),
    traits=frozenset({"bagging"}),
    look=Look("#a0522d", dark="#d08a5d"), order=7,
)
SEARCH = Search(
    name="unrepeat", title="without repetitions", settings=Settings, module="bagged.code:Unrepeat", series="passes",
    traceable=True,
    look=Look(marker="h"),
)


def serves(family, search, settings):
    return None if family is FAMILY and search is SEARCH else "computes bags of words only; remove the engine"


ENGINE = Engine(
    name="ledger", title="Ledger", serves=serves, compute_types=("float32",), exports="ledger",
    export="bagged.ledger:export", open="bagged.ledger:open_folder",
)


class HistogramSettings(AnalysisSettings):
    width: int = Field(5, gt=0, description="subwords that share a bar")


LENGTHS = FigureTable(
    (Figure("sentences", "sentences", digits=0, panel="sentences"),),
    line="Sentences of {split} by the length of their translation, in subwords.",
    over=Key("bar", "bar of {width}", "bars of {width} subwords"),
    label="Lengths of outputs",
)


ANALYSIS = Analysis(
    name="outputs_by_length", title="Lengths of what rows put out", settings=HistogramSettings,
    select=lambda settings, loaded: Selection.of(rows=rows(loaded)), needs="it reads translations",
    measure="bagged.histogram:measure", tables=(LENGTHS,), show="bagged.shown:show",
)


class Matching(Frozen):
    words: int = Field(0, ge=0, description="that are compared, 0 for all")


METRIC = Metric(
    name="exactmatch", title="exact matches", heading="exact", segments="bagged.exact:segments", settings=Matching,
    unit="%", bounds=(0, 1), decides=True, about="of the first words",
)


LETTERS = Metric(
    name="letters", title="shared letters", segments="bagged.letters:segments", unit="%", bounds=(0, 1),
    program=Program(Path(__file__).with_name("letters_apart.py"), Path(__file__).with_name("letters.yaml")),
)


class Openings(Frozen):
    words: tuple[str, ...] = Field(("Der",), description="pairs with such a first word in the source are left out")


def openings(settings, languages):
    def judge(pair):
        if pair.source.split()[0] in settings.words:
            return f"words in {languages[0]}"
        return pair._replace(target=pair.target[:-1]) if pair.target.endswith("?") else None

    return lambda pairs: list(map(judge, pairs))


FILTER = Filter(name="openings", title="First words", settings=Openings, check=openings)


class Numerals(Frozen):
    train: int = Field(200, gt=0)
    dev: int = Field(10, gt=0)
    test: int = Field(10, ge=0)
    first: int = Field(0, ge=0, description="number that the sentences begin with")


GENERATOR = Generator(
    name="numerals", title="Numerals", languages=("sl", "hr"), settings=Numerals, generate="bagged.code:numerals"
)
PLUGIN = Plugin(
    "bagged", "0.3", families=(FAMILY,), searches=(SEARCH,), engines=(ENGINE,), analyses=(ANALYSIS,),
    metrics=(METRIC, LETTERS), filters=(FILTER,), generators=(GENERATOR,),
)
"""
PRESETS = "miniature: {dim: 8}\nlarger: {dim: 16}\n"
CODE = '''
import torch
from torch import nn

from workflow_src.decoding.search import SearchModule
from workflow_src.types import EOS, PAD, DevFigures, LossTerms, Measured


def numerals(settings):
    counts, first = {"train": settings.train, "dev": settings.dev, "test": settings.test}, settings.first
    return {
        split: [(f"{number} ena", f"{number} jedan") for number in range(first, first + count)]
        for split, count in counts.items()
        if count
    }


class Bag(nn.Module):
    """Words at positions, from the mean of the source's embeddings."""

    def __init__(self, config, source_size, target_size):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(source_size, config.dim)
        self.positions = nn.Embedding(config.max_positions, config.dim)
        self.output = nn.Linear(config.dim, target_size)

    def forward(self, source, length):
        mask = (source != PAD)[..., None]
        mean = (self.words(source) * mask).sum(1) / mask.sum(1)
        return self.output(mean[:, None] + self.positions.weight[:length])


def build(config, source_size, target_size, joint):
    return Bag(config, source_size, target_size)


def loss(model, batch, context, config):
    logits = config.sharpness * model(batch.source, batch.target.size(1))
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), batch.target, reduction="none")
    count = int(batch.target_mask.sum())
    return LossTerms((losses * batch.target_mask).sum() / count, count, {})


def validate(config, base):
    def measure(model, batch, keys):
        right = (model(batch.source, batch.target.size(1)).argmax(-1) == batch.target) & batch.target_mask
        return Measured({"dev_words": (right.sum(), batch.target_mask.sum())})

    return DevFigures(measure, {}, "dev_words")


class Unrepeat(SearchModule):
    """The most probable words; then, `passes` times, the next best word where one follows itself."""

    def forward(self, source, lengths=None, watch=None):
        if lengths is None:
            lengths = (((source != PAD).sum(1) - 1) * self.settings.stretch).long().clamp(min=1)
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        logits = self.model(source, mask.size(1))
        logits[..., : EOS + 1] = float("-inf")
        ranked = logits.argsort(-1, descending=True)
        places = torch.zeros_like(ranked[..., :1])
        for _ in range(self.settings.passes + 1):
            words = ranked.gather(-1, places)[..., 0]
            outputs = torch.where(mask, words, PAD)
            if watch:
                watch(outputs)
            places[:, 1:, 0] += words[:, 1:] == words[:, :-1]
        return outputs, torch.zeros(len(outputs))
'''


LEDGER = """
import dataclasses

from workflow_src.engines.eager import EagerSession
from workflow_src.nn.weights import weights_of
from workflow_src.records.atomic import save_tensors
from workflow_src.runtime.device import choose
from workflow_src.serving.bundle import read_bundle
from workflow_src.serving.opened import load_models
from workflow_src.spec import Export


def export(model, subwords, folder):
    save_tensors(folder / "ledger.safetensors", weights_of(model))
    return Export("ledger.safetensors", {"ledger": "1.0"})


class Ledger(EagerSession):
    device, precision = "cpu", "float32"

    def __init__(self, model):
        super().__init__("cpu")
        self._model = model

    def compute(self, sources, request):
        return super().compute(sources, dataclasses.replace(request, networks={"model": self._model}))


def open_folder(system):
    runtime = choose("cpu", "float32", training=False)
    (model,) = load_models(system.folder, read_bundle(system.folder), runtime).values()
    return Ledger(model)
"""
HISTOGRAM = """
from collections import Counter


def measure(inputs, settings):
    rows = []
    for row in inputs.rows:
        bars = Counter(len(line["subwords"]) // settings.width for line in inputs.details(row))
        key = {name: row[name] for name in ("system", "name", "seed")}
        rows += [key | {"bar": number, "sentences": bars[number]} for number in range(max(bars) + 1)]
    return {"width": settings.width, "rows": rows}
"""
SHOWN = """
from workflow_src.evaluation.document import Paragraph


def show(content, manifest):
    return [Paragraph.of(f"The first bar has lengths below {content.width}.")]
"""
EXACT = """
import numpy as np

from workflow_src.spec import Segments


def segments(texts, settings):
    pairs = zip(texts.hypotheses, texts.references, strict=True)
    count = settings.words or None
    return Segments(np.array([float(ours.split()[:count] == theirs.split()[:count]) for ours, theirs in pairs]))
"""
LETTERS = """
import numpy as np

from workflow_src.spec import Segments


def segments(texts, settings):
    return Segments(np.array(texts.figures("letters")))
"""
# Runs by itself, without the project.
LETTERS_APART = """
import json
import sys


def answer(content):
    print(json.dumps(content), flush=True)


def figure(source, hypothesis, reference):
    ours, theirs = set(hypothesis), set(reference)
    return len(ours & theirs) / max(1, len(ours | theirs))


assert "workflow_src" not in sys.modules
json.loads(sys.stdin.readline())
answer({"model": {}, "signature": "set:letters"})
while line := sys.stdin.readline():
    answer({"figures": [figure(*sentence) for sentence in json.loads(line)["sentences"]]})
"""
FILES = {
    "exact.py": EXACT,
    "letters.py": LETTERS,
    "letters_apart.py": LETTERS_APART,
    "letters.yaml": "dependencies: [python=3.11]\n",
    "__init__.py": DECLARATIONS,
    "code.py": CODE,
    "ledger.py": LEDGER,
    "histogram.py": HISTOGRAM,
    "shown.py": SHOWN,
    "presets.yaml": PRESETS,
}


def write(folder: Path) -> str:
    """Write the package into `folder`; returns its name."""
    package = folder / "bagged"
    package.mkdir()
    for name, text in FILES.items():
        (package / name).write_text(text)
    return package.name
