"""Scores of global alignments with linear gaps (Needleman and Wunsch 1970), a row at a time."""

from __future__ import annotations

import numpy as np

from aaco.core.arrays import Reals

GAP = 1.0  # cost of an element without counterpart


def prefix_scores(pairs: Reals) -> Reals:
    """Return the best score of aligning each prefix of the rows with each prefix of the columns, shape (n+1, m+1).

    pairs: gain of matching each row with each column, shape (n, m). An element without counterpart costs GAP.
    """
    rows, columns = pairs.shape
    slope = GAP * np.arange(columns + 1)
    scores = np.empty((rows + 1, columns + 1))
    scores[0] = -slope
    for row in range(rows):
        best = scores[row] - GAP
        np.maximum(best[1:], scores[row, :-1] + pairs[row], out=best[1:])
        scores[row + 1] = np.maximum.accumulate(best + slope) - slope
    return scores


def suffix_scores(pairs: Reals) -> Reals:
    """Return the best score of aligning each suffix of the rows with each suffix of the columns, shape (n+1, m+1)."""
    return prefix_scores(pairs[::-1, ::-1])[::-1, ::-1]
