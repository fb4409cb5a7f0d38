"""Reproducible measurements: `make bench`. Ratios within one run count; absolute figures belong to the machine."""
