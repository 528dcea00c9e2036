"""A Transformer that was converted to CTranslate2 elsewhere, such as OPUS-MT or NLLB: it teaches and ranks."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from workflow_src.config.parts import FilePath
from workflow_src.families.ctranslate2.sizes import weights_of
from workflow_src.spec import AUTOREGRESSIVE, SCORER, Family, Frozen, Look

MODEL_FILES = ("model.bin", "config.json")
# Names of the file of both vocabularies, and of one for each side, without their endings.
SHARED, SEPARATE = "shared_vocabulary", ("source_vocabulary", "target_vocabulary")
ENDINGS = (".json", ".txt")
SOURCE_SUBWORDS, TARGET_SUBWORDS = "source.spm", "target.spm"


class CTranslate2Config(Frozen):
    folder: FilePath = Field(description="of the converted model: model.bin, config.json, vocabularies")
    source_subwords: FilePath = Field(
        SOURCE_SUBWORDS, description="SentencePiece model of the source language, relative to the folder"
    )
    target_subwords: FilePath = Field(TARGET_SUBWORDS, description="that of the target language")
    source_prefix: tuple[str, ...] = Field((), description="tokens before each source sentence, such as a language")
    source_suffix: tuple[str, ...] = Field((), description="tokens after it, where config.json adds no end symbol")
    target_prefix: tuple[str, ...] = Field((), description="tokens that each translation begins with")
    max_positions: int = Field(512, gt=1, description="longest sequence in the model's subwords, end symbol counted")


class CTranslate2ObjectiveConfig(Frozen):
    """Nothing is trained."""


def files(model: CTranslate2Config) -> Mapping[str, Path]:
    """The model's files by their names in a bundle; those of a shared vocabulary where the folder has none."""
    folder = Path(model.folder)
    names = [f"{name}{ending}" for name in (SHARED, *SEPARATE) for ending in ENDINGS]
    vocabularies = [name for name in names if (folder / name).is_file()] or [f"{SHARED}{ENDINGS[0]}"]
    return {
        **{name: folder / name for name in (*MODEL_FILES, *vocabularies)},
        SOURCE_SUBWORDS: folder / model.source_subwords,
        TARGET_SUBWORDS: folder / model.target_subwords,
    }


FAMILY = Family(
    name="ctranslate2",
    title="CTranslate2 model",
    model=CTranslate2Config,
    objective=CTranslate2ObjectiveConfig,
    files=files,
    engine="ctranslate2",
    searches=("beam", "greedy"),
    weights=lambda model: weights_of(Path(model.folder) / MODEL_FILES[0]),
    traits=frozenset({AUTOREGRESSIVE, SCORER}),
    look=Look("#8a6d3b", dark="#c9a86a"),
    order=1,
)
