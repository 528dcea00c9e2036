"""Learning curves: figures of the trainings' logs over updates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from workflow_src.evaluation.charts import Axis, Chart, Panel, Series, panels
from workflow_src.evaluation.manifest import OTHER
from workflow_src.evaluation.report.trained import Training

# Curves of a panel: key in the training log, dashes, and addition to the label.
Curves = Sequence[tuple[str, int, str]]
# Panels of the learning curves: those after the first training loss, and those after all others.
PANELS: list[tuple[str, Curves]] = [
    ("Loss on dev", [("dev_loss", 0, "")]),
    ("BLEU on dev", [("dev_bleu", 0, ""), ("dev_bleu_posterior", 2, " posterior")]),
    ("ELBO on dev", [("dev_elbo", 0, "")]),
    ("KL on dev, nats a latent", [("dev_kl", 0, "")]),
    ("Lengths right on dev, share", [("dev_length_accuracy", 0, "")]),
]
LAST_PANELS: list[tuple[str, Curves]] = [
    ("Cosine with delta on dev", [("dev_cosine", 0, ""), ("dev_cosine_noise0", 2, " noise 0")])
]
# Figures of validation without a panel; every other figure that a family logs has a panel.
UNDRAWN = {"dev_offset_norm", "dev_offset_norm_noise0", "dev_squared_error", "dev_squared_error_noise0"}


def _panels_of(trainings: Sequence[Training]) -> list[tuple[str, list[Training], Curves]]:
    """Title, trainings and curves of every panel with at least one curve."""
    by_order = sorted(trainings, key=lambda training: training.system.family.order)
    losses = list(dict.fromkeys(training.loss_title for training in by_order))
    keys_without_own_panel = UNDRAWN | {key for _, curves in [*PANELS, *LAST_PANELS] for key, _, _ in curves}
    logged = dict.fromkeys(key for training in trainings for entry in training.entries for key in entry)
    own_keys = [key for key in logged if key.startswith("dev_") and key not in keys_without_own_panel]
    words = {key: key.removeprefix("dev_").replace("_", " ") for key in own_keys}
    titled = [(f"{words[key]} on dev".capitalize().replace("Bleu", "BLEU"), [(key, 0, "")]) for key in own_keys]
    loss: Curves = [("loss", 0, "")]
    panels = [(title, [training for training in trainings if training.loss_title == title], loss) for title in losses]
    common = [(title, list(trainings), curves) for title, curves in PANELS]
    last = [(title, list(trainings), curves) for title, curves in [*LAST_PANELS, *titled]]
    all_panels = [*panels[:1], *common, *panels[1:], *last]
    return [panel for panel in all_panels if any(each.has_curve(key) for each in panel[1] for key, _, _ in panel[2])]


def learning_curves(trainings: Sequence[Training]) -> Chart | None:
    """One panel a metric, over updates; None where nothing was logged twice.

    Systems of one family share a colour and differ in dashes; seeds of a system are lines of the same kind.
    """
    # Systems without updates, such as n-gram models, have no curve.
    all_panels = _panels_of([training for training in trainings if any(entry["step"] for entry in training.entries)])
    if not all_panels:
        return None
    names_by_family: dict[str, list[str]] = {}
    for training in trainings:
        names = names_by_family.setdefault(training.system.family.name, [])
        if training.system.name not in names:
            names.append(training.system.name)
    series: dict[str, Series] = {}
    drawn = []
    for title, chosen, curves in all_panels:
        rows = []
        for training, (key, dash, addition) in itertools.product(chosen, curves):
            twin = names_by_family[training.system.family.name].index(training.system.name)
            name = training.system.name + (" (reversed)" if training.system.reversed else "") + addition
            series[name] = Series(name, training.system.family.look.colour or OTHER.colour or "", dash=dash + twin)
            curve = {"series": name, "curve": f"{name} {training.seed}", "name": f"{name}, seed {training.seed}"}
            rows += [curve | {"x": x, "y": y} for x, y in training.points(key)]
        drawn.append(Panel(title, rows, Axis("updates", whole=True)))
    return panels(drawn, list(series.values()))
