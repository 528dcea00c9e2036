"""How many principal components hold the variance of posterior means (Gu & Kong 2021, Figure 5)."""

from pydantic import Field

from workflow_src.config.resolved import Loaded
from workflow_src.spec import LATENT, Analysis, AnalysisSettings, Figure, FigureTable, Key, Selection
from workflow_src.spec.analyses import Enabled


class ComponentsSettings(AnalysisSettings):
    enabled: Enabled = False
    sentences: int = Field(1000, gt=0, description="first sentences of test")
    share: float = Field(0.95, gt=0, lt=1, description="of the variance that the counted components hold")


TABLE = FigureTable(
    (
        Figure("latents", "latents", digits=0),
        Figure("width", "Z", digits=0),
        Figure("components", "components that hold {share:g} of the variance", digits=0),
        Figure("participation", "participation ratio", digits=2),
        Figure("variance", "variance of the means", digits=3),
        Figure("noise", "mean variance of q", digits=3),
        Figure("shares", factor=100, panel="variance in each component, %", listed=True),
        Figure("together", factor=100, panel="in the first components together, %", level="share", listed=True),
    ),
    line="Principal components of the posterior means of q(z|x,y) on {scope} and their references, as in Figure 5 of "
    "Gu & Kong 2021: how many of the Z dimensions the latents use.",
    notes={
        "Participation": "The number of equally large components that would spread alike.",
        "Variances": "Sums over the dimensions: latents whose means vary little beside the variance of q carry little.",
    },
    over=Key("component", "", "principal component"),
    label="Variance of posterior means by principal component",
)


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
    tables=(TABLE,),
    split="test",
    message="Counting the components of posterior means",
    # The smallest components would be lost in rounding.
    float32=True,
    order=8,
)
