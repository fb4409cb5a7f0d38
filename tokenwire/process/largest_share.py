"""Finds who has about most of a memory that clients share, however many they are."""

from collections import OrderedDict


class LargestShare:
    """The sizes of shares, in powers of two: of those in the highest one, the first that came there is the largest."""

    def __init__(self) -> None:
        self._power_of: dict[str, int] = {}
        self._by_power: dict[int, OrderedDict[str, None]] = {}
        """Not dicts, whose first key is found in a time that grows with how many were removed before it."""

    def put(self, share: str, size: int) -> None:
        """Note the size of a share; without a size there is none."""
        power = size.bit_length()
        known = self._power_of.get(share, 0)
        if power == known:
            return
        if known:
            shares = self._by_power[known]
            del shares[share], self._power_of[share]
            if not shares:
                del self._by_power[known]
        if power:
            self._power_of[share] = power
            self._by_power.setdefault(power, OrderedDict())[share] = None

    def find(self) -> str:
        """Return the share of which no other one has twice the size. Raises ValueError if there is none."""
        return next(iter(self._by_power[max(self._by_power)]))
