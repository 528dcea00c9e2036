"""Choose a decode's settings on dev: try every combination that can differ, keep the best and the curve."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from pydantic import Field

from workflow_src.config.experiment import Removal
from workflow_src.config.metrics import ScoringSettings, able_to_choose
from workflow_src.config.resolved import Decode
from workflow_src.data.lines import read_aligned
from workflow_src.evaluation.quality import metrics
from workflow_src.evaluation.quality.choosing import at_edge, choose, chosen_point
from workflow_src.jobs import DeviceJobInputs, log, recorded, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import numbered, provenance
from workflow_src.registry import main_metric
from workflow_src.serving.folders import open_role_translators
from workflow_src.spec import Texts


class ChoiceSettings(ScoringSettings):
    decode: Decode = Field(description="the search, the values to try, and the metric that decides (`tune_by`)")
    remove_repetitions: Removal


class Inputs(DeviceJobInputs):
    settings: ChoiceSettings = Field(description="the search, and the values to try")
    bundle: Path = Field(description="folder of the system")
    systems: dict[str, Path] = Field({}, description="bundles of the systems that the search works with, by role")
    source: Path = Field(description="normalised text, one sentence a line")
    reference: tuple[Path, ...] = Field(min_length=1, description="one file for each reference of a source")
    output: Path
    batch: int = Field(64, gt=0, description="sentences decoded together")

    @property
    def files(self) -> dict[str, Path]:
        """Files that the choice is made from, by the names that records give them."""
        files = {"source": self.source, **numbered("reference", self.reference), "bundle": self.bundle / "bundle.json"}
        return files | {role: folder / "bundle.json" for role, folder in self.systems.items()}


def run(inputs: Inputs) -> str:
    from workflow_src.serving.translator import Translator

    settings, machine = inputs.settings, inputs.machine
    by_name = able_to_choose(settings.measured, settings.corpus)
    main = by_name[main_metric().name]
    deciding = by_name[settings.decode.tune_by] if settings.decode.tune_by else main
    sources, references, *further = read_aligned(inputs.source, *inputs.reference)
    translator = Translator.load(inputs.bundle, machine.device, machine.precision, machine.threads, engine="eager")
    systems = open_role_translators(inputs.systems, machine)
    decode = settings.decode

    def measure(values: dict[str, Any]) -> dict[str, float]:
        search = decode.with_values(values).values
        hypotheses = translator.search(
            sources, translator.request(search, systems, batch=inputs.batch, normalised=True)
        )
        texts = translator.text(hypotheses.tokens, settings.remove_repetitions, sources)
        figures = {}
        for measured in dict.fromkeys((main, deciding)):
            scored = metrics.score(measured, Texts(texts, references, sources, settings.corpus, tuple(further)))
            assert scored is not None, "it scores the corpus"
            figures[measured.metric.name] = scored.figure
        log.info("%s: %s %.2f", listed(values), deciding.metric.title, figures[deciding.metric.name])
        return figures | {"mean_steps": statistics.fmean(hypotheses.steps or [0])}

    chosen, curve = choose(decode.tried, measure, deciding.metric)
    edges = at_edge(type(decode.values), decode.tune, chosen)
    content = {"chosen": chosen, "curve": curve, "at_edge": edges, "remove_repetitions": settings.remove_repetitions}
    content |= {"tune_by": deciding.metric.name} if deciding is not main else {}
    record = provenance(recorded(settings), inputs.files)
    write_json(inputs.output, content | {"provenance": record})
    figure = chosen_point(curve, chosen)[deciding.metric.name]
    summary = (
        f"{inputs.output}: {listed(chosen)} of {len(curve)} combinations, dev {deciding.metric.title} {figure:.2f}"
    )
    return "; ".join([summary, *edges])


def listed(values: dict[str, Any]) -> str:
    """Settings in words: `steps 4, step_size 0.5`."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


if __name__ == "__main__":
    start(run, Inputs, __doc__)
