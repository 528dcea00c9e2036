"""Contents of files of analyses, for tests of these and of reports."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import reports

from workflow_src import registry
from workflow_src.evaluation import content as contents
from workflow_src.evaluation.document import Document, Section
from workflow_src.evaluation.report import analyses

ENTRIES = [
    {"system": "lvm", "search": "delta", "model": "lvm"},
    {"system": "score", "search": "score", "step_size": 1.0, "model": "lvm"},
]


def followed(points, entries=ENTRIES):
    """Rows of searches after so many steps."""
    return [entry | point for entry in entries for point in points]


def marginal():
    keys = ("error", "gain", "gain_error", "risen", "fallen")
    points = [
        dict.fromkeys(keys, 0.1 * steps) | {"steps": steps, "log_probability": -7 + steps, "effective_samples": 80.4}
        for steps in (0, 1, 4)
    ]
    return {"sentences": 1200, "samples": 500, "rows": followed(points)}


def tokens(relative=0.75):
    points = [
        {"steps": steps, "edit_distance": 1.25 * steps, "edit_distance_error": 0.2, "changed": 0.5}
        | {"repetitions": 1.5, "relative_repetitions": relative, "relative_repetitions_error": relative and 0.05}
        for steps in (0, 2)
    ]
    return {"sentences": 100, "rows": followed(points)}


def lengths():
    models = [{"system": "lvm", "exact": 0.32, "within_1": 0.74, "within_2": 0.85, "bias": -0.71, "within_top": 0.852}]
    bleu = {"predicted": 36.55, "reference": 38.83, "oracle": 43.81}
    rows = [
        ENTRIES[0] | {"search": "prior-mean", "label": "prior mean"} | bleu,
        ENTRIES[1] | {"label": "score, L = 1"} | bleu,
    ]
    return {"sentences": 100, "candidates": 3, "remove_repetitions": "words", "models": models, "rows": rows}


def latent_space():
    cells = np.full((9, 9), 7)
    cells[:, 4:] = 8
    cells[6:, :2] = 9
    panel = {
        "centre": [1.0, -2.0],
        "half": 0.9,
        "regions": cells.tolist(),
        "prior": [0.9, -2.0],
        "posterior": [1.5, -2.4],
        "arrows": [[0.5, -2.5, 0.1, 0.2], [1.5, -2.5, 0.0, 0.0], [0.5, -1.5, -0.1, 0], [1.5, -1.5, 0, -0.3]],
        "paths": {
            "delta": [[0.9, -2.0], [1.5, -2.4], [1.5, -2.4]],
            "score": [[0.9, -2.0], [1.2, -2.1], [1.3, -2.3]],
        },
    }
    outputs = {"posterior": [8, 7], "prior": [7, 7], "delta": [8, 7], "score": [8, 7]}
    content = {"sentence": 6, "system": "score-2d", "source": "Hund & <i>Katze</i>", "reference": "dogs", "steps": 2}
    content |= {"pieces": {"7": "▁dog", "8": "s", "9": "▁"}, "texts": dict.fromkeys(outputs, "dog <b>s")}
    content |= {"outputs": outputs, "panels": [panel, panel], "searches": ["delta", "score"], "end_symbol": None}
    return content


def convergence():
    points = [
        {"steps": steps, "bound": -20.0 + steps, "bound_error": 1.5, "gain": 1.0 * steps, "gain_error": 0.25}
        | {"risen": 0.5, "fallen": 0.25, "bleu": 20.0 + steps, "stopped": 0.6 if steps else None}
        for steps in (0, 1, 2)
    ]
    return {"sentences": 100, "samples": 20, "remove_repetitions": "words", "rows": followed(points)}


def latent_paths():
    keys = ("from_start", "step", "from_reference", "log_prior", "log_posterior", "cosine", "changed")
    points = [
        {"steps": steps, "moving": 90 if steps else 0}
        | {key: -1 - 0.5 * steps if key.startswith("log") else 0.25 * steps for key in keys}
        | {f"{key}_error": 0.0625 for key in keys}
        for steps in (0, 1, 2)
    ]
    points[0] |= dict.fromkeys([*("step", "cosine", "changed"), *("step_error", "cosine_error", "changed_error")])
    still = points[2] | {"moving": 0, "cosine": None, "cosine_error": None}
    rows = followed(points, ENTRIES[:1]) + followed([*points[:2], still], ENTRIES[1:])
    return {"sentences": 100, "rows": rows}


def samples():
    example = {"index": 3, "source": "Hund <x>", "reference": "the dog", "sampled": "a dog dog", "refined": "a big dog"}
    search = {"system": "score", "search": "score", "steps": 1}
    return {"sentences": 100, "search": search, "examples": [example]}


UNDER_TEACHER = {"scorer": "teacher", "energy_per_sentence": 20.0, "energy_per_token": 1.5, "error": 1.0}
UNDER_TEACHER |= {"sentences": 100, "unscored": 0}


def energies():
    common = {"scorer": "teacher", "seed": 1, "repetitions_removed": "none", "error": 0.52, "sentences": 98}
    common |= {"unscored": 2}
    rows = [
        UNDER_TEACHER | {"label": "references"},
        common | {"system": "teacher", "name": "beam-4", "energy_per_sentence": 9.04, "energy_per_token": 0.81},
        common | {"system": "lvm", "name": "delta-2", "energy_per_sentence": None, "energy_per_token": None},
    ]
    return {"remove_repetitions": "none", "rows": rows, "at_reference_lengths": []}


def components():
    rows = [
        {"system": name, "latents": 1234, "width": 3, "shares": shares, "components": 2}
        | {"together": np.cumsum(shares).tolist(), "participation": 1.875, "variance": 0.1234, "noise": 2.5}
        for name, shares in (("lvm", [0.7, 0.29, 0.01]), ("lvm-raw", [1.0, 0.0, 0.0]))
    ]
    return {"sentences": 100, "share": 0.95, "rows": rows}


def reordering():
    group = {"system": "one-pass", "sentences": 60, "moved": 0.125, "displacement": 0.5, "relative_change": 0.25}
    rows = [
        group | {"order": "the same", "correlation": 0.256},
        group | {"order": "another", "moved": 0.25, "displacement": 1.5, "correlation": 0.256},
        group | {"system": "lanmt", "order": "another", "relative_change": None, "correlation": None},
    ]
    distances = [[0.1, 1.0, 1.0], [1.0, 0.9, 0.2], [1.0, 0.1, 0.8]]
    panels = [{"system": name, "distances": distances, "assigned": [0, 2, 1]} for name in ("one-pass", "lanmt")]
    panels[0]["alignments"] = [{"slots": 6, "places": [[0], [3, 4]]}, {"slots": 6, "places": None}]
    example = {
        "target_pieces": [["▁x", "y$"], ["▁z"]],
        "sentence": 6,
        "order": 0.5,
        "pieces": ["▁a", "$b", "</s>"],
        "texts": ["a <b> c", "c a"],
        "panels": panels,
    }
    translations = {"system": "teacher", "name": "beam-4"}
    return {"sentences": 200, "compared": 120, "translations": translations, "rows": rows, "example": example}


EVERY = {
    "energies": energies(),
    "marginal": marginal(),
    "tokens": tokens(),
    "lengths": lengths(),
    "latent_space": latent_space(),
    "convergence": convergence(),
    "latent_paths": latent_paths(),
    "components": components(),
    "reordering": reordering(),
    "samples": samples(),
}


def raw(name: str, **changed: Any) -> dict[str, Any]:
    """The content of an analysis's file, with the `changed` keys."""
    return {"format": contents.FORMAT, "analysis": name, "split": "dev"} | json.loads(json.dumps(EVERY[name])) | changed


def read(*files: dict[str, Any]) -> dict[str, contents.Content]:
    """Contents of files by analysis, in the order of the report."""
    checked = {file["analysis"]: contents.check(file, "file", "") for file in files}
    return {name: checked[name] for name in registry.analyses() if name in checked}


def contents_of(*names: str) -> dict[str, contents.Content]:
    """Contents of these analyses."""
    return read(*map(raw, names))


def pictures_of(file: dict[str, Any]) -> list[str]:
    """Names of the pictures that a report shows of a file."""
    section = Section("Analyses", analyses.blocks(read(file), reports.manifest()))
    return [picture.name for picture in Document("report", [section]).pictures()]
