"""Reproducible measurements: `make bench`. Compare ratios within one run; absolute figures depend on the machine."""
