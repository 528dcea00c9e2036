"""Text in, text out, from an exported bundle: for people who just want translations.

from workflow_src.translate import Translator
translator = Translator.load("results/tatoeba/systems/score/seed-1/bundle")
print(translator.translate(["Das ist ein Satz."]))
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workflow_src.artifacts import ArtifactError, read_json, sha256
from workflow_src.config.base import nearest
from workflow_src.config.datasets import NormalisationConfig
from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.config.families import (
    AUTOREGRESSIVE_SEARCHES,
    FAMILIES,
    LATENT_SEARCH,
)
from workflow_src.data.normalise import Normaliser
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.data.subwords import Subwords
from workflow_src.inference import fast
from workflow_src.inference.batches import search_all, search_rows
from workflow_src.inference.beam import beam_search, greedy
from workflow_src.inference.captured import CapturedLatent
from workflow_src.inference.latent import translate_batch
from workflow_src.inference.search import Candidates, latent_search
from workflow_src.models.layers import narrow_stacks
from workflow_src.models.weights import load_weights
from workflow_src.registry import build
from workflow_src.training.runtime import Runtime, choose, set_threads
from workflow_src.types import Hypotheses

FORMAT = 1
DESCRIPTION = "bundle.json"
KEYS = ("models", "searches", "defaults", "languages", "normalisation")


class Translator:
    """A trained system, ready to translate.

    `searches` are the searches it knows; `device`, `precision` and `engine` say what was chosen. `last_timings` holds
    the seconds that the last call spent on subwords, {"encode", "decode"}.
    """

    def __init__(self, description: dict[str, Any], models: dict[str, nn.Module], subwords: Subwords, runtime: Runtime):
        self.description = description
        self.models = models
        self.subwords = subwords
        self.runtime = runtime
        self.searches: list[str] = description["searches"]
        self.last_timings = {"encode": 0.0, "decode": 0.0}
        self.engine = "eager"
        self._fast: fast.FastLatent | CapturedLatent | None = None
        self._automatic = True
        normalisation = NormalisationConfig.model_validate(description["normalisation"])
        self._source = Normaliser(normalisation, description["languages"]["source"])
        self._target = Normaliser(normalisation, description["languages"]["target"])

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        precision: str = "auto",
        threads: int | None = None,
        engine: str = "auto",
    ) -> Translator:
        """Read a bundle folder. `engine` is what computes latent searches, see `use`.

        Raises ArtifactError when the folder is no bundle or a file of it is missing, damaged or of another model;
        ValueError for a device that is not there or an engine that cannot serve.
        """
        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise ArtifactError(f"{folder} is no bundle: it has no {DESCRIPTION}; export a trained system first.")
        description = read_json(folder / DESCRIPTION)
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise ArtifactError(f"{folder / DESCRIPTION} is not of bundle format {FORMAT}; export the system again.")
        missing = [key for key in KEYS if key not in description]
        if missing:
            raise ArtifactError(f"{folder / DESCRIPTION} lacks {missing[0]}; export the system again.")
        if description.get("engine") == "ctranslate2":
            from workflow_src.translate_ctranslate2 import CTranslate2Translator

            return CTranslate2Translator.open(folder, description, device, precision, threads)
        runtime = choose(device, precision, training=False)
        set_threads(threads)
        models = {}
        for name, part in description["models"].items():
            path = folder / part["weights"]
            if not path.is_file():
                raise ArtifactError(f"bundle {folder} lacks {part['weights']}; export the system again.")
            if sha256(path) != part["sha256"]:
                raise ArtifactError(
                    f"weights {path} do not match the checksum in {DESCRIPTION}; copy the bundle again."
                )
            model = build(part["family"], part["model"], part["sizes"])
            load_weights(model, path)
            models[name] = _placed(model, runtime).eval()
        return cls(description, models, Subwords.load(folder / "subwords"), runtime).use(engine)

    def use(self, engine: str) -> Translator:
        """Compute prior-mean, delta and score by `engine`: eager, fast, fast-int8, or auto (what serves best here: fast
        for a sentence by itself, eager for batches).

        On CPUs fast is ONNX Runtime (`inference/fast.py`), on GPUs captured graphs (`inference/captured.py`).
        Everything else (energy, autoregressive searches, traces; on GPUs scores) is eager. Raises ValueError where
        `engine` cannot serve; auto always can.
        """
        self.engine = fast.choose_engine(engine, self.device, self.precision, "lvm" in self.models)
        self._fast = None
        self._automatic = engine == "auto"
        if self.engine == "eager":
            return self
        lvm, score = self.models["lvm"], self.models.get("score")
        if self.runtime.device.type == "cuda":
            limit = min(model.config.max_positions for model in self.models.values())
            self._fast = CapturedLatent(lvm, limit, self.runtime.device, score)
        else:
            self._fast = fast.FastLatent(lvm, score, torch.get_num_threads(), self.engine == "fast-int8")
        return self

    @property
    def device(self) -> str:
        return str(self.runtime.device)

    @property
    def precision(self) -> str:
        return str(self.runtime.dtype).removeprefix("torch.")

    def translate(self, lines: list[str], remove_repetitions: Removal | None = None, **settings: Any) -> list[str]:
        """Translations of `lines`, in order; see `search` for settings. An empty line stays empty.

        Repetitions are removed as in the tables of reports: `remove_repetitions` (see `text`) is none for
        autoregressive searches and subwords for all others, unless it is given.
        """
        found = self.search(lines, **settings, scored=False)
        if remove_repetitions is None:
            search = self.settings(settings.get("search"))["search"]
            remove_repetitions = "none" if search in AUTOREGRESSIVE_SEARCHES else "subwords"
        return self.text(found.tokens, remove_repetitions)

    def trace(self, lines: list[str], search: str, steps: int, **settings: Any) -> list[list[str]]:
        """For each line its translation after 0, 1, … `steps` refinement steps, repetitions kept."""
        if search in (*AUTOREGRESSIVE_SEARCHES, LATENT_SEARCH):
            raise ValueError(f"search {search} has no refinement steps to show.")
        found = self.search(lines, search=search, steps=steps, trace=True, scored=False, **settings)
        if found.traces is None:
            return [[""] * (steps + 1) for _ in lines]
        return [list(texts) for texts in zip(*(self.text(tokens) for tokens in found.traces), strict=True)]

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
        rescorer: Translator | None = None,
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
        faster = self._fast if chosen["search"] in fast.SEARCHES and not trace else None
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

    def _sources(self, lines: list[str], normalised: bool, first_line: int) -> list[list[int]]:
        began = time.perf_counter()
        if not normalised:
            lines = [self._source.line(line) for line in lines]
        sources = self.subwords.encode_source(lines)
        self.last_timings = {"encode": time.perf_counter() - began, "decode": 0.0}
        self._check_lengths(sources, first_line)
        return sources

    def text(self, tokens: list[list[int]], remove_repetitions: Removal = "none") -> list[str]:
        """Lines of text from subword ids.

        `remove_repetitions`: with subwords, runs of the same subword are reduced to one before they are joined; with
        words, runs of the same word of the text. Raises ValueError for anything else but none.
        """
        if remove_repetitions not in REMOVALS:
            allowed = ", ".join(REMOVALS)
            raise ValueError(f'unknown remove_repetitions "{remove_repetitions}"; allowed: {allowed}.')
        began = time.perf_counter()
        if remove_repetitions == "subwords":
            tokens = self.subwords.without_repetitions(tokens)
        # A model may spell a line break, character by character; a line must stay a line.
        texts = (" ".join(text.split()) for text in self.subwords.decode_target(tokens))
        lines = [self._target.detokenise(text) for text in texts]
        if remove_repetitions == "words":
            lines = [collapse_repetitions(line) for line in lines]
        self.last_timings["decode"] += time.perf_counter() - began
        return lines

    def settings(
        self, search: str | None = None, steps: int | None = None, beam: int | None = None, **counts: int
    ) -> dict[str, Any]:
        """The search, steps and beam that are used, with the bundle's own for those not given.

        Raises ValueError for a search that the bundle has not, and for numbers (`counts` too) that are too small.
        """
        defaults = self.description["defaults"]
        search = search or defaults["search"]
        if search not in self.searches:
            allowed = ", ".join(self.searches)
            raise ValueError(f'unknown search "{search}"; allowed: {allowed}.{nearest(search, self.searches)}')
        steps = (0 if search == "prior-mean" else defaults["steps"]) if steps is None else steps
        beam = defaults["beam"] if beam is None else beam
        for name, value, least in (("steps", steps, 0), ("beam", beam, 1), *((n, v, 1) for n, v in counts.items())):
            if value < least:
                raise ValueError(f"{name} is {value}; it must be {least} or more.")
        return {"search": search, "steps": steps, "beam": beam}

    def _rescoring_model(self, rescorer: Translator | None) -> nn.Module | None:
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

    def _check_lengths(self, sources: list[list[int]], first_line: int) -> None:
        limit = self._positions() - 1
        for number, source in enumerate(sources, first_line):
            if len(source) > limit:
                raise ValueError(
                    f"line {number} has {len(source)} subwords, the model takes at most {limit}; split it into "
                    "sentences."
                )


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


def _placed(model: nn.Module, runtime: Runtime) -> nn.Module:
    """The model on its device, in its precision."""
    if runtime.dtype == torch.float32:
        return model.to(runtime.device)
    if hasattr(model, "start"):
        # Its decoding step keeps everything in one type.
        return model.to(runtime.device, runtime.dtype)
    return narrow_stacks(model.to(runtime.device), runtime.dtype)


def describe(family: str) -> dict[str, Any]:
    """What a bundle of a system of this family can do: `searches` and `defaults`."""
    searches = list(FAMILIES[family].searches)
    if FAMILIES[family].built_on:
        searches = list(dict.fromkeys([*FAMILIES[FAMILIES[family].built_on].searches, *searches]))
    search = {"transformer": "beam", "lvm": "delta"}.get(family, family)
    refinement = FAMILIES[family].refinement
    defaults = {"search": search, "steps": 4, "beam": 4} | ({"refinement": refinement} if refinement else {})
    return {"searches": searches, "defaults": defaults}


if __name__ == "__main__":
    from workflow_src.translate_command import main

    main()
