"""Tables of the analyses: heads and rows of words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workflow_src.config.manifest import Manifest
from workflow_src.evaluation.report.analysis_figures import curve_label, start_title


def _signed(value: float, digits: int = 2) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _table(heads: list[str], rows: list[list[str]]) -> dict[str, Any]:
    return {"heads": heads, "rows": rows}


def _curve_table(
    heads: list[str], found: dict[str, Any], manifest: Manifest, cells: Callable[[dict[str, Any]], list[str]]
) -> dict[str, Any]:
    """A row for each procedure and step; what all procedures of a model share, L = 0, stands once."""
    rows, starts = [], set()
    for curve in found["curves"]:
        for point in curve["points"]:
            name = curve_label(curve, found["curves"], manifest)
            if point["steps"] == 0:
                if curve["model"] in starts:
                    continue
                starts.add(curve["model"])
                several = len({other["model"] for other in found["curves"]}) > 1
                name = start_title(manifest) + (f" · {curve['model']}" if several else "")
            rows.append([name, str(point["steps"]), *cells(point)])
    return _table(["", "L", *heads], rows)


def _change(point: dict[str, Any]) -> list[str]:
    """What refinement gained, and the shares of sentences that rose and fell; nothing at L = 0."""
    if not point["steps"]:
        return ["", "", ""]
    shares = [f"{100 * point[key]:.0f}" for key in ("risen", "fallen")]
    return [f"{_signed(point['gain'])} ± {point['gain_error']:.2f}", *shares]


def marginal_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    def cells(point: dict[str, Any]) -> list[str]:
        value = f"{_signed(point['log_probability'])} ± {point['error']:.2f}"
        return [value, *_change(point), f"{point['effective_samples']:.0f}"]

    heads = ["log p(y|x)", "gain", "risen, %", "fallen, %", "effective samples"]
    return _curve_table(heads, found, manifest, cells)


def tokens_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    def relative(point: dict[str, Any]) -> str:
        ratio = point["relative_repetitions"]
        return "–" if ratio is None else f"{100 * ratio:.0f} ± {100 * point['relative_repetitions_error']:.0f}"

    def cells(point: dict[str, Any]) -> list[str]:
        repetitions = f"{point['repetitions']:.2f}"
        if not point["steps"]:
            return ["", "", repetitions, ""]
        distance = f"{point['edit_distance']:.2f} ± {point['edit_distance_error']:.2f}"
        return [distance, f"{100 * point['changed']:.0f}", repetitions, relative(point)]

    heads = ["edit distance", "changed, %", "repetitions a sentence", "of those at L = 0, %"]
    return _curve_table(heads, found, manifest, cells)


def accuracy_table(found: dict[str, Any]) -> dict[str, Any]:
    count = found["candidates"]
    heads = ["", "exact, %", "off by ≤ 1, %", "off by ≤ 2, %", f"among the {count} likeliest, %", "bias, subwords"]
    rows = [
        [
            name,
            *(f"{100 * model[key]:.1f}" for key in ("exact", "within_1", "within_2")),
            f"{100 * model['within_top'][-1]:.1f}",
            _signed(model["bias"]),
        ]
        for name, model in found["models"].items()
    ]
    return _table(heads, rows)


def length_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    several = len(found["models"]) > 1
    heads = ["", "predicted length", "reference's length", f"best of the {found['candidates']} likeliest"]
    rows = []
    for row in found["rows"]:
        name = row.get("label") or manifest.title(row["search"]) + (f", L = {row['steps']}" if row["steps"] else "")
        name += f" ({row['system']})" if several else ""
        rows.append([name, *(f"{row['bleu'][key]:.1f}" for key in ("predicted", "reference", "oracle"))])
    return _table(heads, rows)


def energies_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """The references' energy, and each row's; a line for each seed where there are several."""
    several = len({row["seed"] for row in found["rows"]}) > 1

    def label(row: dict[str, Any]) -> str:
        decode = manifest.decode(row["system"], row["name"])
        return f"{row['system']}, {decode.label()}" + (f", seed {row['seed']}" if several else "")

    def cells(row: dict[str, Any]) -> list[str]:
        if row["per_sentence"] is None:
            return ["–", "–", str(row["unscored"])]
        return [f"{row['per_sentence']:.1f} ± {row['error']:.1f}", f"{row['per_token']:.2f}", str(row["unscored"])]

    named = [("references", found["reference"]), *((label(row), row) for row in found["rows"])]
    heads = ["", "energy, nats a sentence", "a token", "not scored"]
    return _table(heads, [[name, *cells(row)] for name, row in named])


def convergence_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    def cells(point: dict[str, Any]) -> list[str]:
        bound = f"{_signed(point['bound'])} ± {point['bound_error']:.2f}"
        stopped = f"{100 * point['stopped']:.0f}" if point["steps"] else ""
        return [bound, *_change(point), f"{point['bleu']:.1f}", stopped]

    heads = ["ELBO", "gain", "risen, %", "fallen, %", "BLEU", "stopped at L, %"]
    return _curve_table(heads, found, manifest, cells)


def latent_paths_table(found: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    def shown(point: dict[str, Any], key: str, digits: int, write: Callable[[float, int], str]) -> str:
        value = point[key]
        return "" if value is None else f"{write(value, digits)} ± {point[f'{key}_error']:.{digits}f}"

    def plain(value: float, digits: int) -> str:
        return f"{value:.{digits}f}"

    def cells(point: dict[str, Any]) -> list[str]:
        distances = [shown(point, key, 3, plain) for key in ("from_start", "step", "from_reference")]
        densities = [shown(point, key, 2, _signed) for key in ("log_prior", "log_posterior")]
        cosine = shown(point, "cosine", 2, _signed)
        changed = "" if point["changed"] is None else f"{100 * point['changed']:.0f}"
        return [*distances, *densities, cosine, str(point["moving"]) if point["steps"] else "", changed]

    heads = ["|z − z_0|", "step", "from the reference's", "log p(z|x)", "log q(z|x,y)", "cosine", "of sentences",
             "changed, %"]  # fmt: skip
    return _curve_table(heads, found, manifest, cells)


def components_table(found: dict[str, Any]) -> dict[str, Any]:
    held = f"components that hold {100 * found['share']:g} %"
    heads = ["", "latents", "Z", held, "participation ratio", "variance of the means", "mean variance of q"]
    rows = [
        [
            one["system"],
            f"{one['latents']:,}",
            str(one["width"]),
            str(one["components"]),
            f"{one['participation']:.2f}",
            *(f"{one[key]:.3g}" for key in ("variance", "noise")),
        ]
        for one in found["systems"]
    ]
    return _table(heads, rows)


def reordering_table(found: dict[str, Any]) -> dict[str, Any]:
    heads = ["", "word order", "sentences", "latents that move, %", "moved by", "change / spread", "correlation"]
    rows = []
    for one in found["systems"]:
        correlation = "" if one["correlation"] is None else _signed(one["correlation"])
        groups = [(words, one[key]) for key, words in (("same", "the same"), ("other", "another")) if one[key]]
        for number, (words, group) in enumerate(groups):
            share = group["change"] / group["spread"] if group["spread"] else 0.0
            rows.append([
                "" if number else one["system"],
                words,
                f"{group['sentences']:,}",
                f"{100 * group['moved']:.1f}",
                f"{group['displacement']:.2f}",
                f"{share:.2f}",
                "" if number else correlation,
            ])  # fmt: skip
    return _table(heads, rows)
