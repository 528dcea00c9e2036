"""Learning curves: figures of the trainings' logs over updates."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from workflow_src.config.resolved import System
from workflow_src.evaluation.charts import Axis, Chart, Panel, Series, finite, is_curve, panels
from workflow_src.evaluation.manifest import OTHER

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


@dataclasses.dataclass(frozen=True)
class Log:
    """The training log of a system and seed: the entries of its training.jsonl."""

    system: System
    seed: int
    entries: list[dict[str, Any]]

    @property
    def loss_title(self) -> str:
        """The title of the panel of its training loss."""
        return self.system.family.loss_title(self.system.objective)

    def points(self, key: str) -> list[tuple[float, float]]:
        """Updates, and a figure of validation or training."""
        return finite((entry["step"], entry.get(key)) for entry in self.entries)

    def has_curve(self, key: str) -> bool:
        """Whether a figure was logged at several updates and was not zero throughout."""
        points = self.points(key)
        return is_curve(points) and any(value for _, value in points)


def _panels_of(logs: Sequence[Log]) -> list[tuple[str, list[Log], Curves]]:
    """Title, logs and curves of every panel with at least one curve."""
    by_order = sorted(logs, key=lambda log: log.system.family.order)
    losses = list(dict.fromkeys(log.loss_title for log in by_order))
    keys_without_own_panel = UNDRAWN | {key for _, curves in [*PANELS, *LAST_PANELS] for key, _, _ in curves}
    logged = dict.fromkeys(key for log in logs for entry in log.entries for key in entry)
    own_keys = [key for key in logged if key.startswith("dev_") and key not in keys_without_own_panel]
    words = {key: key.removeprefix("dev_").replace("_", " ") for key in own_keys}
    titled = [(f"{words[key]} on dev".capitalize().replace("Bleu", "BLEU"), [(key, 0, "")]) for key in own_keys]
    loss: Curves = [("loss", 0, "")]
    panels = [(title, [log for log in logs if log.loss_title == title], loss) for title in losses]
    common = [(title, list(logs), curves) for title, curves in PANELS]
    last = [(title, list(logs), curves) for title, curves in [*LAST_PANELS, *titled]]
    all_panels = [*panels[:1], *common, *panels[1:], *last]
    return [panel for panel in all_panels if any(log.has_curve(key) for log in panel[1] for key, _, _ in panel[2])]


def learning_curves(logs: Sequence[Log]) -> Chart | None:
    """One panel a metric, over updates; None where nothing was logged twice.

    Systems of one family share a colour and differ in dashes; seeds of a system are lines of the same kind.
    """
    # Systems without updates, such as n-gram models, have no curve.
    all_panels = _panels_of([log for log in logs if any(entry["step"] for entry in log.entries)])
    if not all_panels:
        return None
    names_by_family: dict[str, list[str]] = {}
    for log in logs:
        names = names_by_family.setdefault(log.system.family.name, [])
        if log.system.name not in names:
            names.append(log.system.name)
    series: dict[str, Series] = {}
    drawn = []
    for title, chosen, curves in all_panels:
        rows = []
        for log, (key, dash, addition) in itertools.product(chosen, curves):
            twin = names_by_family[log.system.family.name].index(log.system.name)
            name = log.system.name + (" (reversed)" if log.system.reversed else "") + addition
            series[name] = Series(name, log.system.family.look.colour or OTHER.colour or "", dash=dash + twin)
            curve = {"series": name, "curve": f"{name} {log.seed}", "name": f"{name}, seed {log.seed}"}
            rows += [curve | {"x": x, "y": y} for x, y in log.points(key)]
        drawn.append(Panel(title, rows, Axis("updates", whole=True)))
    return panels(drawn, list(series.values()))
