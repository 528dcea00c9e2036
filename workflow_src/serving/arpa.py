"""`continuum export-arpa`: the n-gram language model of a bundle as ARPA text, which KenLM and others read."""

from __future__ import annotations

from pathlib import Path

from workflow_src import registry
from workflow_src.decoding.arpa import arpa_lines, arpa_rows, write_arpa
from workflow_src.decoding.ngram import NgramModel
from workflow_src.errors import ArtifactError
from workflow_src.runtime import console
from workflow_src.runtime.device import choose
from workflow_src.serving.bundle import read_bundle, read_subwords
from workflow_src.serving.opened import load_models
from workflow_src.spec import LANGUAGE_MODEL


def export_arpa(folder: Path, output: Path | None) -> str:
    """Write the language model of a bundle, its own or a carried one; returns a sentence about the file.

    Without `output` it goes to standard output.

    Raises ArtifactError where the folder is no bundle, or has no n-gram language model.
    """
    description = read_bundle(folder)
    families = registry.families()
    language_models = {
        name: network
        for name, network in description.models.items()
        if LANGUAGE_MODEL in families[network.family].traits
    }
    if not language_models:
        raise ArtifactError(
            folder, f"is the bundle of {description.system} and has no language model", "give the bundle of one"
        )
    runtime = choose("cpu", "float32", training=False)
    description = description.model_copy(update={"models": language_models})
    (name, network), *_ = load_models(folder, description, runtime).items()
    model = network.scorer
    if not isinstance(model, NgramModel):
        raise ArtifactError(name, f"in {folder} has no table of n-grams, and ARPA files have nothing else")
    subwords = read_subwords(folder, description)
    pieces = subwords.names()["target"]
    if output is None:
        console.write(
            console.standard_output(", or use --output"),
            (text.removesuffix("\n") for text in arpa_lines(model, pieces)),
        )
    else:
        write_arpa(model, output, pieces)
    counts = ", ".join(f"{len(rows):,} {n}-grams" for n, rows in enumerate(arpa_rows(model), 1))
    return f"{output or 'standard output'}: a model of target subwords with {counts}"
