"""The sets of inputs on which a change must compute the same, and outputs of a batch made of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from aaco.tracelake.outputs import Output

NOT_VARIED = ("the session's inputs cannot be varied, so nothing would show what the changed model computes of others: "
              "aaco run with inputs of more than one value")
COUNT = 3  # the session's own, and as many more with their elements permuted


def permuted(inputs: Mapping[str, np.ndarray], number: int) -> dict[str, np.ndarray]:
    """Return a set of inputs: number 0 as they are, else with the elements of each array in another order.

    So every value stays one that the model takes. Text stays as it is.
    """
    if number == 0:
        return dict(inputs)
    rng = np.random.default_rng(number)
    return {name: array if array.dtype.kind in "UO" else rng.permutation(array.reshape(-1)).reshape(array.shape)
            for name, array in inputs.items()}


def varied(inputs: Mapping[str, np.ndarray]) -> bool:
    """Return whether other inputs can be made of these: moving all elements by one, two or three places changes some.

    Where that is not so, what was remembered of the session's own inputs looks right, and fast, for all the others.
    """
    arrays = [array for array in inputs.values() if array.dtype.kind not in "UO"]
    return all(any((np.roll(array, places) != array).any() for array in arrays) for places in (1, 2, 3))


def parts(larger: Mapping[str, np.ndarray], small: Mapping[str, np.ndarray],
          count: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield the inputs of each part of a larger batch; what does not grow with the batch is in each of them."""
    for part in range(count):
        yield {name: array if array.shape == small[name].shape else np.split(array, count)[part]
               for name, array in larger.items()}


def joined(parts: Sequence[Output]) -> Output:
    """Return the outputs of the parts of a batch as that of the batch."""
    first = parts[0]
    if not first.shape or any(part.values is None for part in parts):
        return first
    arrays = [part.values for part in parts if part.values is not None]
    return replace(first, shape=(first.shape[0] * len(parts), *first.shape[1:]), sha256=None,
                   elements=sum(part.elements for part in parts), values=np.concatenate(arrays))


def elements(expected: Sequence[Output], actual: Sequence[Output]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the elements of each output that both sides kept."""
    theirs = {output.name: output.values for output in actual}
    pairs = {output.name: (output.values, theirs.get(output.name)) for output in expected}
    return {name: (before, after) for name, (before, after) in pairs.items()
            if before is not None and after is not None and len(before) == len(after)}
