"""Errors of input: fields for the subject, the problem and the fix, and the sentences that are built from them.

seeds is 'many'; allowed: a whole number.
systems.score.base is 'lvn'; allowed: lvm, teacher; did you mean "lvm"?
my.de, line 3, is not UTF-8; convert the file.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# The longest value that a sentence shows.
SHOWN = 100
# The value of a setting that has none; the same object after pickling.
ABSENT: Any = ...


def short_repr(value: Any) -> str:
    """A value as Python writes it, and not longer than a line."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 4] + " ..."


def reason_of(failure: BaseException) -> str:
    """What an exception says, on one line and without a full stop; its class where it says nothing."""
    return " ".join(str(failure).split()).removesuffix(".") or type(failure).__name__


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that is most like `name`, or None where none is."""
    return next(iter(difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.6)), None)


def did_you_mean(name: str) -> str:
    return f'did you mean "{name}"?'


class InputError(ValueError):
    """Input that cannot be used: `SUBJECT PROBLEM; FIX.`"""

    def __init__(self, subject: str | Path, problem: str, fix: str = "") -> None:
        self.subject = str(subject)
        self.problem = problem
        self.fix = fix
        sentence = "; ".join(filter(None, [f"{subject} {problem}".strip(), fix]))
        super().__init__(sentence if sentence.endswith("?") else f"{sentence}.")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sentence and the fields: classes differ in their arguments."""
        return _with_sentence, (type(self), str(self)), vars(self)


def _with_sentence(kind: type[InputError], sentence: str) -> InputError:
    return kind.__new__(kind, sentence)


class TimingFailed(RuntimeError):
    """A process that measures speed failed: the row and the batch that it was at, where they are known."""

    def __init__(
        self, engine: str, reason: str, trace: str = "", row: tuple[str, str] | None = None, batch: int | None = None
    ) -> None:
        self.engine = engine
        self.reason = reason
        self.trace = trace
        self.row = row
        self.batch = batch
        place = [engine, " ".join(row) if row else "", f"batch {batch:,}" if batch else ""]
        super().__init__(f"{', '.join(filter(None, place))}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.engine, self.reason, self.trace, self.row, self.batch)


class DeclarationError(InputError):
    """A declaration that cannot be used, or a member that is not declared."""


class ArtifactError(InputError):
    """A file that cannot be used: missing, damaged, or made for something else."""

    def __init__(self, path: str | Path, problem: str, fix: str = "", line: int | None = None) -> None:
        super().__init__(path if line is None else f"{path}, line {line},", problem, fix)
        self.path, self.line = str(path), line


# The problem of a file that is not there.
MISSING = "does not exist"


@contextlib.contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turns errors of the system while `path` is opened or read into one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise ArtifactError(path, MISSING) from None
    except IsADirectoryError:
        raise ArtifactError(path, "is a folder", "name a file") from None
    except OSError as failure:
        raise ArtifactError(path, f"cannot be read ({failure.strerror})") from None


class OutOfMemory(InputError):
    """Too little memory for a setting, which the fix names: `out of memory PROBLEM; FIX.`"""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__("out of memory", problem, fix)


class ConfigError(InputError):
    """A setting, an option or an argument that cannot be used: `SETTING is VALUE: PROBLEM; allowed: ALLOWED; HINT.`

    Any part but the setting may be left out. `allowed` has names, or describes values, as "above 0" does; `nearest` is
    the name that is most similar to the value, unless `nearest_name` says which one was probably meant.
    """

    def __init__(
        self,
        setting: str,
        value: Any = ABSENT,
        *,
        problem: str = "",
        allowed: str | Iterable[str | int] = "",
        hint: str = "",
        nearest_name: str | None = None,
    ) -> None:
        self.setting = setting
        self.value = value
        self.hint = hint
        names = [] if isinstance(allowed, str) else sorted(map(str, allowed))
        self.allowed = allowed if isinstance(allowed, str) else tuple(names)
        name = setting.rpartition(".")[2] if value is ABSENT else value
        self.nearest = nearest_name or (nearest(name, names) if isinstance(name, str) else None)
        choices = self.allowed if isinstance(self.allowed, str) else ", ".join(names) or "none"
        fixes = [f"allowed: {choices}" if choices else "", hint, did_you_mean(self.nearest) if self.nearest else ""]
        subject = setting if value is ABSENT else f"{setting} is {short_repr(value)}"
        super().__init__(f"{subject}:" if problem else subject, problem, "; ".join(filter(None, fixes)))

    def within(self, section: str, value: Any = ABSENT) -> ConfigError:
        """The same error of a setting in a section. An error without a setting is that of the section's `value`."""
        return ConfigError(
            ".".join(filter(None, [section, self.setting])),
            value if self.value is ABSENT and not self.setting else self.value,
            problem=self.problem,
            allowed=self.allowed,
            hint=self.hint,
            nearest_name=self.nearest,
        )
