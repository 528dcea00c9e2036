"""Pick the sentences that refinement changes most, or else those that systems translate most differently; write their
translations after every step, and by other searches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from workflow_src.config.resolved import Decode
from workflow_src.data.lines import read_aligned
from workflow_src.evaluation.analyses.inputs import pick
from workflow_src.evaluation.labels import differing, words
from workflow_src.jobs import DeviceJobInputs, missing_folder, recorded, start
from workflow_src.records.atomic import write_json
from workflow_src.records.provenance import provenance
from workflow_src.registry import searches
from workflow_src.serving.folders import bundle_files, open_eager_translators
from workflow_src.spec import Frozen

# The sentences that examples are picked from: enough to find telling ones, few enough to trace in seconds.
POOL = 200


class TraceSettings(Frozen):
    examples: int = Field(ge=0, description="sentences to show")
    searches: tuple[Decode, ...] = Field(description="searches whose steps are followed")
    teacher: Decode | None = Field(description="translates the sentences too")
    beside: tuple[Decode, ...] = Field((), description="further searches that translate the sentences")


class Inputs(DeviceJobInputs):
    settings: TraceSettings = Field(description="number of examples, and the searches")
    bundles: dict[str, Path] = Field(description="exported folders by system")
    source: Path = Field(description="normalised text, one sentence a line")
    reference: Path
    output: Path


def label(entry: Decode, entries: Sequence[Decode]) -> str:
    """Name of a traced search: its title; where entries share the search, also system and differing settings."""
    search = searches()[entry.search]
    twins = [other for other in entries if other.search == search.name]
    name = search.title if len(twins) == 1 else f"{entry.system} {search.title}"
    differences = differing(entry.settings, [other.settings for other in twins], search.settings.named("follow"))
    return f"{name}, {words(differences)}" if differences else name


def run(inputs: Inputs) -> str:
    settings = inputs.settings
    followed, teacher = settings.searches, settings.teacher
    sources, references = (lines[:POOL] for lines in read_aligned(inputs.source, inputs.reference))
    entries = [*followed, *settings.beside, *([teacher] if teacher else [])]
    systems = {entry.system for entry in entries}
    for system in sorted(systems - set(inputs.bundles)):
        raise missing_folder(system)
    translators = open_eager_translators(inputs.bundles, systems, inputs.machine)
    # The corpus is normalised already; normalising twice is not always the same as once.
    traces = []
    for entry in followed:
        translator = translators[entry.system]
        traces.append(translator.trace(sources, translator.request(entry.values, normalised=True)))

    def translated(entry: Decode, places: Sequence[int]) -> dict[int, str]:
        """Translations of the sentences of some places by place."""
        if not places:
            return {}
        lines = [sources[place] for place in places]
        outputs = translators[entry.system].translate(lines, entry.values, normalised=True)
        return dict(zip(places, outputs, strict=True))

    # Without refinement, what the others change of the first one's translation.
    unfollowed = [*([teacher] if teacher else []), *settings.beside]
    if followed:
        chosen = pick(traces, settings.examples)
    else:
        outputs = [translated(entry, range(len(sources))) for entry in unfollowed]
        pairs = [[[outputs[0][place], other[place]] for place in range(len(sources))] for other in outputs[1:]]
        chosen = pick(pairs, settings.examples)
    by_teacher = translated(teacher, chosen) if teacher else {}
    beside = {
        f"{entry.system} {searches()[entry.search].title}": translated(entry, chosen) for entry in settings.beside
    }
    examples = [
        {
            "index": index,
            "source": translators[entries[0].system].source_text(sources[index]),
            "reference": references[index],
            "teacher": by_teacher.get(index),
            "searches": {label(e, followed): trace[index] for e, trace in zip(followed, traces, strict=True)},
            **({"beside": {name: texts[index] for name, texts in beside.items()}} if beside else {}),
        }
        for index in chosen
    ]
    files = {"source": inputs.source, "reference": inputs.reference} | bundle_files(inputs.bundles, systems)
    traced = {label(entry, followed): {"system": entry.system, "search": entry.search} for entry in followed}
    content = {"examples": examples, "searches": traced, "pool": len(sources)}
    write_json(inputs.output, content | {"provenance": provenance(recorded(settings), files)})
    return f"{inputs.output}: {len(examples)} of {len(sources)} sentences, {len(followed)} searches"


if __name__ == "__main__":
    start(run, Inputs, __doc__)
