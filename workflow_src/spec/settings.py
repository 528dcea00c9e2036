"""Settings of searches: their names, ranges and roles, and their parts of the names of files."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, get_args

from pydantic.dataclasses import dataclass

from workflow_src.errors import ConfigError, reason_of, short_repr
from workflow_src.spec.fields import CHECKED
from workflow_src.spec.sections import Frozen

# Parts of decodes' names, which are names of files; numbers may have the + of 1e+20.
PART, PART_CHARACTERS = re.compile(r"[A-Za-z0-9._+-]*"), "letters, digits, -, _, . and +"


@dataclass(frozen=True, config=CHECKED)
class Option:
    """Meaning of a field of a search's settings outside of the search; goes into the field's `Annotated`.

    required  every decode of a configuration must have it
    tune      dev may choose it, usually from these values
    part      its part of a decode's name: a format such as "-size{:g}", or a function of the value; it has letters,
              digits, -, _, . and +
    always    the part also stands there when the value is the field's default
    role      the value names a system that fills this role of the search
    carried   bundles may carry the system that it names: `carries` of a system in a configuration
    steps     the value names the search whose steps are taken; None: the first search of the family that has steps
    length    it decides target lengths: rows that differ in it are not compared as if lengths were equal
    follow    analyses that follow a search step by step keep the setting; rows with any other are left out
    stop      adaptive stopping; tables show mean steps
    ranks     it ranks finished candidates: graphs of engines do not depend on it
    holds     the memory that is held for a sentence grows with it, and its hypotheses where a search gives several
    passes    networks compute every position as many times at most, side by side where memory is held for each
              (`holds`), and the time that is requested of a cluster grows with it
    within_vocabulary  it is never more than the vocabulary has subwords, as a beam is
    only_with  a setting; where that is None or 0, this one has no effect
    """

    required: bool = False
    tune: tuple[bool | int | float | str, ...] = ()
    part: str | Callable[[Any], str] | None = None
    always: bool = False
    role: str | None = None
    carried: bool = False
    steps: bool = False
    length: bool = False
    follow: bool = False
    stop: bool = False
    ranks: bool = False
    holds: bool = False
    passes: bool = False
    within_vocabulary: bool = False
    only_with: str | None = None


def check_beams(settings: SearchSettings, vocabulary: int, section: str = "") -> None:
    """Raises ConfigError for a beam of more hypotheses than the vocabulary has subwords; `section` as in `parse`."""
    for name in settings.named("within_vocabulary"):
        if (value := getattr(settings, name)) > vocabulary:
            allowed = f"{vocabulary} or less, the subwords of the vocabulary"
            raise ConfigError(name, value, allowed=allowed).within(section)


@functools.cache
def _options(settings: type[SearchSettings]) -> dict[str, Option]:
    """The `Option` of every field. Cached: a plan reads them many times for each decode."""
    return {
        name: next((item for item in field.metadata if isinstance(item, Option)), Option())
        for name, field in settings.model_fields.items()
    }


@functools.cache
def _named(settings: type[SearchSettings], flag: str) -> tuple[str, ...]:
    return tuple(name for name, option in _options(settings).items() if getattr(option, flag))


class SearchSettings(Frozen):
    """Base of the settings of searches: each search has a class of its own."""

    @classmethod
    def option(cls, name: str) -> Option:
        """The `Option` of a field; an empty one where its `Annotated` has none."""
        return _options(cls)[name]

    @classmethod
    def named(cls, flag: str) -> tuple[str, ...]:
        """Fields whose `Option` has the `flag`: `named("tune")` are those that dev may choose."""
        return _named(cls, flag)

    @classmethod
    def roles(cls) -> dict[str, str]:
        """The role that each field names a system for, by field."""
        return {name: role for name, option in _options(cls).items() if (role := option.role)}

    @classmethod
    def default(cls, name: str) -> Any:
        return cls.model_fields[name].get_default(call_default_factory=True)

    @classmethod
    def may_be_none(cls, name: str) -> bool:
        return type(None) in get_args(cls.model_fields[name].annotation)

    @classmethod
    def has_effect(cls, name: str, values: Mapping[str, Any]) -> bool:
        """Whether a setting counts beside these values of others: the one that it is `only_with` is not None or 0."""
        other = cls.option(name).only_with
        return other is None or (bool(values.get(other, True)) and cls.has_effect(other, values))

    def most_passes(self) -> int:
        """How often networks compute every position, about."""
        return math.prod(max(1, getattr(self, name)) for name in self.named("passes"))

    def rows(self) -> int:
        """Candidates of a sentence that networks compute side by side."""
        side_by_side = set(self.named("passes")) & set(self.named("holds"))
        return math.prod(max(1, getattr(self, name)) for name in side_by_side)

    def check_used(
        self, tune: Mapping[str, Any] = MappingProxyType({}), section: str = "", names: Collection[str] | None = None
    ) -> None:
        """Raises ConfigError for a setting without effect, because the one that it is `only_with` is None or 0.

        Such a setting may have its default, and dev may not choose it (`tune`) unless it chooses the other one too.
        Of `names` alone; None: of all settings.
        """
        for name, option in _options(type(self)).items():
            other, value, default = option.only_with, getattr(self, name), self.default(name)
            is_used = other is None or other in tune or getattr(self, other)
            is_asked = names is None or name in names
            if is_asked and not is_used and (name in tune or value != default):
                setting, value = (f"tune.{name}", list(tune[name])) if name in tune else (name, value)
                error = ConfigError(setting, value, problem=f"without {other}", allowed=[default], hint=f"add {other}")
                raise error.within(section)

    def name_part(self, name: str) -> str:
        """Part of a decode's name that comes from one setting. Raises ConfigError for one that is no part of a file's
        name."""
        part, value, words = self.option(name).part, getattr(self, name), name.replace("_", "-")
        if part is None:
            text: Any = f"-{words}{value}"
        elif value is None and not callable(part):
            text = f"-no-{words}"
        else:
            try:
                text = part(value) if callable(part) else part.format(value)
            except Exception as failure:
                # A part may be a function of a plug-in, which may raise anything.
                raise ConfigError(name, value, problem=reason_of(failure), hint="choose another value") from failure
        if not isinstance(text, str) or not PART.fullmatch(text):
            problem = f"its part of the decode's name is {short_repr(text)}"
            raise ConfigError(name, value, problem=problem, allowed=PART_CHARACTERS)
        return text

    def name_parts(self) -> str:
        """Part of the names of files that comes from the settings, behind the search's name: `-4-quantile0.6`."""
        names = (
            name
            for name in type(self).model_fields
            if self.option(name).part is not None
            and (self.option(name).always or getattr(self, name) != self.default(name))
        )
        return "".join(self.name_part(name) for name in names)
