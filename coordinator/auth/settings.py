"""Who may use the admin routes, and which of them there are."""

from dataclasses import dataclass

from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.options import Bounds, Option, Section, check_bounds, option


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Who may steer workers over HTTP, and how long that may take."""

    admin_key: AdminKey | None = option(
        None,
        Option(
            "--admin-key-file",
            "File with the key for admin routes; or set TOKENWIRE_ADMIN_KEY.",
            Section.ADMIN,
            path="existing file",
            contents="admin key",
            parse=AdminKey,
        ),
    )
    """None: whoever reaches these routes may use them."""
    timeout_s: float = option(
        600.0,
        Option(
            "--control-timeout",
            "Seconds that a worker may take for an admin operation.",
            Section.ADMIN,
            bounds=Bounds(above=0),
        ),
    )
    rl_routes: bool = option(
        False,
        Option(
            "--enable-rl",
            "Serve admin routes for RL trainers: pause, weights, adapters. Set an admin key.",
            Section.ADMIN,
        ),
    )
    lora_routes: bool = option(
        False,
        Option(
            "--enable-lora-routes",
            "Serve admin routes that load LoRA adapters (vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING).",
            Section.ADMIN,
        ),
    )
    stale_weights: bool = option(
        False,
        Option("--allow-stale-weights", "Route requests also to workers that missed a weight update.", Section.ADMIN),
    )

    def __post_init__(self) -> None:
        check_bounds(self)
