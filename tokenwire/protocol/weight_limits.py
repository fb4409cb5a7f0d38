"""Limits on the age of weights, by the versions that operations on a model have made of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WeightLimits:
    """How old the weights of a reply's tokens may be."""

    min_version: str | None = None
    """The label of the oldest version; None: any."""
    max_lag: int | None = None
    """How many newer versions the model may have; None: any number."""

    def over(self, defaults: "WeightLimits | None") -> "WeightLimits":
        """Return these limits, and those of the defaults where these have none."""
        if defaults is None:
            return self
        return WeightLimits(
            defaults.min_version if self.min_version is None else self.min_version,
            defaults.max_lag if self.max_lag is None else self.max_lag,
        )
