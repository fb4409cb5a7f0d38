"""Settings of media in a worker."""

from dataclasses import dataclass

from tokenwire.options import Bounds, Option, Unit, check_bounds, option
from tokenwire.process.shared_options import MAX_MEDIA_PIXELS, MAX_MEDIA_PIXELS_DEFAULT


@dataclass(frozen=True, slots=True)
class MediaMemory:
    """Bounds of what a worker keeps of media and uses for them."""

    memory_bytes: int = option(
        256 * 2**20,
        Option(
            "--received-media-mb",
            "Memory for pictures that coordinators have sent; what is made of them has vLLM's --mm-processor-cache-gb.",
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )
    max_pixels: int = option(MAX_MEDIA_PIXELS_DEFAULT, MAX_MEDIA_PIXELS)
    """What decodes a picture checks it again: a coordinator sees its headers alone."""
    processes: int | None = option(
        None,
        Option(
            "--media-processes",
            "Processes that decode and process pictures, for models that take some.",
            bounds=Bounds(above=0),
            default_text="half of the CPUs, 8 at most",
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
