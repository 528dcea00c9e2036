"""How many principal components hold the variance of posterior means (Gu & Kong 2021, Figure 5)."""

from pydantic import Field

from workflow_src.config.resolved import Loaded
from workflow_src.evaluation.analyses.content import FirstSentences, Record
from workflow_src.spec import LATENT, Analysis, AnalysisSettings, Selection
from workflow_src.spec.analyses import Enabled


class ComponentsSettings(AnalysisSettings):
    enabled: Enabled = False
    sentences: int = Field(1000, gt=0, description="first sentences of test")
    share: float = Field(0.95, gt=0, lt=1, description="of the variance that the counted components hold")


class SystemComponents(Record):
    """How the variance of posterior means spreads: `shares` of principal components, and how many hold most of it.

    `latents` are counted, `width` is that of each. `participation` is (sum of the eigenvalues)^2 / sum of their
    squares, the number of equally large components that would spread alike. Variances are sums over dimensions:
    `variance` of the means, `noise` the mean one of q. Latents that carry nothing have little of the first.
    """

    system: str
    latents: int
    width: int
    shares: tuple[float, ...]
    components: int
    participation: float
    variance: float
    noise: float


class Components(FirstSentences):
    """Principal components of posterior means; `share` of the variance is what counted components hold."""

    share: float
    systems: tuple[SystemComponents, ...]


def select(_: ComponentsSettings, loaded: Loaded) -> Selection:
    """Every system with latents, whether decoded or not."""
    return Selection.of({"system": system.name} for system in loaded.systems.values() if LATENT in system.traits)


ANALYSIS = Analysis(
    name="components",
    title="Components of the latents",
    settings=ComponentsSettings,
    select=select,
    needs="it looks at latents",
    measure="workflow_src.evaluation.analyses.components.measure:measure",
    content=Components,
    show="workflow_src.evaluation.analyses.components.show:show",
    split="test",
    message="Counting the components of posterior means",
    # The smallest components would be lost in rounding.
    float32=True,
    order=8,
)
