"""Options of the front door, which `tokenwire serve` hands on to the coordinator. Those of TLS have vLLM's names."""

from pathlib import Path
from typing import Any

import click

from tokenwire.cli.options import OptionGroup

_FILE = click.Path(dir_okay=False, path_type=Path)
_VALUES: dict[str, dict[str, Any]] = {
    "ssl_certfile": {"type": _FILE, "help": "Certificate for HTTPS, with those between it and its authority."},
    "ssl_keyfile": {"type": _FILE, "help": "Its key. [default: in the same file]"},
    "ssl_ca_certs": {"type": _FILE, "help": "Authorities of clients' certificates."},
    "ssl_cert_reqs": {
        "type": click.IntRange(0, 2),
        "default": 0,
        "help": "Whether clients show a certificate: 0 no, 1 if they have one, 2 always.",
    },
    "allowed_host": {
        "multiple": True,
        "help": "Name by which clients may know the server, beside localhost and addresses; repeat for more. "
        "[default: no other on a loopback address, else any]",
    },
    "max_head_kb": {"type": click.FloatRange(min=1), "default": 64.0, "help": "Largest request line with headers."},
    "head_timeout": {
        "type": click.FloatRange(min=0, min_open=True),
        "default": 30.0,
        "help": "Seconds in which a request's headers must have come.",
    },
    "keep_alive_timeout": {
        "type": click.IntRange(min=1),
        "default": 5,
        "help": "Seconds that an idle connection is kept; more than a balancer in front keeps it.",
    },
}

_FLAGS = {"no_status_page": "Serve no status page at / and no /status.json."}

_GROUP = OptionGroup("PublicPort door", _VALUES, _FLAGS)
front_options = _GROUP.add
front_arguments = _GROUP.arguments
take_front_options = _GROUP.take
