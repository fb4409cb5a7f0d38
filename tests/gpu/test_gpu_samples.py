"""Samples of nvidia-smi."""

from gpu.gpu_samples import means_of


def test_lines_that_are_not_whole_do_not_count() -> None:
    """nvidia-smi is ended while it writes, and what it cannot read is no number."""
    table = "90, 400.5, 1980, 70000\n100, 500.5, 1980, 70000\n[N/A], 1, 1, 1\n55, 4"

    assert means_of(table) == {"gpu_busy_percent": 95, "power_w": 450.5, "clock_mhz": 1980, "memory_mib": 70000}
    assert means_of("No devices were found") == {}
