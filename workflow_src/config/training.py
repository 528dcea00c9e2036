"""The settings of a training: how long and how a model learns, and which pairs are changed for it."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from workflow_src.config.files import CONFIG_FOLDER, merge, read_preset
from workflow_src.config.sizes import (
    AUTO,
    LONGEST_UNSAVED,
    LONGEST_WARMUP,
    SAVES,
    VALIDATIONS,
    WARMUPS,
    AtLeast0,
    AtLeast1,
    Steps,
    share,
)
from workflow_src.errors import ConfigError
from workflow_src.spec import Frozen, changed

# How pairs are changed, so that a system can read capitals, titles and typing errors.
MODIFIERS = ("upper", "title", "typos", "no_accents")
Share = Annotated[float, Field(ge=0, le=1)]


class AugmentConfig(Frozen):
    """Shares of training pairs; a pair is changed in one way at most."""

    upper: Share = Field(0.0, description="in capitals, both sides")
    title: Share = Field(0.0, description="with a capital at the start of every word, both sides")
    typos: Share = Field(0.0, description="with typing errors in the source")
    no_accents: Share = Field(0.0, description="without accents in the source")
    seed: int = Field(1, ge=0, description="another one changes other pairs")

    @model_validator(mode="after")
    def _shares(self):
        total = sum(getattr(self, name) for name in MODIFIERS)
        if not 0 < total <= 1 + 1e-9:
            problem = f"the shares of {', '.join(MODIFIERS)} add up to {total:g}"
            raise ConfigError("", problem=problem, allowed="more than 0, at most 1")
        return self

    @property
    def suffix(self) -> str:
        """The end of the name of a text that is changed in this way; names of other texts have no +."""
        shares = [f"{name}-{getattr(self, name):g}" for name in MODIFIERS if getattr(self, name)]
        return "".join(f"+{part}" for part in [*shares, *([f"seed-{self.seed}"] if self.seed != 1 else [])])


# How fast a moving average of gradients forgets.
Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainingConfig(Frozen):
    """How long and how a model learns. Everything here changes the result; devices and logging are elsewhere."""

    # Replaced by its settings when a configuration is read, so that rules never see its name.
    preset: str | None = Field(None, exclude=True, description="settings of config/training.yaml; those beside it win")
    max_steps: Steps = Field(
        description="updates; 0 uses initial_weights as they are; auto, or a section with bounds: by the target tokens"
    )
    batch_tokens: int = Field(2000, gt=0, description="padded subwords of the longer side in one update")
    accumulate: int = Field(
        1, gt=0, description="smaller batches of an update, of batch_tokens in all, whose gradients are averaged"
    )
    learning_rate: float = Field(2e-3, gt=0, description="at its peak")
    schedule: Literal["inverse-sqrt", "polynomial"] = "inverse-sqrt"
    warmup_steps: AtLeast0 = Field(300, description="updates; auto: a twentieth of max_steps, 4,000 at most")
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    epsilon: float = Field(1e-9, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    clip_norm: float | None = Field(1.0, gt=0)
    validate_every: AtLeast1 = Field(AUTO, description="updates; auto: a tenth of max_steps")
    # Saving, and what may be skipped, change no weights: Snakemake does not compare them.
    save_every: AtLeast1 = Field(
        AUTO, description="updates between saved states; auto: a twentieth of max_steps, 1,000 at most"
    )
    max_skipped: int = Field(
        10,
        ge=0,
        description="updates in a row that may be skipped because loss or gradient is not finite; in all, a "
        "twentieth of the updates more",
    )
    dev_sentences: int | None = Field(None, gt=0, description="first so many dev pairs for BLEU while training")
    keep: Literal["average", "best", "last"] = Field("average", description="which weights become the system")
    average_last: int = Field(5, gt=0, description="validation checkpoints averaged (keep: average)")
    patience: int | None = Field(
        None,
        gt=0,
        description="training stops after so many validations in a row with no better figure or loss (keep: best)",
    )

    # Left out of the settings of training rules, which read the augmented text.
    augment: AugmentConfig | None = Field(
        None, exclude=True, description="shares of training pairs in capitals, as titles, with typing errors"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, section: Any) -> Any:
        if not isinstance(section, dict) or section.get("preset") is None:
            return section
        preset = read_preset(CONFIG_FOLDER / "training.yaml", section["preset"])
        return merge(preset, section | {"preset": None}, null_removes=False)

    @model_validator(mode="after")
    def _keep_reads_its_settings(self):
        for name, kept in (("patience", "best"), ("average_last", "average")):
            if self.keep != kept and changed(self, name):
                hint = f"set keep: {kept}, or remove it"
                raise ConfigError(name, getattr(self, name), problem=f"keep is {self.keep}", hint=hint)
        return self

    @model_validator(mode="after")
    def _parts_have_tokens(self):
        if self.accumulate > self.batch_tokens:
            raise ConfigError("accumulate", self.accumulate, allowed=f"{self.batch_tokens} (batch_tokens) or less")
        return self

    @property
    def warm_up_warning(self) -> str | None:
        """A warning where the warm-up is longer than the training, else None."""
        steps, warmup = self.max_steps, self.warmup_steps
        if not (isinstance(steps, int) and isinstance(warmup, int) and 0 < steps < warmup):
            return None
        return (
            f"training.warmup_steps is {warmup}, more than training.max_steps, {steps}, so that the learning rate "
            f"never reaches {self.learning_rate:g}: lower it, or say auto"
        )

    def parts(self, processes: int) -> int:
        """Batches of an update: `accumulate`, or its next multiple of the processes."""
        return math.lcm(self.accumulate, processes)

    def part_tokens(self, processes: int) -> int:
        """Padded subwords of the longer side in one of `parts`."""
        return max(1, self.batch_tokens // self.parts(processes))

    def sized(self, tokens: int, batches: float | None = None) -> TrainingConfig:
        """These settings with numbers in place of auto, for a text of `tokens` target tokens, end symbols counted,
        and of so many `batches` an epoch; None: estimated by `tokens`."""
        steps = self.max_steps
        if not isinstance(steps, int):
            steps = steps.updates(tokens, self.batch_tokens, batches)
        numbers = {
            "warmup_steps": min(steps // WARMUPS, LONGEST_WARMUP),
            "validate_every": share(steps, VALIDATIONS),
            "save_every": min(share(steps, SAVES), LONGEST_UNSAVED),
        }
        auto = {name: number for name, number in numbers.items() if getattr(self, name) == AUTO}
        return self.model_copy(update={"max_steps": steps} | auto)
