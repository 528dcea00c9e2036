"""The analyses of Lee, Shu & Cho 2020 (sections 5.2, 5.3 and 6): their settings, and what each needs. No torch here."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from workflow_src.config.base import ConfigError, Frozen, unknown
from workflow_src.config.families import AUTOREGRESSIVE_SEARCHES, REFINEMENTS

if TYPE_CHECKING:
    from workflow_src.config.load import Loaded, System

NAMES = ("marginal", "tokens", "lengths", "samples", "latent_space")
# Curves are drawn on dev; what stands beside the main table or shows sentences is of its split.
SPLITS: dict[str, Literal["dev", "test"]] = {"marginal": "dev", "tokens": "dev"}
Steps = tuple[int, ...]


class AnalysisConfig(Frozen):
    enabled: bool = True


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


class AnalysesConfig(Frozen):
    marginal: MarginalConfig = MarginalConfig()
    tokens: TokensConfig = TokensConfig()
    lengths: LengthsConfig = LengthsConfig()
    samples: SamplesConfig = SamplesConfig()
    latent_space: LatentSpaceConfig = LatentSpaceConfig()


@dataclasses.dataclass(frozen=True)
class Analysis:
    """One analysis of an experiment: its file, the systems whose bundles it reads, and what changes its result.

    `enabled` also is False where the experiment has nothing to analyse.
    """

    name: str
    path: str
    split: Literal["dev", "test"]
    enabled: bool
    systems: tuple[str, ...]
    settings: str


def analyses(loaded: Loaded) -> dict[str, Analysis]:
    """Every analysis by name, also those that are switched off.

    Raises ConfigError when latent_space names a system that cannot be drawn.
    """
    found = {}
    for name in NAMES:
        config: Any = getattr(loaded.config.analyses, name)
        entries = _entries(name, loaded)
        settings = config.model_dump(mode="json", exclude={"enabled", "chunk", "system"}) | entries
        if name == "lengths":
            settings["remove_repetitions"] = loaded.config.report.remove_repetitions
        systems = tuple(dict.fromkeys(entry["system"] for entry in entries["searches"]))
        found[name] = Analysis(
            name=name,
            path=f"results/{loaded.config.experiment}/analysis/{name.replace('_', '-')}.json",
            split=SPLITS.get(name, "test"),
            enabled=config.enabled and bool(systems),
            systems=systems,
            settings=json.dumps(settings, sort_keys=True, ensure_ascii=False),
        )
    return found


def _entries(name: str, loaded: Loaded) -> dict[str, Any]:
    """Which searches an analysis follows; `model` is the latent-variable model that a search works in."""
    if name == "latent_space":
        system = _two_dimensional(loaded)
        return {"searches": [{"system": system, "search": "score", "step_size": 1.0}] if system else []}
    if name == "lengths":
        return {"searches": [*_models(loaded), *_searches(loaded)]}
    if name == "samples":
        ranked = sorted(_searches(loaded), key=lambda entry: ("score", "energy", "delta").index(entry["search"]))
        return {"searches": ranked[:1]}
    return {"searches": _searches(loaded)}


def _searches(loaded: Loaded) -> list[dict[str, Any]]:
    """Every refining search that is decoded, once; not those whose settings dev chooses or that stop by themselves."""
    found: dict[tuple, dict[str, Any]] = {}
    for decode in loaded.decodes:
        if (
            decode.search in REFINEMENTS
            and not decode.tune
            and not {"stop_threshold", "engine", "length_quantile", "lengthening"} & set(decode.settings)
        ):
            size = decode.settings["step_size"]
            entry = {"system": decode.system, "search": decode.search, "step_size": size}
            found[decode.system, decode.search, size] = entry | {"model": _model(loaded.systems[decode.system])}
    return list(found.values())


def _models(loaded: Loaded) -> list[dict[str, Any]]:
    """Every latent-variable model that is decoded, with a system whose bundle holds it: its own where it has one."""
    found: dict[str, str] = {}
    for decode in loaded.decodes:
        if decode.search not in AUTOREGRESSIVE_SEARCHES:
            model = _model(loaded.systems[decode.system])
            found[model] = model if decode.system == model else found.get(model, decode.system)
    return [{"system": s, "search": "prior-mean", "step_size": 1.0, "model": m} for m, s in found.items()]


def _model(system: System) -> str:
    return system.base or system.name


def _two_dimensional(loaded: Loaded) -> str | None:
    fits = [s.name for s in loaded.systems.values() if s.family_name == "score" and s.model.latent_dim == 2]
    named = loaded.config.analyses.latent_space.system
    if named is None:
        return fits[0] if fits else None
    where = "analyses.latent_space.system"
    if named not in loaded.systems:
        raise unknown("system", named, list(loaded.systems), where)
    if named not in fits:
        system = loaded.systems[named]
        raise ConfigError(
            f"{where} is {named}, of family {system.family_name}"
            f"{f' with latent_dim {system.model.latent_dim}' if hasattr(system.model, 'latent_dim') else ''}; "
            f"it must be a score network with latent_dim 2 ({', '.join(fits) or 'there is none: add one'})."
        )
    return named
