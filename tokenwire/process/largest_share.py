"""Finds who has most of a memory that clients share, or about most if they are many, in a constant time."""

from collections import OrderedDict
from itertools import islice

_COMPARED = 16


class LargestShare:
    """The sizes of shares, by powers of two: some of those in the highest one are compared."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._by_power: dict[int, OrderedDict[str, None]] = {}
        """Not dicts, whose first key is found in a time that grows with how many were removed before it."""

    def put(self, share: str, size: int) -> None:
        """Note the size of a share; without a size there is none."""
        known, power = self._sizes.pop(share, 0).bit_length(), size.bit_length()
        if size:
            self._sizes[share] = size
        if power == known:
            return
        if known:
            shares = self._by_power[known]
            del shares[share]
            if not shares:
                del self._by_power[known]
        if power:
            self._by_power.setdefault(power, OrderedDict())[share] = None

    def find(self) -> str:
        """Return the share of which no other one has twice the size. Raises ValueError if there is none."""
        highest = self._by_power[max(self._by_power)]
        return max(islice(highest, _COMPARED), key=self._sizes.__getitem__)
