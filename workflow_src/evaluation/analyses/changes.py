"""Which words differ between two versions of a sentence, by longest common subsequence."""

from __future__ import annotations


def changed_words(before: list[str], after: list[str]) -> list[bool]:
    """For each word of `after`, whether it is new: outside a longest common subsequence with `before`.

    Among equally long subsequences the leftmost matches in `after` count as kept, so the result is deterministic.
    """
    rows, columns = len(before), len(after)
    # longest[i][j]: length of the longest common subsequence of before[i:] and after[j:].
    longest = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            longest[i][j] = (
                longest[i + 1][j + 1] + 1 if before[i] == after[j] else max(longest[i + 1][j], longest[i][j + 1])
            )
    changed = [True] * columns
    i = j = 0
    while i < rows and j < columns:
        if before[i] == after[j]:
            changed[j] = False
            i, j = i + 1, j + 1
        elif longest[i + 1][j] >= longest[i][j + 1]:
            i += 1
        else:
            j += 1
    return changed


def count_changes(before: str, after: str) -> int:
    """Words added to or missing from `after` against `before`, whichever are more: 0 only for the same words."""
    old, new = before.split(), after.split()
    added = sum(changed_words(old, new))
    return max(added, len(old) - (len(new) - added))


def pick(traces: list[list[list[str]]], number: int) -> list[int]:
    """Indices of the `number` sentences whose words change most between step 0 and the last, summed over searches.

    `traces[search][sentence][step]` are texts. Ties go to the smaller index; indices come back in rank order.
    """
    if not traces:
        return []
    changes = [
        sum(count_changes(search[index][0], search[index][-1]) for search in traces) for index in range(len(traces[0]))
    ]
    return sorted(range(len(changes)), key=lambda index: (-changes[index], index))[:number]
