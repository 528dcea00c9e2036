"""A picture of a two-dimensional latent space and of a score network's field in it (Lee et al. 2020, Figure 3)."""

from typing import Annotated

from pydantic import Field, model_validator

from workflow_src.config.plan.selection import entry, model_of
from workflow_src.config.resolved import Loaded, System
from workflow_src.errors import ConfigError
from workflow_src.evaluation.content import Content, Record
from workflow_src.registry import searches_of
from workflow_src.spec import VECTOR_FIELD, Analysis, AnalysisSettings, Selection, Use

Pair = tuple[float, float]


class LatentSpaceSettings(AnalysisSettings):
    system: Annotated[str | None, Use.SYSTEMS] = Field(
        None, description="a score network with latent_dim 2; default: the first there is"
    )
    sentence: int | None = Field(None, ge=0, description="line of test, from 0; default: where refinement changes most")
    sentences: int = Field(200, gt=0, description="first sentences of test that it is picked from")
    positions: int = Field(12, gt=0, description="longest target that is picked, in subwords: a panel for each")
    steps: int = Field(4, gt=0)
    resolution: int = Field(41, ge=5, description="cells of the background along each axis")
    arrows: int = Field(11, ge=3, description="arrows along each axis")


class Panel(Record):
    """The plane of one position's latent: a square around `centre`, 2 `half` wide.

    `regions` are the subwords (ids) that are decoded there, rows from below; `arrows` are (x, y, dx, dy). `paths` begin
    at the prior mean, and are by the names of their searches.
    """

    centre: Pair
    half: float
    regions: tuple[tuple[int, ...], ...] = Field(min_length=1)
    arrows: tuple[tuple[float, float, float, float], ...] = Field(min_length=1)
    prior: Pair
    posterior: Pair
    paths: dict[str, tuple[Pair, ...]]

    @model_validator(mode="after")
    def _square(self) -> "Panel":
        if any(len(row) != len(self.regions) for row in self.regions):
            raise ConfigError("regions", problem="they are not as many in every row as there are rows")
        return self


class LatentSpace(Content):
    """The latent space of a sentence (its line's number, from 0), a panel for each target position.

    `outputs` are subwords (ids) decoded from the points and from the ends of paths, `texts` the same in words, and
    `pieces` what ids stand for. `end_symbol` is the id that targets end with, if any: the last panel is of its latent.
    """

    sentence: int
    system: str
    source: str
    reference: str
    steps: int
    pieces: dict[int, str]
    texts: dict[str, str]
    outputs: dict[str, tuple[int, ...]]
    panels: tuple[Panel, ...] = Field(min_length=1)
    end_symbol: int | None = None
    searches: tuple[str, ...]

    @model_validator(mode="after")
    def _complete(self) -> "LatentSpace":
        for name in ("prior", "posterior", *self.searches):
            if name not in self.texts or len(self.outputs.get(name, ())) < len(self.panels):
                raise ConfigError("outputs", problem=f"they or texts lack {name} or some of its subwords")
        if any(name not in panel.paths for name in self.searches for panel in self.panels):
            raise ConfigError("panels", problem="one lacks a path that others have")
        ids = {cell for panel in self.panels for row in panel.regions for cell in row}
        ids = ids.union(*self.outputs.values(), () if self.end_symbol is None else (self.end_symbol,))
        if missing := sorted(ids - set(self.pieces)):
            raise ConfigError("pieces", problem=f"they lack the id {missing[0]}")
        return self


def select(settings: LatentSpaceSettings, loaded: Loaded) -> Selection:
    """The network that the settings name, or the first that fits. Raises ConfigError for one that cannot be drawn."""
    fits = [system.name for system in loaded.systems.values() if _drawable(system, loaded)]
    name, where = settings.system, "analyses.latent_space.system"
    if name is None:
        name = next(iter(fits), None)
    elif name not in loaded.systems:
        raise ConfigError(where, name, allowed=loaded.systems)
    elif name not in fits:
        problem = "no network that predicts steps of latents with latent_dim 2"
        raise ConfigError(where, name, problem=problem, allowed=fits)
    return Selection.of([entry(name, searches_of(loaded.systems[name].family)[0])] if name else [])


def _drawable(system: System, loaded: Loaded) -> bool:
    width = getattr(system.model, "latent_dim", None)
    return VECTOR_FIELD in system.family.traits and width == 2 and model_of(system, loaded) is not None


ANALYSIS = Analysis(
    name="latent_space",
    title="The latent space seen",
    settings=LatentSpaceSettings,
    select=select,
    needs="it draws the field of a network that predicts steps of latents, with latent_dim 2",
    measure="workflow_src.evaluation.analyses.latent_space.measure:measure",
    content=LatentSpace,
    show="workflow_src.evaluation.analyses.latent_space.show:show",
    split="test",
    rule="map_latent_space",
    message="Mapping the latent space of one sentence",
    # A map has sharp borders, which rounding would fray.
    float32=True,
    order=5,
)
