"""Choose a decode's settings on dev: try every combination that the experiment lists, keep the best and the curve."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from workflow_src.config.metrics import measured, measured_corpus
from workflow_src.data.lines import check_parallel, read_lines
from workflow_src.evaluation.quality import metrics
from workflow_src.evaluation.quality.choosing import at_edge, choose, chosen_point
from workflow_src.jobs import add_runtime, log, parser, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import main_metric, settings_of
from workflow_src.serving.folders import add_systems, load_systems, systems_given
from workflow_src.serving.translator import Translator
from workflow_src.spec import Corpus, Texts


def run(given) -> str:
    settings: dict[str, Any] = given.settings
    check_parallel(given.source, given.reference)
    sources, references = list(read_lines(given.source)), list(read_lines(given.reference))
    translator = Translator.load(given.bundle, given.device, given.precision, given.threads, engine="eager")
    systems = load_systems(given, {})
    kind = type(settings_of(settings["settings"]))
    # Numbers are handed over as they stand in a configuration; the settings know which are whole.
    tune = {n: [kind.checked_value(n, value) for value in values] for n, values in settings["tune"].items()}

    main, by_name = main_metric(), {one.metric.name: one for one in measured(settings)}
    by = by_name[settings.get("tune_by", main.name)]
    corpus = measured_corpus(settings) if "tune_by" in settings else Corpus("", "", settings["bleu_tokeniser"])

    def measure(values: dict[str, Any]) -> dict[str, float]:
        search = settings_of(settings["settings"] | values)
        found = translator.search(sources, search, systems, batch=given.batch, normalised=True, scored=False)
        texts = translator.text(found.tokens, settings["remove_repetitions"])
        figures = {}
        for one in dict.fromkeys((by_name[main.name], by)):
            scored = metrics.score(one, Texts(texts, references, sources, corpus))
            assert scored is not None, "the configuration was checked"
            figures[one.metric.name] = scored.figure
        log.info("%s: %s %.2f", _words(values), by.metric.title, figures[by.metric.name])
        return figures | {"mean_steps": statistics.fmean(found.steps or [0])}

    chosen, curve = choose(tune, measure, by.metric)
    inputs = {"source": given.source, "reference": given.reference, "bundle": given.bundle / "bundle.json"}
    inputs |= {role: folder / "bundle.json" for role, folder in systems_given(given).items()}
    edges = at_edge(kind, tune, chosen)
    content = {"chosen": chosen, "curve": curve, "at_edge": edges, "remove_repetitions": settings["remove_repetitions"]}
    content |= {"tune_by": by.metric.name} if by.metric is not main else {}
    write_json(given.output, content | {"provenance": provenance(settings, inputs)})
    figure = chosen_point(curve, chosen)[by.metric.name]
    summary = f"{given.output}: {_words(chosen)} of {len(curve)} combinations, dev {by.metric.title} {figure:.2f}"
    return "; ".join([summary, *edges])


def _words(values: dict[str, Any]) -> str:
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
