"""Text in the captions of all tables: the data and their checksum, the seeds, and the training of systems."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence

import pandas as pd

from workflow_src.evaluation.document import Beside, Block, Caption, Fold, Table
from workflow_src.registry import families
from workflow_src.spec import REFINER

SYSTEMS = "The table of systems has their parameters, updates, target tokens seen and training data."


def checksum(sums: dict[str, str] | None) -> str | None:
    """One SHA-256 for a corpus: that of the output of `sha256sum` for its files, sorted by name; None without files."""
    if not sums:
        return None
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode()).hexdigest()


def data(dataset: str, sums: dict[str, str] | None, seeds: Iterable[int]) -> str:
    """Dataset, the first digits of its checksum, and seeds."""
    digest = checksum(sums)
    distinct_seeds = sorted(set(seeds))
    named = f"{dataset}, SHA-256 {digest[:12]}…" if digest else f"{dataset}, checksum unknown"
    return f"{named}; seed{'s' * (len(distinct_seeds) > 1)} {', '.join(map(str, distinct_seeds))}."


def unequal(rows: pd.DataFrame) -> str:
    """A sentence where networks of rows.csv differ in their updates, or in target tokens by over 5 %; else empty."""
    systems = trained(rows)
    networks = systems[systems["family"].isin(name for name, family in families().items() if REFINER in family.traits)]
    tokens = networks["target_tokens"].dropna()
    unlike = len(tokens) > 0 and tokens.max() > 1.05 * tokens.min()
    if networks["updates"].nunique(dropna=False) < 2 and not unlike:
        return ""
    seeds = rows[rows["system"].isin(systems["system"])].groupby("system")["seed"].nunique()
    whose = " (figures of the first seed)" if (seeds > 1).any() else ""
    counts = networks[["system", "updates", "target_tokens"]].itertuples(index=False)
    words = [f"{name} {count(updates)} updates, {count(seen)} target tokens" for name, updates, seen in counts]
    return f"Networks were not trained equally long{whose}: {'; '.join(words)}."


def trained(rows: pd.DataFrame) -> pd.DataFrame:
    """The row of each trained system, with its first seed."""
    trained = rows.dropna(subset=["parameters", "updates", "target_tokens"], how="all")
    return trained.drop_duplicates("system")


def count(value: int | None) -> str:
    """A count, which may be unknown."""
    return "–" if value is None or pd.isna(value) else f"{value:,}"


def carry(blocks: Sequence[Block], carried: Caption) -> list[Block]:
    """The blocks with what every table carries in its caption; of tables beside each other, in the first one's."""
    return [_carry(block, carried) for block in blocks]


def _carry(block: Block, carried: Caption) -> Block:
    match block:
        case Table():
            line, notes = f"{block.caption.line} {carried.line}".strip(), {**block.caption.notes, **carried.notes}
            return dataclasses.replace(block, caption=Caption(line, notes))
        case Fold():
            return dataclasses.replace(block, blocks=carry(block.blocks, carried))
        case Beside():
            first, *others = block.blocks
            return dataclasses.replace(block, blocks=[_carry(first, carried), *others])
        case _:
            return block
