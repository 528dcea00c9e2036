"""Settings of the analyses, of Lee, Shu & Cho 2020 (sections 5.2, 5.3, 6) and of papers that each names. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from workflow_src.config.base import Frozen, distinct
from workflow_src.errors import ConfigError

Steps = Annotated[tuple[Annotated[int, Field(ge=0)], ...], AfterValidator(distinct)]


# auto: where the experiment has something that fits; true: something must fit.
Enabled = bool | Literal["auto"]


class AnalysisConfig(Frozen):
    enabled: Enabled = "auto"


class MarginalConfig(AnalysisConfig):
    """log p(y|x) of what every procedure puts out after `steps` steps, by importance sampling (Figure 1)."""

    sentences: int = Field(20, gt=0, description="first sentences of dev")
    samples: int = Field(50, gt=1, description="draws of z for each output; the paper's are 500")
    steps: Steps = Field((1, 2, 4), min_length=1, description="beside 0, the prior mean")
    seed: int = Field(1, ge=0)
    # Bounds memory and changes no result, so it is handed over outside of what makes the rule rerun.
    chunk: int = Field(100, gt=0, description="samples decoded together")


class TokensConfig(AnalysisConfig):
    """Edit distance from the prior mean's output, and repetitions, in subwords (Figure 2)."""

    sentences: int = Field(100, gt=0, description="first sentences of dev")
    steps: Steps = Field((1, 2, 4, 8), min_length=1, description="beside 0, the prior mean")


class LengthsConfig(AnalysisConfig):
    """How often the length head is right, and what its errors cost."""

    sentences: int = Field(100, gt=0, description="first sentences of test")
    candidates: int = Field(5, gt=0, description="most probable lengths that an oracle chooses from")
    steps: int = Field(1, ge=0, description="refinement steps of the rows beside the prior mean")


class SamplesConfig(AnalysisConfig):
    """Translations from one sample of the prior, and after refinement (Table 2)."""

    sentences: int = Field(100, gt=0, description="first sentences of test that examples are picked from")
    examples: int = Field(5, gt=0)
    steps: int = Field(1, gt=0)
    seed: int = Field(1, ge=0)


class LatentSpaceConfig(AnalysisConfig):
    """A picture of a two-dimensional latent space and of a score network's field in it (Figure 3)."""

    system: str | None = Field(None, description="a score network with latent_dim 2; default: the first there is")
    sentence: int | None = Field(None, ge=0, description="line of test, from 0; default: where refinement changes most")
    sentences: int = Field(200, gt=0, description="first sentences of test that it is picked from")
    positions: int = Field(12, gt=0, description="longest target that is picked, in subwords: a panel for each")
    steps: int = Field(4, gt=0)
    resolution: int = Field(41, ge=5, description="cells of the background along each axis")
    arrows: int = Field(11, ge=3, description="arrows along each axis")


class EnergiesConfig(AnalysisConfig):
    """Mean -log p(y|x) of every row's outputs under one system or several, as in Tu et al. 2020 (Tables 2 and 5)."""

    enabled: Enabled = False
    scorer: str | tuple[str, ...] | None = Field(
        None,
        description="systems that score outputs, the first that of the main table; default: the first autoregressive "
        "one, else the first",
    )
    reference_lengths: bool = Field(
        False, description="also what searches put out at the references' lengths: energy and BLEU"
    )
    # Bounds memory and changes no result.
    batch: int = Field(64, gt=0, description="sentences decoded or scored together")

    @field_validator("scorer")
    @classmethod
    def _different_scorers(cls, value: Any) -> Any:
        if isinstance(value, tuple):
            if not value:
                raise ConfigError("", allowed="one system or more")
            distinct(value)
        return value


def scoring_systems(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the systems that score, from the settings of an analysis: one name, several, or none."""
    named = settings.get("scorer") or ()
    return (named,) if isinstance(named, str) else tuple(named)


class ConvergenceConfig(AnalysisConfig):
    """The bound and BLEU of what each step puts out, and the step after which outputs stand still (Shu et al. 2020,
    Figures 3 and 4)."""

    enabled: Enabled = False
    sentences: int = Field(200, gt=0, description="first sentences of dev")
    samples: int = Field(20, gt=0, description="draws of z for each output's bound")
    steps: int = Field(10, gt=0, description="most steps that are taken")
    seed: int = Field(1, ge=0)


class ComponentsConfig(AnalysisConfig):
    """How many principal components hold the variance of posterior means (Gu & Kong 2021, Figure 5)."""

    enabled: Enabled = False
    sentences: int = Field(1000, gt=0, description="first sentences of test")
    share: float = Field(0.95, gt=0, lt=1, description="of the variance that the counted components hold")


class LatentPathsConfig(AnalysisConfig):
    """Where latents go under refinement: distances, log-densities, and how far each step is a delta step."""

    enabled: Enabled = False
    sentences: int = Field(100, gt=0, description="first sentences of dev")
    steps: Steps = Field((1, 2, 4, 8), min_length=1, description="beside 0, the prior mean")


class ReorderingConfig(AnalysisConfig):
    """Whether latents of source positions follow the word order of a translation (Gu & Kong 2021, Figure 6)."""

    enabled: Enabled = False
    sentences: int = Field(200, gt=0, description="first sentences of test")
    system: str | None = Field(
        None,
        description="whose translations are compared with the references; default: the first autoregressive system",
    )
    positions: int = Field(16, gt=1, description="longest source that is drawn, in subwords with the end symbol")


class AnalysesConfig(Frozen):
    marginal: MarginalConfig = MarginalConfig()
    tokens: TokensConfig = TokensConfig()
    lengths: LengthsConfig = LengthsConfig()
    samples: SamplesConfig = SamplesConfig()
    latent_space: LatentSpaceConfig = LatentSpaceConfig()
    energies: EnergiesConfig = EnergiesConfig()
    convergence: ConvergenceConfig = ConvergenceConfig()
    latent_paths: LatentPathsConfig = LatentPathsConfig()
    components: ComponentsConfig = ComponentsConfig()
    reordering: ReorderingConfig = ReorderingConfig()
