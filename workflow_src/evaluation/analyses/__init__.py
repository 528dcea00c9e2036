"""What declarations of analyses of searches that are followed from step to step share."""

from typing import Annotated

from pydantic import AfterValidator, Field

from workflow_src.config.base import distinct
from workflow_src.spec import Figure, Key

# A setting: numbers of refinement steps after which outputs are looked at, beside 0.
Steps = Annotated[tuple[Annotated[int, Field(ge=0)], ...], AfterValidator(distinct)]
STEPS = Key("steps", "L", "refinement steps L")
# Shares of sentences whose outputs rose and fell since step 0, in log-probability or its bound.
RISEN_AND_FALLEN = (
    Figure("risen", "risen, %", digits=0, factor=100, change=True),
    Figure("fallen", "fallen, %", digits=0, factor=100, change=True),
)
