"""Settings of media in requests: where they may come from, and their bounds."""

from dataclasses import dataclass
from ipaddress import ip_network

from tokenwire.errors import InvalidRequest
from tokenwire.options import Bounds, Option, Section, Unit, check_bounds, option
from tokenwire.process.shared_options import MAX_MEDIA_PIXELS, MAX_MEDIA_PIXELS_DEFAULT


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value.strip().lower().rstrip(".") for value in values)


def _networks(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        try:
            ip_network(value)
        except ValueError as error:
            raise InvalidRequest(f"--allowed-media-network: {error}") from error
    return values


@dataclass(frozen=True, slots=True)
class MediaSettings:
    """Fetching and keeping of pictures."""

    allowed_domains: tuple[str, ...] = option(
        (),
        Option(
            "--allowed-media-domains",
            "Host that pictures may be fetched from; repeat for more. Redirects, too, lead only there.",
            Section.MEDIA,
            default_text="any",
            parse=_hosts,
        ),
    )
    allowed_networks: tuple[str, ...] = option(
        (),
        Option(
            "--allowed-media-network",
            "Network, such as 10.1.0.0/16, that pictures may be fetched from though it is not public; repeat for more.",
            Section.MEDIA,
            parse=_networks,
        ),
    )
    allow_http: bool = option(
        False, Option("--allow-http-media", "Fetch pictures from http: URLs, too, without encryption.", Section.MEDIA)
    )
    fetch: bool = option(
        True,
        Option(
            "--fetch-media/--no-fetch-media",
            "Fetch pictures from URLs. Those in data: URLs need no fetch.",
            Section.MEDIA,
        ),
    )
    max_bytes: int = option(
        20 * 2**20,
        Option("--max-media-mb", "Maximum size of a picture.", Section.MEDIA, unit=Unit.MiB, bounds=Bounds(above=0)),
    )
    max_pixels: int = option(MAX_MEDIA_PIXELS_DEFAULT, MAX_MEDIA_PIXELS)
    memory_bytes: int = option(
        512 * 2**20,
        Option(
            "--media-memory-mb",
            "Memory for pictures of requests and for those that later ones may name again. Requests beyond it get 429, "
            "and so do those of a client that would have more than three times what is left.",
            Section.MEDIA,
            unit=Unit.MiB,
            bounds=Bounds(above=0),
        ),
    )
    fetch_timeout_s: float = option(
        5.0,
        Option(
            "--media-fetch-timeout",
            "Seconds for fetching a picture, with redirects.",
            Section.MEDIA,
            bounds=Bounds(above=0),
        ),
    )
    max_fetches: int = option(
        32,
        Option("--max-media-fetches", "Maximum of pictures fetched at a time.", Section.MEDIA, bounds=Bounds(above=0)),
    )
    tenant_fetches: int = option(
        8,
        Option(
            "--max-media-fetches-per-tenant",
            "Maximum of pictures fetched at a time for one tenant; tenants take turns.",
            Section.MEDIA,
            bounds=Bounds(above=0),
        ),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
