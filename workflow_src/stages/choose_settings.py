"""Choose a decode's settings on dev: try every combination that the experiment lists, keep the best and the curve."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from workflow_src.data.bleu import corpus_bleu
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.evaluation.quality.choosing import at_edge, choose
from workflow_src.jobs import add_runtime, log, parser, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import settings_of
from workflow_src.serving.folders import add_systems, load_systems, systems_given
from workflow_src.serving.translator import Translator


def run(given) -> str:
    settings: dict[str, Any] = given.settings
    check_parallel(given.source, given.reference)
    sources, references = list(read_lines(given.source)), list(read_lines(given.reference))
    translator = Translator.load(given.bundle, given.device, given.precision, given.threads, engine="eager")
    systems = load_systems(given, {})
    kind = type(settings_of(settings["settings"]))
    # Numbers are handed over as they stand in a configuration; the settings know which are whole.
    tune = {n: [kind.checked_value(n, value) for value in values] for n, values in settings["tune"].items()}

    def measure(values: dict[str, Any]) -> dict[str, float]:
        search = settings_of(settings["settings"] | values)
        found = translator.search(sources, search, systems, batch=given.batch, normalised=True, scored=False)
        texts = translator.text(found.tokens, settings["remove_repetitions"])
        bleu = corpus_bleu(texts, references, settings["bleu_tokeniser"])
        log.info("%s: BLEU %.2f", _told(values), bleu)
        return {"bleu": bleu, "mean_steps": statistics.fmean(found.steps or [0])}

    chosen, curve = choose(tune, measure)
    inputs = {"source": given.source, "reference": given.reference, "bundle": given.bundle / "bundle.json"}
    inputs |= {role: folder / "bundle.json" for role, folder in systems_given(given).items()}
    edges = at_edge(kind, tune, chosen)
    content = {"chosen": chosen, "curve": curve, "at_edge": edges, "remove_repetitions": settings["remove_repetitions"]}
    write_json(given.output, content | {"provenance": provenance(settings, inputs)})
    bleu = max(point["bleu"] for point in curve)
    summary = f"{given.output}: {_told(chosen)} of {len(curve)} combinations, dev BLEU {bleu:.2f}"
    return "; ".join([summary, *edges])


def _told(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def arguments():
    made = parser(__doc__)
    made.add_argument("--bundle", type=Path, required=True)
    add_systems(made)
    made.add_argument("--source", type=Path, required=True, help="normalised text, one sentence a line")
    made.add_argument("--reference", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True)
    made.add_argument("--batch", type=int, default=64, help="sentences decoded together")
    add_runtime(made)
    return made


if __name__ == "__main__":
    start(run, arguments())
