"""Tables of the analyses: heads and rows of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.analyses import contents
from workflow_src.evaluation.analyses.curves import (
    ConvergencePoint,
    Curves,
    Figures,
    GainPoint,
    LatentPathsPoint,
    MarginalPoint,
    TokensPoint,
)
from workflow_src.evaluation.quality.metrics import CONVENTIONS
from workflow_src.evaluation.report.analysis_figures import curve_label, start_title
from workflow_src.evaluation.report.markdown import signed
from workflow_src.evaluation.report.tables import CONVENTION_LABELS


def _table(heads: list[str], rows: list[list[str]]) -> dict[str, Any]:
    return {"heads": heads, "rows": rows}


def _curve_table(
    heads: list[str], found: Curves[Figures], manifest: Manifest, cells: Callable[[Figures], list[str]]
) -> dict[str, Any]:
    """A row for each procedure and step; what all procedures of a model share, L = 0, stands once."""
    rows, starts = [], set()
    for curve in found.curves:
        for point in curve.points:
            name = curve_label(curve, found.curves, manifest)
            if point.steps == 0:
                if curve.model in starts:
                    continue
                starts.add(curve.model)
                several = len({other.model for other in found.curves}) > 1
                name = start_title(manifest) + (f" · {curve.model}" if several else "")
            rows.append([name, str(point.steps), *cells(point)])
    return _table(["", "L", *heads], rows)


def _change(point: GainPoint) -> list[str]:
    """What refinement gained, and the shares of sentences that rose and fell; nothing at L = 0."""
    if not point.steps:
        return ["", "", ""]
    shares = [f"{100 * share:.0f}" for share in (point.risen, point.fallen)]
    return [f"{signed(point.gain)} ± {point.gain_error:.2f}", *shares]


def marginal_table(found: contents.Marginal, manifest: Manifest) -> dict[str, Any]:
    def cells(point: MarginalPoint) -> list[str]:
        value = f"{signed(point.log_probability)} ± {point.error:.2f}"
        return [value, *_change(point), f"{point.effective_samples:.0f}"]

    heads = ["log p(y|x)", "gain", "risen, %", "fallen, %", "effective samples"]
    return _curve_table(heads, found, manifest, cells)


def tokens_table(found: contents.Tokens, manifest: Manifest) -> dict[str, Any]:
    def relative(point: TokensPoint) -> str:
        ratio = point.relative_repetitions
        return "–" if ratio is None else f"{100 * ratio:.0f} ± {100 * point.relative_repetitions_error:.0f}"

    def cells(point: TokensPoint) -> list[str]:
        repetitions = f"{point.repetitions:.2f}"
        if not point.steps:
            return ["", "", repetitions, ""]
        distance = f"{point.edit_distance:.2f} ± {point.edit_distance_error:.2f}"
        return [distance, f"{100 * point.changed:.0f}", repetitions, relative(point)]

    heads = ["edit distance", "changed, %", "repetitions a sentence", "of those at L = 0, %"]
    return _curve_table(heads, found, manifest, cells)


def accuracy_table(found: contents.Lengths) -> dict[str, Any]:
    count = found.candidates
    heads = ["", "exact, %", "off by ≤ 1, %", "off by ≤ 2, %", f"among the {count} likeliest, %", "bias, subwords"]
    rows = [
        [
            name,
            *(f"{100 * share:.1f}" for share in (model.exact, model.within_1, model.within_2)),
            f"{100 * model.within_top[-1]:.1f}",
            signed(model.bias),
        ]
        for name, model in found.models.items()
    ]
    return _table(heads, rows)


def length_table(found: contents.Lengths, manifest: Manifest) -> dict[str, Any]:
    several = len(found.models) > 1
    heads = ["", "predicted length", "reference's length", f"best of the {found.candidates} likeliest"]
    rows = []
    for row in found.rows:
        name = row.label or manifest.title(row.search) + (f", L = {row.steps}" if row.steps else "")
        name += f" ({row.system})" if several else ""
        rows.append([name, *(f"{bleu:.1f}" for bleu in (row.bleu.predicted, row.bleu.reference, row.bleu.oracle))])
    return _table(heads, rows)


def _energy_heads(scorers: Sequence[str]) -> list[str]:
    """Three columns for each scorer, which they name where there are several."""
    several = len(scorers) > 1
    of = [f"energy under {name}, nats a sentence" if several else "energy, nats a sentence" for name in scorers]
    return [head for first in of for head in (first, "a token", "not scored")]


def _energy_cells(found: contents.Energies, outputs: contents.ScoredOutputs) -> list[str]:
    cells = []
    for one in found.by_scorer(outputs).values():
        value = one.per_sentence
        cells += ["–", "–"] if value is None else [f"{value:.1f} ± {one.error:.1f}", f"{one.per_token:.2f}"]
        cells.append(str(one.unscored))
    return cells


def _row_label(row: contents.EnergiesRow | contents.AtReferenceLengths, manifest: Manifest) -> str:
    decode = manifest.decode(row.system, row.name)
    return f"{row.system}, {decode.label() if decode else row.name}"


def energies_table(found: contents.Energies, manifest: Manifest) -> dict[str, Any]:
    """The references' energy, and each row's, under every scorer; a line for each seed where there are several."""
    several = len({row.seed for row in found.rows}) > 1
    named: list[tuple[str, contents.ScoredOutputs]] = [("references", found.reference)]
    for row in found.rows:
        named.append((_row_label(row, manifest) + (f", seed {row.seed}" if several else ""), row))
    heads = ["", *_energy_heads(list(found.by_scorer(found.reference)))]
    return _table(heads, [[name, *_energy_cells(found, outputs)] for name, outputs in named])


def reference_lengths_table(found: contents.Energies, manifest: Manifest) -> dict[str, Any]:
    """BLEU in every convention, published BLEU and energies of what searches put out at the references' lengths."""
    report, entries = manifest.report, found.at_reference_lengths
    published = [report.expected_reference_lengths.get(f"{row.system}/{row.name}") for row in entries]
    shown = any(value is not None for value in published)
    heads = ["", *(CONVENTION_LABELS[name] for name in CONVENTIONS)]
    heads += [f"published ({CONVENTION_LABELS[report.expected_convention]})"] if shown else []
    heads += _energy_heads(list(found.by_scorer(entries[0])))
    rows = []
    for row, value in zip(entries, published, strict=True):
        cells = [_row_label(row, manifest), *(_bleu(getattr(row.bleu, key)) for key in CONVENTIONS.values())]
        cells += [_bleu(value)] if shown else []
        rows.append(cells + _energy_cells(found, row))
    return _table(heads, rows)


def _bleu(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def unmatched_reference_lengths(found: contents.Energies | None, expected: dict[str, float]) -> dict[str, float]:
    """Published figures at the references' lengths of rows that were not measured there, by what they are."""
    shown = {f"{row.system}/{row.name}" for row in (found.at_reference_lengths if found else ())}
    return {f"{key} (at the references' lengths)": value for key, value in expected.items() if key not in shown}


def convergence_table(found: contents.Convergence, manifest: Manifest) -> dict[str, Any]:
    def cells(point: ConvergencePoint) -> list[str]:
        bound = f"{signed(point.bound)} ± {point.bound_error:.2f}"
        stopped = f"{100 * point.stopped:.0f}" if point.steps else ""
        return [bound, *_change(point), f"{point.bleu:.1f}", stopped]

    heads = ["ELBO", "gain", "risen, %", "fallen, %", "BLEU", "stopped at L, %"]
    return _curve_table(heads, found, manifest, cells)


def latent_paths_table(found: contents.LatentPaths, manifest: Manifest) -> dict[str, Any]:
    def shown(point: LatentPathsPoint, key: str, digits: int, write: Callable[[float, int], str]) -> str:
        value = getattr(point, key)
        return "" if value is None else f"{write(value, digits)} ± {getattr(point, f'{key}_error'):.{digits}f}"

    def plain(value: float, digits: int) -> str:
        return f"{value:.{digits}f}"

    def cells(point: LatentPathsPoint) -> list[str]:
        distances = [shown(point, key, 3, plain) for key in ("from_start", "step", "from_reference")]
        densities = [shown(point, key, 2, signed) for key in ("log_prior", "log_posterior")]
        cosine = shown(point, "cosine", 2, signed)
        changed = "" if point.changed is None else f"{100 * point.changed:.0f}"
        return [*distances, *densities, cosine, str(point.moving) if point.steps else "", changed]

    heads = ["|z − z_0|", "step", "from the reference's", "log p(z|x)", "log q(z|x,y)", "cosine"]
    heads += ["of sentences", "changed, %"]
    return _curve_table(heads, found, manifest, cells)


def components_table(found: contents.Components) -> dict[str, Any]:
    held = f"components that hold {100 * found.share:g} %"
    heads = ["", "latents", "Z", held, "participation ratio", "variance of the means", "mean variance of q"]
    rows = [
        [
            one.system,
            f"{one.latents:,}",
            str(one.width),
            str(one.components),
            f"{one.participation:.2f}",
            *(f"{variance:.3g}" for variance in (one.variance, one.noise)),
        ]
        for one in found.systems
    ]
    return _table(heads, rows)


def reordering_table(found: contents.Reordering) -> dict[str, Any]:
    heads = ["", "word order", "sentences", "latents that move, %", "moved by", "change / spread", "correlation"]
    rows = []
    for one in found.systems:
        correlation = "" if one.correlation is None else signed(one.correlation)
        groups = [(words, group) for words, group in (("the same", one.same), ("another", one.other)) if group]
        for number, (words, group) in enumerate(groups):
            share = group.change / group.spread if group.spread else 0.0
            rows.append(
                [
                    "" if number else one.system,
                    words,
                    f"{group.sentences:,}",
                    f"{100 * group.moved:.1f}",
                    f"{group.displacement:.2f}",
                    f"{share:.2f}",
                    "" if number else correlation,
                ]
            )
    return _table(heads, rows)
