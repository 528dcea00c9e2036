"""Text in, text out, from an exported bundle: for people who just want translations.

from workflow_src import Translator

translator = Translator.load("results/tatoeba/systems/score/seed-1/bundle")
print(translator.translate(["Das ist ein Satz."]))
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workflow_src.config.families import LATENT_SEARCH
from workflow_src.data.subwords import Subwords
from workflow_src.decoding.batches import search_all, search_rows
from workflow_src.decoding.latent import translate_batch
from workflow_src.engines import onnxruntime
from workflow_src.engines.cuda_graphs import CapturedLatent
from workflow_src.runtime.device import Runtime, choose, set_threads
from workflow_src.searches.beam.search import beam_search
from workflow_src.searches.greedy.search import greedy
from workflow_src.searches.latent_search.search import Candidates, latent_search
from workflow_src.serving.base import BaseTranslator
from workflow_src.serving.bundle import load_models, read_bundle
from workflow_src.serving.ctranslate2 import CTranslate2Translator
from workflow_src.types import Hypotheses


class Translator(BaseTranslator):
    """A trained system, ready to translate.

    `searches` are the searches it knows; `device`, `precision` and `engine` say what was chosen. `last_timings` holds
    the seconds that the last call spent on subwords, {"encode", "decode"}.
    """

    def __init__(self, description: dict[str, Any], models: dict[str, nn.Module], subwords: Subwords, runtime: Runtime):
        super().__init__(description, models, subwords, runtime)
        self._fast: onnxruntime.FastLatent | CapturedLatent | None = None
        self._automatic = True

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        precision: str = "auto",
        threads: int | None = None,
        engine: str = "auto",
    ) -> BaseTranslator:
        """Read a bundle folder, or one for CTranslate2. `engine` is what computes latent searches, see `use`.

        Raises ArtifactError when the folder is no bundle or a file of it is missing, damaged or of another model;
        ValueError for a device that is not there or an engine that cannot serve.
        """
        folder = Path(folder)
        description = read_bundle(folder)
        if description.get("engine") == "ctranslate2":
            return CTranslate2Translator.open(folder, description, device, precision, threads)
        runtime = choose(device, precision, training=False)
        set_threads(threads)
        models = load_models(folder, description, runtime)
        return cls(description, models, Subwords.load(folder / "subwords"), runtime).use(engine)

    def use(self, engine: str) -> Translator:
        """Compute prior-mean, delta and score by `engine`: eager, fast, fast-int8, or auto (what serves best here: fast
        for a sentence by itself, eager for batches).

        On CPUs fast is ONNX Runtime (`engines/onnxruntime.py`), on GPUs captured graphs (`engines/cuda_graphs.py`).
        Everything else (energy, autoregressive searches, traces; on GPUs scores) is eager. Raises ValueError where
        `engine` cannot serve; auto always can.
        """
        self.engine = onnxruntime.choose_engine(engine, self.device, self.precision, "lvm" in self.models)
        self._fast = None
        self._automatic = engine == "auto"
        if self.engine == "eager":
            return self
        lvm, score = self.models["lvm"], self.models.get("score")
        if self.runtime.device.type == "cuda":
            limit = min(model.config.max_positions for model in self.models.values())
            self._fast = CapturedLatent(lvm, limit, self.runtime.device, score)
        else:
            self._fast = onnxruntime.FastLatent(lvm, score, torch.get_num_threads(), self.engine == "fast-int8")
        return self

    def search(
        self,
        lines: list[str],
        search: str | None = None,
        steps: int | None = None,
        beam: int | None = None,
        length_penalty: float = 1.0,
        step_size: float = 1.0,
        max_length_ratio: float = 2.0,
        batch: int = 64,
        trace: bool = False,
        scored: bool = True,
        normalised: bool = False,
        first_line: int = 1,
        stop_threshold: float | None = None,
        length_quantile: float | None = None,
        lengthening: float = 0.0,
        lengths: int = 5,
        samples: int = 5,
        mean_first: bool = False,
        search_seed: int = 1,
        refinement: str | None = None,
        rescorer: BaseTranslator | None = None,
    ) -> Hypotheses:
        """Subword hypotheses with scores for `lines`, `batch` of them at a time.

        `search` is one of `searches` (default: the bundle's); `steps` apply to delta, score and energy, `beam` and
        `length_penalty` to beam. Raises ValueError for an unknown search, a setting out of range, or a line that is
        longer than the model's positions, named by its number (counted from `first_line`).

        `normalised` lines, such as those of a corpus folder, are taken as they are: Moses tokenisation of tokenised
        text is not the same text. Without `scored`, scores that cost time to compute are 0.

        `length_quantile` takes that quantile of the predicted target lengths instead of the most probable one;
        `lengthening` times the source's subwords, rounded, are added to every predicted length. With
        `stop_threshold`, delta, score and energy stop a sentence after a step shorter than it. latent-search
        tries the `lengths` most probable lengths with `samples` samples of z each (`mean_first`: the first is the prior
        mean), refines them by `refinement` (default: the system's own) and ranks them by `rescorer`, a translator of
        an autoregressive system with the same subwords, or by the model's own score.
        """
        chosen = self.settings(search, steps, beam, batch=batch, lengths=lengths, samples=samples)
        _check_range(step_size=step_size, length_quantile=length_quantile, stop_threshold=stop_threshold)
        _check_range(lengthening=lengthening)
        _check_range(search_seed=search_seed, length_penalty=length_penalty, max_length_ratio=max_length_ratio)
        faster = self._fast if chosen["search"] in onnxruntime.SEARCHES and not trace else None
        # Measured on CPUs: the runtime wins for a sentence by itself and loses in batches.
        if stop_threshold is not None or (self._automatic and min(batch, len(lines)) > 1):
            faster = None
        if faster and scored and not faster.gives_scores:
            faster = None
        sources = self._sources(lines, normalised, first_line)
        if faster:
            ask = lambda rows: faster.search(  # noqa: E731
                rows, chosen["search"], chosen["steps"], step_size, scored, length_quantile, lengthening
            )
            return search_rows(ask, sources, batch)
        if chosen["search"] == "greedy":
            run = lambda source: greedy(self.models["transformer"], source, max_length_ratio, scored)  # noqa: E731
        elif chosen["search"] == "beam":
            run = lambda source: beam_search(  # noqa: E731
                self.models["transformer"], source, chosen["beam"], length_penalty, max_length_ratio
            )
        elif chosen["search"] == LATENT_SEARCH:
            refinement = refinement or self.description["defaults"].get("refinement", "delta")
            ranks = self._rescoring_model(rescorer)
            candidates = Candidates(lengths, samples, search_seed, mean_first, lengthening)
            run = lambda source: latent_search(  # noqa: E731
                self.models["lvm"], source, refinement, chosen["steps"], candidates, step_size,
                refiner=self.models.get(refinement), rescorer=ranks,
            )  # fmt: skip
        else:
            run = lambda source: translate_batch(  # noqa: E731
                self.models["lvm"], source, chosen["search"], chosen["steps"], step_size,
                refiner=self.models.get(chosen["search"]), trace=trace, scored=scored, stop_threshold=stop_threshold,
                length_quantile=length_quantile, lengthening=lengthening,
            )  # fmt: skip
        # Not inference mode: an energy network differentiates.
        with torch.no_grad():
            return search_all(run, sources, batch, self.runtime.device)

    def _rescoring_model(self, rescorer: BaseTranslator | None) -> nn.Module | None:
        if rescorer is None:
            return None
        if rescorer.description.get("engine") == "ctranslate2":
            raise ValueError(
                "the rescorer is a CTranslate2 folder, which scores no given text; give the system's bundle."
            )
        if "transformer" not in rescorer.models:
            raise ValueError(
                f'the rescorer "{rescorer.description["system"]}" is not autoregressive; give the bundle of a '
                "transformer."
            )
        if rescorer.subwords.digest != self.subwords.digest:
            raise ValueError(
                f'the rescorer "{rescorer.description["system"]}" was trained with other subwords than this system; '
                "give one trained on the same recipe."
            )
        return rescorer.models["transformer"]

    def _positions(self) -> int:
        return min(model.config.max_positions for model in self.models.values())


# Smallest and largest values, and whether the smallest itself is allowed.
_RANGES = {
    "step_size": (0.0, math.inf, False),
    "length_quantile": (0.0, 1.0, False),
    "lengthening": (0.0, math.inf, True),
    "stop_threshold": (0.0, math.inf, False),
    "length_penalty": (0.0, math.inf, True),
    "max_length_ratio": (0.0, math.inf, False),
    "search_seed": (0, 2**31, True),
}


def _check_range(**values: float | None) -> None:
    """Raises ValueError naming the first setting out of range; None is a setting that was not given."""
    for name, value in values.items():
        least, most, included = _RANGES[name]
        if value is None or (least <= value if included else least < value) and value < most:
            continue
        above = f"{least} or more" if included else f"above {least:g}"
        below = f" and below {most:.0f}" if most < math.inf else ""
        raise ValueError(f"{name} is {value}; it must be {above}{below}.")
