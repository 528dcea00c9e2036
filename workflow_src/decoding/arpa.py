"""N-gram models as text in ARPA's format, which SRILM, KenLM, irstlm and others read and write.

A line of a file is log10 p(word | context), the n-gram, and log10 of its back-off weight as a context. The probability
of an n-gram that is not in the file is p(word | h) = backoff(h) p(word | h'), where h' is h without its first word. A
context that is not in the file has the weight 1.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from workflow_src.decoding.ngram import NgramModel, Table
from workflow_src.errors import ArtifactError, short_repr
from workflow_src.records.atomic import atomic
from workflow_src.types import BOS, EOS, PAD, UNK

LOG10 = math.log(10.0)
# log10 p of words that are not in a file without <unk>, as in KenLM; the least probability.
ABSENT = -100.0
# What rounding may add to log10 p of a probability of 1.
MOST_ROUNDING = 1e-4
# log10 p of <s> in files, which no search reads.
START = -99.0

Gram = tuple[int, ...]
# log p and log of the back-off weight, in nats, by n-gram.
Entries = dict[Gram, tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class ArpaFile:
    """A model from a file.

    left_out  number of n-grams with a word outside of the vocabulary, which are left out: no search can use them
    absent    ids of words without a probability in a file without <unk>: they have the probability 10^-100
    """

    model: NgramModel
    left_out: int
    absent: tuple[int, ...]


def write_arpa(model: NgramModel, path: Path, pieces: Sequence[str]) -> None:
    """Write a model as ARPA text, gzipped where the name ends in .gz; `pieces[id]` is the word of an id.

    Nine digits keep numbers in single precision as they are.
    """
    with atomic(path, "wb") as file:
        # Without the time, so that the same model gives the same bytes.
        raw = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) if path.suffix == ".gz" else file
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
        text.writelines(arpa_lines(model, pieces))
        text.flush()
        text.detach()
        if raw is not file:
            raw.close()


def arpa_rows(model: NgramModel) -> list[Sequence[int]]:
    """The rows of each table of a model that an ARPA file has: all but padding, which is no word."""
    return [[i for i in range(model.size) if i != PAD], *(range(len(table)) for table in model.tables[1:])]


def arpa_lines(model: NgramModel, pieces: Sequence[str]) -> Iterator[str]:
    """The ARPA text of a model, in parts that end with a line's end."""
    names = [*pieces[:BOS], "<s>", "</s>", "<unk>", *pieces[UNK + 1 :]]
    rows_by_order = arpa_rows(model)
    yield "\\data\\\n"
    yield from (f"ngram {n}={len(rows)}\n" for n, rows in enumerate(rows_by_order, 1))
    texts: list[str] = []
    for n, table in enumerate(model.tables):
        is_longest = n + 1 == model.order
        yield f"\n\\{n + 1}-grams:\n"
        words = [names[word] for word in table.words.tolist()]
        texts = words if n == 0 else [f"{texts[c]} {w}" for c, w in zip(table.context.tolist(), words, strict=True)]
        values, weights = (table.logp / LOG10).tolist(), (table.backoff / LOG10).tolist()
        if n == 0:
            values[BOS] = START
        for row in rows_by_order[n]:
            ending = "" if is_longest else f"\t{weights[row]:.9g}"
            yield f"{values[row]:.9g}\t{texts[row]}{ending}\n"
    yield "\n\\end\\\n"


def read_arpa(path: Path, ids: Mapping[str, int], size: int) -> ArpaFile:
    """A model from ARPA text, also gzipped, with the file's own probabilities.

    `ids` are ids below `size` by word, without <s>, </s> and <unk>. Words that are not in the file share the
    probability of <unk>. Raises ArtifactError for a file of another form.
    """
    ids_of_words = {**ids, "<s>": BOS, "</s>": EOS, "<unk>": UNK, "<UNK>": UNK}
    orders, left_out = _entries(path, ids_of_words)
    if not orders or not orders[0]:
        raise ArtifactError(path, "is no language model in ARPA format: it has no 1-grams")
    unigrams = orders[0]
    lacking = tuple(i for i in range(UNK + 1, size) if (i,) not in unigrams)
    absent = () if (UNK,) in unigrams else lacking
    shared = unigrams.get((UNK,), (ABSENT * LOG10, 0.0))[0]
    # Every id has a row.
    orders[0] = {(i,): unigrams.get((i,), (START * LOG10 if i in (PAD, BOS) else shared, 0.0)) for i in range(size)}
    _complete(orders)
    return ArpaFile(NgramModel(_tables(orders)), left_out, absent)


def _complete(orders: list[Entries]) -> None:
    """Add the prefixes and suffixes of n-grams that a pruned file lacks, so that every context and suffix has a row.

    An added row has log p by back-off and the back-off weight 1, as an n-gram that is not in a file: no probability
    changes.
    """
    added: list[set[Gram]] = [set() for _ in orders]
    for n in range(len(orders) - 1, 1, -1):
        for gram in (*orders[n], *added[n]):
            added[n - 1].update(shorter for shorter in (gram[:-1], gram[1:]) if shorter not in orders[n - 1])
    for n, grams in enumerate(added):
        below = orders[n - 1]
        orders[n].update({gram: (below[gram[:-1]][1] + below[gram[1:]][0], 0.0) for gram in grams})


def _tables(orders: Sequence[Entries]) -> list[Table]:
    tables: list[Table] = []
    below: dict[Gram, int] = {(): 0}
    for entries in orders:
        keys = sorted(entries, key=lambda gram: (below[gram[:-1]], gram[-1]))
        values = np.array([entries[gram] for gram in keys]).reshape(-1, 2)
        tables.append(
            Table(
                np.array([below[gram[:-1]] for gram in keys], dtype=np.int64),
                np.array([gram[-1] for gram in keys], dtype=np.int64),
                values[:, 0],
                values[:, 1],
                np.array([below[gram[1:]] for gram in keys], dtype=np.int64),
            )
        )
        below = {gram: row for row, gram in enumerate(keys)}
    return tables


def _entries(path: Path, ids_of_words: dict[str, int]) -> tuple[list[Entries], int]:
    """The entries of each order, and the number of n-grams that were left out."""
    orders: list[Entries] = []
    left_out, ended = 0, False
    # Numbers of n-grams of each order: under \data\, and in the file.
    declared: dict[int, int] = {}
    counted: dict[int, int] = {}
    for number, line in _lines(path):
        if ended:
            # Read to the end of the file: a gzipped one has its checksum there.
            continue
        if line.startswith("\\"):
            head = line[1:].partition("-grams:")[0]
            if line.endswith("-grams:") and head.isdecimal():
                if int(head) != len(orders) + 1:
                    raise ArtifactError(path, f"has {head}-grams too early", "order them by length", line=number)
                orders.append({})
            elif line == "\\end\\":
                ended = True
            continue
        if not orders or not line:
            if count := re.fullmatch(r"ngram\s+(\d+)\s*=\s*(\d+)", line):
                declared[int(count[1])] = int(count[2])
            continue
        counted[len(orders)] = counted.get(len(orders), 0) + 1
        words, value, weight = _entry(line, len(orders), path, number)
        if all(word in ids_of_words for word in words):
            orders[-1][tuple(ids_of_words[word] for word in words)] = (max(value, ABSENT) * LOG10, weight * LOG10)
        else:
            left_out += 1
    if orders and orders[0]:
        _check_whole(path, declared, counted, ended)
    return orders, left_out


def _entry(line: str, order: int, path: Path, number: int) -> tuple[list[str], float, float]:
    """Words, log10 p and log10 of the back-off weight of a line with its number in the file."""
    # Words may hold any other white space.
    log_probability, *fields = re.split(r"[ \t]+", line)
    words, weights = fields[:order], fields[order:]
    try:
        value, weight = float(log_probability), float(weights[0]) if weights else 0.0
    except ValueError:
        value = weight = math.nan
    # A probability may be 0, and is not above 1 but for rounding.
    if value > MOST_ROUNDING:
        raise ArtifactError(
            path,
            f"has the probability 10^{log_probability} of {short_repr(' '.join(words))}, which is above 1",
            "write the file again",
            line=number,
        )
    wrong = math.isnan(value) or math.isnan(weight)
    if len(words) != order or len(weights) > 1 or wrong:
        raise ArtifactError(path, f'has "{line}", which is no {order}-gram', "write the file again", line=number)
    if math.isinf(weight):
        raise ArtifactError(
            path,
            f"has the back-off weight {weights[0]} of {short_repr(' '.join(words))}, which is not finite",
            "write the file again",
            line=number,
        )
    return words, min(value, 0.0), weight


def _check_whole(path: Path, declared: dict[int, int], counted: dict[int, int], ended: bool) -> None:
    """Raises ArtifactError for a file without an end mark, or with other numbers of n-grams than it declares."""
    if not ended:
        raise ArtifactError(path, "has no \\end\\: it was cut off", "copy or write it again")
    for order in sorted(declared.keys() | counted.keys()):
        if declared.get(order, 0) != counted.get(order, 0):
            raise ArtifactError(
                path,
                f"says under \\data\\ that it has {declared.get(order, 0):,} {order}-grams, and has "
                f"{counted.get(order, 0):,}: it was cut off or changed",
                "copy or write it again",
            )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text, also gzipped, without white space at their ends.

    Raises ArtifactError for text that is not UTF-8, and for a gzipped file that is damaged or cut off.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        try:
            for number, line in enumerate(file, 1):
                yield number, line.strip(" \t\r\n")
        except UnicodeDecodeError:
            raise ArtifactError(path, "is no text in UTF-8, and so no language model in ARPA format") from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise ArtifactError(path, "is no whole gzipped file", "copy or write it again") from None
