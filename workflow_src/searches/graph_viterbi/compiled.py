"""Joint Viterbi search of words and path (Shao et al. 2022), for Numba.

`decoding/compiled.py` has the rules of such code.
"""

from __future__ import annotations

from math import inf

import numpy as np

from workflow_src.decoding.compiled import compiled


@compiled
def search(gains, transitions, longest, penalty):
    """The best score, and the vertices that put out words on its path, at most `longest`.

    gains (L,) log-probabilities of the vertices' words, log-probabilities of transitions (L, L) to later vertices.
    """
    last = len(gains) - 1
    most = min(longest + 1, last)
    # The best path to each vertex, by its number of moves.
    totals = np.full((most + 1, len(gains)), -inf)
    totals[0, 0] = 0.0
    best_score, best_moves = -inf, 0
    for moves in range(1, most + 1):
        following = totals[moves]
        # A path of so many moves ends at a vertex of this number or later. Compilers vectorise only an inner loop that
        # keeps nothing but the maximum.
        for i in range(moves - 1, last):
            before, row = totals[moves - 1, i], transitions[i]
            for j in range(i + 1, len(gains)):
                total = before + row[j]
                following[j] = total if total > following[j] else following[j]
        for j in range(len(gains)):
            following[j] += gains[j]
        score = following[last] / moves**penalty
        if score > best_score:
            best_score, best_moves = score, moves
    path = np.zeros(max(0, best_moves - 1), np.int64)
    vertex = last
    for moves in range(best_moves - 1, 0, -1):
        best = -inf
        came_from = 0
        for i in range(moves, vertex):
            total = totals[moves, i] + transitions[i, vertex]
            if total > best:
                best, came_from = total, i
        vertex = came_from
        path[moves - 1] = vertex
    return best_score, path
