"""Sections of a configuration, and pydantic's errors of them in one sentence."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

import pydantic
import pydantic_core
from pydantic_core import PydanticKnownError

from workflow_src.errors import ABSENT, ConfigError, nearest, short_repr

# Whole numbers have 64 bits in torch and NumPy.
HUGE = 2**63
UNKNOWN = "no such setting"
# The key of numbers of defaults beside the settings of a section, in `compared`.
DEFAULTS_NUMBERS = "defaults"
# Allowed values where pydantic speaks of Python's types; `{...}` are entries of its context.
ALLOWED = {
    "tuple_type": "a list, such as [a, b]",
    "list_type": "a list, such as [a, b]",
    "dict_type": "a section of `name: value` lines",
    "model_type": "a section of `name: value` lines",
    "model_attributes_type": "a section of `name: value` lines",
    "string_type": "text",
    "invalid_key": "text",
    "int_parsing_size": "a smaller number",
    "too_short": "a length of {min_length} or more",
    "too_long": "a length of {max_length} or less",
}
# Words for None, where a setting may be None.
NONE = ("none", "null")
# Kinds of errors of a section where a name or a number may stand too, and the other way round.
NO_SECTION = ("string_type", "int_type", "literal_error")
NO_VALUE = ("dict_type", "model_type")


class Frozen(pydantic.BaseModel):
    """A configuration section: immutable, unknown keys refused."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)
    # Raised when a default changes: settings that equal their defaults are left out where Snakemake compares settings.
    defaults_number: ClassVar[int] = 1

    @pydantic.model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, section: Any) -> Any:
        """Refuses unknown names before anything else: a misspelt name explains one that is missing."""
        if not isinstance(section, dict):
            return section
        unknown = [name for name in section if name not in cls.model_fields]
        if cls.model_config["extra"] == "allow":
            missing = [name for name, field in cls.model_fields.items() if field.is_required() and name not in section]
            unknown = [name for name in unknown if nearest(str(name), missing)]
        if unknown:
            raise ConfigError(_printable(unknown[0]), problem=UNKNOWN, allowed=cls.model_fields)
        return section

    @pydantic.field_validator("*", mode="wrap")
    @classmethod
    def _read_words_for_none(
        cls, value: Any, validate: pydantic.ValidatorFunctionWrapHandler, info: pydantic.ValidationInfo
    ) -> Any:
        """Reads the word none as None where a setting may be None, and the word is none of its choices: null in an
        experiment removes what it extends.

        The word null of a command line, on which Snakemake reads inner values as text, is read so too.
        """
        if value in NONE and value not in _choices(cls.model_fields[str(info.field_name)].annotation):
            with contextlib.suppress(ValueError):
                return validate(None)
        return validate(value)

    @pydantic.field_validator("*", mode="wrap")
    @classmethod
    def _refuse_false_numbers(cls, value: Any, validate: pydantic.ValidatorFunctionWrapHandler) -> Any:
        """Refuses true and false where a number is meant, which pydantic takes for 1 and 0, and numbers that nothing
        can count to."""
        validated = validate(value)
        for entry, number in zip(_entries(value), _entries(validated), strict=False):
            if isinstance(number, int | float) and isinstance(entry, bool) and not isinstance(number, bool):
                raise PydanticKnownError("int_type" if isinstance(number, int) else "float_type")
            if isinstance(number, int) and abs(number) >= HUGE:
                raise PydanticKnownError("int_parsing_size")
        return validated


def _choices(annotation: Any) -> set[Any]:
    """The values that a type lists (`Literal`), also in a union."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return set().union(*map(_choices, get_args(annotation)))


def changed(section: Frozen, name: str) -> bool:
    """Whether a setting differs from its default."""
    return getattr(section, name) != type(section).model_fields[name].default


def compared(section: Frozen, **options: Any) -> dict[str, Any]:
    """A section as JSON content in which another result shows: without values that are defaults, so that a new setting
    changes nothing.

    The key `defaults` has the numbers of sections in it whose defaults have changed, by the names of their classes;
    without any, it is left out. `options` are those of `model_dump`.
    """
    content = section.model_dump(mode="json", exclude_defaults=True, **options)
    kinds = _kinds(section, options.get("include"))
    numbers = {kind.__name__: kind.defaults_number for kind in kinds if kind.defaults_number > 1}
    return content | ({DEFAULTS_NUMBERS: numbers} if numbers else {})


def _kinds(value: Any, include: set[str] | None = None) -> set[type[Frozen]]:
    """Classes of a section and of those in its fields (of `include` alone, if given) that are written."""
    if isinstance(value, Frozen):
        fields = {name for name, field in type(value).model_fields.items() if not field.exclude}
        fields &= include or fields
        return {type(value)}.union(*(_kinds(getattr(value, name)) for name in fields))
    if isinstance(value, Mapping | list | tuple):
        return set().union(*map(_kinds, _entries(value)))
    return set()


def defaults(kind: type[pydantic.BaseModel]) -> dict[str, Any]:
    """Defaults of the fields of a section as JSON content."""
    fields = kind.model_fields.items()
    values = {name: field.get_default(call_default_factory=True) for name, field in fields if not field.is_required()}
    content: dict[str, Any] = pydantic_core.to_jsonable_python(values)
    return content


def settings_json(content: Mapping[str, Any]) -> str:
    """Settings of a rule as canonical JSON, which Snakemake compares as text: objects have no order."""
    return json.dumps(content, sort_keys=True, ensure_ascii=False)


Section = TypeVar("Section", bound=pydantic.BaseModel)


def parse(model: type[Section], raw: Any, where: str = "") -> Section:
    """`raw` as a validated `model`. Raises ConfigError for the first setting that is wrong.

    `where` is the place in the configuration, such as `systems.teacher.training`.
    """
    try:
        return model.model_validate(raw)
    except pydantic.ValidationError as failure:
        raise config_error(failure, raw, where or "the configuration", where) from None


def config_error(failure: pydantic.ValidationError, raw: Any, whole: str, where: str = "") -> ConfigError:
    """The first of pydantic's errors of `raw` as that of a setting in the section `where`.

    `whole` is the subject of an error of all of `raw`.
    """
    errors = _likely(failure.errors(), raw)
    error = errors[0]
    location, value = _written(error, raw), error["input"]
    of_key = error["loc"][-1:] == ("[key]",) or error["type"] == "invalid_key"
    # Arguments without a name have a number.
    section = ".".join(filter(None, [where, place(location[:-1] if of_key else location)])).replace(".[", "[")
    setting = f"a name in {section or whole}" if of_key else section or whole
    inner = error.get("ctx", {}).get("error")
    if isinstance(inner, ConfigError):
        return inner.within(section if inner.setting else setting, value)
    if error["type"] == "missing":
        return ConfigError(setting, problem="missing")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return ConfigError(setting, problem=UNKNOWN)
    hint = ""
    if isinstance(value, bool) and error["type"] == "string_type":
        hint = "it must be text: write it in quotes, because YAML reads no and off as false, yes and on as true"
    allowed = dict.fromkeys(words for e in errors if _written(e, raw) == location for words in _allowed(e))
    if allowed:
        names = any(e["type"] == "literal_error" for e in errors)
        return ConfigError(setting, value, allowed=allowed if names else " or ".join(allowed), hint=hint)
    problem = error["msg"].removeprefix("Value error, ")
    return ConfigError(setting, ABSENT if isinstance(value, Mapping) else value, problem=problem)


def _likely(errors: list[Any], raw: Any) -> list[Any]:
    """`errors` without those of another kind of value than the one that was written, where others say what is wrong.

    Without `raw`, whose places tell them apart, others are any.
    """
    fitting = [error for error in errors if error["type"] not in _of_another_kind(error["input"])]
    if raw is None:
        return fitting or errors
    places, explained = [_written(error, raw) for error in errors], [_written(error, raw) for error in fitting]

    def is_explained(error: Any) -> bool:
        """Whether another error is of the same value, or of one in it, which is then of the right kind."""
        written = _written(error, raw)
        return written in explained or any(p[: len(written)] == written and len(p) > len(written) for p in places)

    return [error for error in errors if error in fitting or not is_explained(error)]


def _of_another_kind(value: Any) -> tuple[str, ...]:
    """Kinds of errors that say of a section that it is no name or number, of these that they are no section, and of a
    list both."""
    if isinstance(value, list):
        return NO_SECTION + NO_VALUE
    return NO_SECTION if isinstance(value, dict) else NO_VALUE


def _allowed(error: Mapping[str, Any]) -> list[str]:
    """Names or words of the values that an error of pydantic allows."""
    if error["type"] == "literal_error":
        return re.findall("'([^']*)'", error["ctx"]["expected"])
    if error["type"] in ALLOWED:
        return [ALLOWED[error["type"]].format(**error.get("ctx", {}))]
    start, _, words = error["msg"].partition("Input should be ")
    return [] if start else [words.partition(",")[0]]


def place(location: Sequence[Any]) -> str:
    """The path of a setting as one line of printable text: `decodes[0].beam`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{_printable(part)}" for part in location)
    return "".join(parts).removeprefix(".")


def _printable(part: Any) -> str:
    return part if isinstance(part, str) and part.isprintable() and len(part) <= 40 else short_repr(part)


def _written(error: Mapping[str, Any], raw: Any) -> list[str | int]:
    """The place of an error as `raw` has it: pydantic names the alternatives of unions that it tried, too.

    With None for `raw` it is pydantic's.
    """
    if raw is None:
        return list(error["loc"])
    is_missing = error["type"] == "missing"
    location = []
    for part in error["loc"][:-1] if is_missing else error["loc"]:
        if (isinstance(raw, Mapping) and part in raw) or (
            isinstance(raw, list | tuple) and isinstance(part, int) and part < len(raw)
        ):
            raw = raw[part]
            location.append(part)
    return [*location, error["loc"][-1]] if is_missing else location


def _entries(value: Any) -> Iterable[Any]:
    """The entries of a list or a section, or the value itself."""
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else (value,)
