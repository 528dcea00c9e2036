"""The table that opens a report: for each need the row that serves it, and its command. Dev decides where it can."""

from __future__ import annotations

from collections.abc import Callable

from workflow_src.evaluation.document import Block, Caption, Cell, Table
from workflow_src.evaluation.manifest import Key, ShownDecode
from workflow_src.evaluation.report.captions import margin_words
from workflow_src.evaluation.report.inputs import Inputs
from workflow_src.evaluation.report.usage import Recommended, candidates_of, command_of, deciding_metrics, recommend
from workflow_src.registry import named_systems, refinement, searches

# The fastest row may lose so many points to the best one.
FASTEST = 2.0


def carried_roles() -> set[str | None]:
    """Roles of systems that a bundle may carry, such as language models and drafters."""
    kinds = [search.settings for search in searches().values()]
    return {kind.option(name).role for kind in kinds for name in kind.named("carried")}


def in_one_pass(decode: ShownDecode) -> bool:
    """Whether a search neither writes word by word nor computes its output again from an earlier one."""
    search = decode.search
    repeats = search.traceable and decode.value != search.first_value
    return not (decode.system.family.autoregressive or repeats or refinement(decode.settings))


def _alone(decode: ShownDecode) -> bool:
    return not named_systems(decode.settings)


def _with_carried(decode: ShownDecode) -> bool:
    helpers = set(named_systems(decode.settings))
    return bool(helpers) and helpers <= carried_roles()


def by_need(inputs: Inputs) -> dict[str, Recommended]:
    """Rows of the first seed by the needs that they serve; needs without a row are left out.

    A row serves one that is the fastest within the margin of the best one (`usage.recommend`).
    """
    manifest, candidates = inputs.manifest, candidates_of(inputs)
    if any(candidate.on_dev for candidate in candidates):
        candidates = [candidate for candidate in candidates if candidate.on_dev]

    def best_of(fits: Callable[[ShownDecode], bool], margin: float | None = None) -> Recommended | None:
        fitting = [candidate for candidate in candidates if fits(manifest.decode(*candidate.row.key))]
        return recommend(inputs, fitting, margin) if fitting else None

    limit = margin_words(FASTEST, deciding_metrics(inputs))
    fastest = best_of(lambda _: True, FASTEST)
    served = {
        f"fastest within {limit} of the best": fastest if fastest and fastest.latency_ms is not None else None,
        "one pass by itself": best_of(lambda decode: in_one_pass(decode) and _alone(decode)),
        "one pass with a language model": best_of(lambda decode: in_one_pass(decode) and _with_carried(decode)),
        "best of all": best_of(lambda _: True),
        "autoregressive search": best_of(
            lambda decode: decode.system.family.autoregressive and (_alone(decode) or not decode.search.blocks)
        ),
    }
    return {need: row for need, row in served.items() if row is not None}


def blocks(inputs: Inputs, device: str = "auto", precision: str = "auto") -> list[Block]:
    """The table of needs, which rows share. `device` and `precision` are those of the workflow.

    Raises ArtifactError for a bundle that cannot be read.
    """
    manifest = inputs.manifest
    served, split, main = by_need(inputs), manifest.plan.shown_split, manifest.main
    on_dev = any(chosen.on_dev for chosen in served.values())
    timed = any(chosen.latency_ms is not None for chosen in served.values())
    needs: dict[Key, list[str]] = {}
    for need, chosen in served.items():
        needs.setdefault(chosen.row.key, []).append(need)
    rows: list[list[str | Cell]] = []
    for key, names in needs.items():
        decode, chosen = manifest.decode(*key), served[names[0]]
        figures = [f"{main.factor * chosen.on_dev[main]:.1f}"] if on_dev and split != "dev" else []
        figures.append(f"{main.factor * chosen.figure:.1f}")
        if timed:
            figures.append("–" if chosen.latency_ms is None else f"{chosen.latency_ms:.3g}")
        command = Cell(command_of(chosen, inputs, device, precision), code=True)
        rows.append(["; ".join(names), f"{chosen.row.system}, {decode.label()}", command, *figures])
    heads = ["need", "row", "command", *([f"{main.title} on dev"] if on_dev and split != "dev" else [])]
    heads += [f"{main.title} on {split}", *(["ms a sentence"] if timed else [])]
    undecided = [candidate.row for candidate in candidates_of(inputs) if not candidate.on_dev]
    line = f"Dev decides; rows that were not decoded there are left out: {len(undecided)}."
    if not on_dev:
        line = f"No row was decoded on dev, so {split} decides, which flatters these rows: decode rows on dev."
    several = len({row.seed for row in manifest.rows}) > 1
    limit = margin_words(manifest.report.margin, deciding_metrics(inputs))
    return [
        Table(
            heads,
            rows,
            Caption(
                line,
                {
                    "Figures": f"Those of seed {manifest.rows[0].seed}." if several else "",
                    "Rows": f"The fastest within {limit} of the best one of their kind, where a need says no limit."
                    if timed
                    else "",
                },
            ),
            left=3,
            wide=True,
        )
    ]
