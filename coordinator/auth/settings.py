"""Settings of the admin routes: which are enabled, and their key."""

from dataclasses import dataclass
from pathlib import Path

from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.errors import InvalidRequest
from tokenwire.options import Bounds, Option, Section, check_bounds, option
from tokenwire.peer_auth.operation_keys import OPERATIONS_KEY_FLAG, OPERATIONS_KEY_VARIABLE, OperationKeys


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The admin routes' settings."""

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
    """None: the routes need no key."""
    operations_key_file: Path | None = option(
        None,
        Option(
            OPERATIONS_KEY_FLAG,
            "File with keys that only coordinators have, one per line: the first signs admin operations, and only "
            f"operations signed by one of them are followed; or set {OPERATIONS_KEY_VARIABLE}.",
            Section.ADMIN,
            path="file",
        ),
    )
    operations_keys: OperationKeys | None = option(
        None,
        Option(
            "",
            f"Keys that sign admin operations, where there is no {OPERATIONS_KEY_FLAG}.",
            Section.ADMIN,
            variable=OPERATIONS_KEY_VARIABLE,
            parse=OperationKeys,
        ),
    )
    timeout_s: float = option(
        600.0,
        Option(
            "--admin-timeout",
            "Timeout in seconds of an admin operation on a worker.",
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
        if self.operations_key_file is not None and self.operations_keys is not None:
            raise InvalidRequest(f"{OPERATIONS_KEY_FLAG} and {OPERATIONS_KEY_VARIABLE} are both set: keep one of them")
