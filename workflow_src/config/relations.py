"""What the systems of an experiment have to do with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from workflow_src.config.texts import RAW, system_behind, weights_of
from workflow_src.errors import ConfigError
from workflow_src.spec import BASE, Frozen, parse

# The share of a text's pairs that an epoch has.
TextWeight = Annotated[float, Field(gt=0, le=100)]


class Reference(NamedTuple):
    """A setting of a system that names another one, by its name or by a text that it makes."""

    setting: str
    value: str
    system: str


class Relations(Frozen):
    """What a system has to do with others."""

    data: Annotated[str, Field(min_length=1)] | Annotated[dict[str, TextWeight], Field(min_length=1)] | None = Field(
        None,
        description="a text, or texts with their weights; default: raw, or that of the base with its training.augment",
    )
    base: str | None = Field(None, description="the system whose latent space a refiner works in")
    roles: dict[str, str] = Field({}, description="systems that fill roles which the family needs beside a base")
    carries: dict[str, str] = Field({}, description="systems that its bundle carries for its searches, by role")
    init_from: str | None = Field(None, description="a system whose weights it starts from where shapes agree")

    @model_validator(mode="after")
    def _base_is_no_role(self):
        if BASE in self.roles:
            raise ConfigError(f"roles.{BASE}", problem="a setting of its own", hint=f"write {BASE}: SYSTEM")
        return self

    @property
    def filled(self) -> dict[str, str]:
        """Systems that this one is built on and that it works with, by role, the base first."""
        return ({BASE: self.base} if self.base else {}) | self.roles

    @property
    def references(self) -> list[Reference]:
        """Settings that name other systems, and texts that these make."""
        named = {BASE: self.base} | {f"roles.{role}": name for role, name in self.roles.items()}
        named |= {"init_from": self.init_from} | {f"carries.{role}": name for role, name in self.carries.items()}
        makers = {text: system_behind(text) for text in weights_of(self.data or RAW)}
        systems = [Reference(setting, name, name) for setting, name in named.items() if name]
        return systems + [Reference("data", text, maker) for text, maker in makers.items() if maker]

    @property
    def teachers(self) -> list[str]:
        """Systems that make its training texts."""
        return list(dict.fromkeys(other.system for other in self.references if other.setting == "data"))

    @property
    def built_on(self) -> list[str]:
        """Systems that are trained before this one."""
        return [other.system for other in self.references if not other.setting.startswith("carries.")]

    @property
    def needs(self) -> list[str]:
        """Systems that this one cannot do without: those that it is built on, and those that its bundle carries."""
        return [other.system for other in self.references]


def relations(name: str, section: dict[str, Any]) -> Relations:
    """What the system `name` has to do with others, of a section that is not checked yet. Raises ConfigError."""
    settings = {setting: section[setting] for setting in Relations.model_fields if setting in section}
    return parse(Relations, settings, f"systems.{name}")


def with_needed(names: Iterable[str], needs: Callable[[str], Iterable[str]]) -> set[str]:
    """`names`, all that `needs` says of these, and so on."""
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += needs(name)
    return needed
