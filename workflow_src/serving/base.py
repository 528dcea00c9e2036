"""What translators of all engines share: text to subwords, searching, and back to text."""

from __future__ import annotations

import time
from typing import Any

from torch import nn

from workflow_src.config.base import nearest
from workflow_src.config.datasets import NormalisationConfig
from workflow_src.config.experiment import REMOVALS, Removal
from workflow_src.config.families import AUTOREGRESSIVE_SEARCHES, LATENT_SEARCH
from workflow_src.data.normalise import Normaliser
from workflow_src.data.repetitions import collapse_repetitions
from workflow_src.data.subwords import Subwords
from workflow_src.runtime.device import Runtime
from workflow_src.types import Hypotheses


class BaseTranslator:
    """A trained system, ready to translate; a subclass searches.

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
        normalisation = NormalisationConfig.model_validate(description["normalisation"])
        self._source = Normaliser(normalisation, description["languages"]["source"])
        self._target = Normaliser(normalisation, description["languages"]["target"])

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

    def search(self, lines: list[str], search: str | None = None, **settings: Any) -> Hypotheses:
        """Subword hypotheses with scores for `lines`."""
        raise NotImplementedError

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

    def _positions(self) -> int:
        """Longest sequence in subwords, end symbol counted."""
        raise NotImplementedError

    def _check_lengths(self, sources: list[list[int]], first_line: int) -> None:
        limit = self._positions() - 1
        for number, source in enumerate(sources, first_line):
            if len(source) > limit:
                raise ValueError(
                    f"line {number} has {len(source)} subwords, the model takes at most {limit}; split it into "
                    "sentences."
                )
