"""Translating with a CTranslate2 folder as with any bundle: `Translator.load` opens both.

The folder has an export of a system, or a model that was made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from workflow_src.decoding.batches import Watch
from workflow_src.engines.ctranslate2 import COMPUTE_TYPES, Engine, device_and_index
from workflow_src.engines.ctranslate2_imported import ImportedModel, Pieces
from workflow_src.errors import ArtifactError, ConfigError
from workflow_src.records.checked import checked
from workflow_src.registry import engines, families, search_of
from workflow_src.runtime.device import Runtime, cores, set_threads
from workflow_src.serving.arguments import check_batch
from workflow_src.serving.base import BaseTranslator, check_roles
from workflow_src.serving.bundle import AGAIN, DESCRIPTION, Description, check_weights, read_subwords
from workflow_src.spec import SearchSettings, check_beams
from workflow_src.types import Hypotheses


class CTranslate2Translator(BaseTranslator):
    """An autoregressive system in CTranslate2, with the subwords and the text handling of its bundle.

    `single` decodes one batch with all threads; `parallel` several batches at once with one thread each, which is
    faster for many sentences.
    """

    single: Engine
    parallel: Engine
    _precision: str

    @classmethod
    def open(
        cls, folder: Path, description: Description, device: str, precision: str, threads: int | None
    ) -> CTranslate2Translator:
        """Read a folder of the rule export_ctranslate2 or import_model.

        `precision`: float32, int8, float16, or auto: float32 on CPUs, float16 on GPUs. Raises ArtifactError when the
        model is missing or another one, InputError when the library is not installed or cannot compute in this
        precision here.
        """
        name, *further_networks = description.models
        if further_networks:
            raise ArtifactError(folder / DESCRIPTION, "has more than one network", AGAIN)
        network = description.models[name]
        family = families()[network.family]
        settings: Any = checked(family.model, network.model, f"{folder / DESCRIPTION}: models.{name}.model", AGAIN)
        check_weights(folder, description)
        kind, _ = device_and_index(device)
        if precision == "auto":
            precision = "float16" if kind == "cuda" else "float32"
        threads = threads or cores()
        set_threads(threads)
        subwords = read_subwords(folder, description)
        # The library chooses its device itself; the runtime has the kind of device.
        runtime = Runtime(torch.device(kind), torch.float32)
        if family.imported:
            pieces = Pieces(folder, settings)
            names, affixes = pieces.names, pieces.affixes
            # A model that only ranks outputs is opened as our own networks are, in the precision of the machine.
            precision = precision if precision in COMPUTE_TYPES else "float32"
        else:
            names, affixes = subwords.names(), None
        common = (folder, names, settings.max_positions, device, precision)
        single = Engine(*common, inter_threads=1, intra_threads=threads, affixes=affixes)
        several = threads > 1 and kind == "cpu"
        parallel = Engine(*common, inter_threads=threads, intra_threads=1, affixes=affixes) if several else single
        if family.imported:
            translator: CTranslate2Translator = ImportedTranslator(description, {}, subwords, runtime)
            model = ImportedModel(single, parallel, pieces, subwords, translator._source, translator._target)
            translator.models = {name: model.eval()}
        else:
            translator = cls(description, {}, subwords, runtime)
        translator.single, translator.parallel, translator._precision = single, parallel, precision
        return translator

    @property
    def precision(self) -> str:
        return self._precision

    def search_ids(
        self,
        sources: Sequence[Sequence[int]],
        settings: SearchSettings,
        systems: Mapping[str, BaseTranslator] | None = None,
        batch: int = 64,
        trace: bool = False,
        scored: bool = True,
        ranked: bool = False,
        watch: Watch | None = None,
    ) -> Hypotheses:
        """As for bundles. Raises ConfigError for a search that the library cannot compute."""
        check_batch(batch)
        check_roles(systems or {}, settings)
        search = self._search(search_of(settings).name)
        assert self.description.engine is not None, "`open` reads folders that name their engine"
        declared = engines()[self.description.engine]
        reason = declared.serves(self._families[0][1], search, settings)
        if reason:
            raise ConfigError("engine", declared.name, problem=f"it {reason}")
        if trace:
            raise ConfigError("engine", declared.name, problem="it keeps no traces", hint="use the bundle")
        self._check_room(settings, sources, batch)
        decode = self._decoder(len(sources) > batch)
        return decode(sources, settings, batch, scored, ranked, watch)

    def _decoder(self, several: bool) -> Callable[..., Hypotheses]:
        """The function that decodes one batch, or several at once."""
        return (self.parallel if several else self.single).decode

    def _positions(self) -> int:
        return self.single.max_positions


class ImportedTranslator(CTranslate2Translator):
    """A model that was made elsewhere, over the subwords of a recipe: it also scores outputs of other systems.

    Ids of sources are those of the model's own subwords, ids of outputs those of the recipe.
    """

    @property
    def network(self) -> ImportedModel:
        network = super().network
        assert isinstance(network, ImportedModel)
        return network

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        return [*self.network.encode(texts)]

    def _unknown(self, _text: str) -> list[str]:
        """None: the model has a vocabulary of its own, of which no alphabet is known."""
        return []

    def _source_pieces(self, source: Sequence[int]) -> list[str]:
        return self.network.single.source_words(source)

    def _decoder(self, _several: bool) -> Callable[..., Hypotheses]:
        return self.network.search

    def _check_room(self, settings: SearchSettings, _sources: Sequence[Sequence[int]], _batch: int) -> None:
        check_beams(settings, len(self.network.pieces.names["target"]))

    def _positions(self) -> int:
        return self.network.longest_source + 1
