"""`tokenwire coordinator`: serves HTTP in this process, or in several that share the port."""

import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

import click

from tokenwire.cli.api_options import api_options
from tokenwire.cli.failover_options import failover_options, failover_settings, liveness_settings
from tokenwire.cli.http_options import front_options, take_front_options
from tokenwire.cli.main import SectionedCommand, option
from tokenwire.cli.supervisor import supervise_coordinators
from tokenwire.coordinator.auth.admin_key import read_admin_key
from tokenwire.coordinator.auth.api_keys import access_settings
from tokenwire.coordinator.auth.secret_files import read_secret
from tokenwire.coordinator.fleet.admission.settings import admission_settings
from tokenwire.coordinator.history.settings import HistorySettings
from tokenwire.coordinator.http.protocol import ProtocolLimits
from tokenwire.coordinator.http.tls import HttpsSettings
from tokenwire.coordinator.parsing.loader import import_parsers
from tokenwire.coordinator.parsing.settings import ParserSettings
from tokenwire.coordinator.server import CoordinatorServer
from tokenwire.coordinator.settings import (
    ApiSettings,
    ControlSettings,
    CoordinatorSettings,
    ObservationSettings,
    TemplateSettings,
)
from tokenwire.errors import InvalidRequest
from tokenwire.logs import configure_logging
from tokenwire.paths import default_cache_dir
from tokenwire.peer_auth.settings import LINK_SECTION, SERVER_NAME, link_options, link_settings
from tokenwire.sockets import PublicPort, bind
from tokenwire.startup import Startup

log = logging.getLogger(__name__)


@click.command(cls=SectionedCommand)
@option(
    "--worker",
    "workers",
    multiple=True,
    required=True,
    help="Where workers are: HOST:PORT, unix:PATH, file:PATH (an address a line), dns:HOST:PORT or "
    "k8s:NAMESPACE/SERVICE:PORT; http://HOST:PORT is a stock vLLM server. Repeat for more.",
)
@option("--host", default="127.0.0.1", help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), default=8000, help="Port to listen on; 0: any.")
@option("--processes", type=click.IntRange(1, 256), default=1, help="Processes that share the port.")
@option(
    "--tokenizer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory with tokenizer.json. [default: ask the worker]",
)
@option(
    "--http-worker-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the API key of workers at http://; or set TOKENWIRE_HTTP_WORKER_KEY.",
)
@option("--cache-dir", type=click.Path(path_type=Path), help="Where tokenizers of workers are kept.")
@option(
    "--expect-model",
    "expected_models",
    multiple=True,
    help="Model that is listed, and for which requests wait, before its first worker has come. Repeat for more.",
)
@option("--model-linger", type=float, default=300.0, help="Seconds that a model stays known without any worker.")
@option("--max-body-mb", type=float, default=32.0, help="Largest request body.")
@option("--drain-timeout", type=float, default=30.0, help="Seconds that replies may run on after SIGTERM.")
@option(
    "--drain-delay",
    type=click.FloatRange(0),
    default=0.0,
    help="Seconds to go on taking requests after SIGTERM while /health answers 503, for load balancers to notice.",
)
@option("--stall-timeout", type=float, default=60.0, help="Seconds after which a client that reads nothing is cut off.")
@option(
    "--link-server-name",
    section=LINK_SECTION,
    default=SERVER_NAME,
    help="Name that the certificates of workers carry.",
)
@link_options
@failover_options
@front_options
@api_options
@click.option("--listen-fd", type=int, hidden=True)
@click.option("--ready-fd", type=int, hidden=True)
@click.option("--siblings-dir", type=click.Path(path_type=Path), hidden=True)
def command(
    workers: tuple[str, ...],
    host: str,
    port: int,
    processes: int,
    tokenizer: Path | None,
    http_worker_key_file: Path | None,
    cache_dir: Path | None,
    expected_models: tuple[str, ...],
    model_linger: float,
    max_body_mb: float,
    drain_timeout: float,
    drain_delay: float,
    stall_timeout: float,
    link_server_name: str,
    listen_fd: int | None,
    ready_fd: int | None,
    siblings_dir: Path | None,
    **api: Any,
) -> None:
    """Run the text half: OpenAI's HTTP in front, workers behind."""
    configure_logging("coordinator", api["log_format"], api["log_level"])
    settings = CoordinatorSettings(
        workers=workers,
        link=link_settings(api, link_server_name),
        **_front_settings(api),
        template=_template_settings(api),
        parsers=_parser_settings(api),
        api=_api_settings(api),
        control=_control_settings(api),
        access=access_settings(api["api_keys_file"], os.environ),
        admission=admission_settings(api),
        max_backlog_bytes=int(api["max_backlog_mb"] * 1024 * 1024),
        history=_history_settings(api),
        routing=api["routing"],
        tokenizer=tokenizer,
        stock_key=read_secret(
            "key of HTTP workers",
            http_worker_key_file,
            "--http-worker-key-file",
            os.environ,
            "TOKENWIRE_HTTP_WORKER_KEY",
        ),
        cache_dir=cache_dir or default_cache_dir(),
        expected_models=expected_models,
        model_linger_s=model_linger,
        max_body_bytes=int(max_body_mb * 1024 * 1024),
        drain_timeout_s=drain_timeout,
        drain_delay_s=drain_delay,
        stall_timeout_s=stall_timeout,
        failover=failover_settings(api),
        liveness=liveness_settings(api),
        siblings_dir=siblings_dir,
        observation=ObservationSettings(not api["no_request_log"], api["log_prompts"], api["otlp_traces_endpoint"]),
    )
    if settings.parsers.parses:
        log.info("loading parsers; this takes some seconds")
        import_parsers(settings.parsers)
    if listen_fd is not None:
        CoordinatorServer(settings, socket.socket(fileno=listen_fd), ready_fd).run_bound()
    elif processes == 1:
        CoordinatorServer(settings, bind(host, port)).run_bound()
    else:
        front = PublicPort(host, port, settings.https.scheme, settings.status_page)
        sys.exit(supervise_coordinators(sys.argv[1:], front, Startup(processes)))


def _front_settings(options: dict[str, Any]) -> dict[str, Any]:
    front = take_front_options(options)
    https = {name.removeprefix("ssl_"): value for name, value in front.items() if name.startswith("ssl_")}
    return {
        "https": HttpsSettings(**https),
        "reading": ProtocolLimits(int(front["max_head_kb"] * 1024), front["head_timeout"]),
        "keep_alive_timeout_s": front["keep_alive_timeout"],
        "status_page": not front["no_status_page"],
        "allowed_hosts": tuple(name.lower() for name in front["allowed_host"]),
    }


def _api_settings(api: dict[str, Any]) -> ApiSettings:
    return ApiSettings(
        prompt_tokens_details=api["enable_prompt_tokens_details"],
        tokens_as_token_ids=api["return_tokens_as_token_ids"],
        force_include_usage=api["enable_force_include_usage"],
        exclude_tools_when_tool_choice_none=api["exclude_tools_when_tool_choice_none"],
        render_route=api["enable_render_route"],
        kv_transfer_params=api["allow_kv_transfer_params"],
        token_history=api["token_history"],
        abort_all=api["enable_rl"],
        debug_headers=api["enable_debug_headers"],
    )


def _control_settings(api: dict[str, Any]) -> ControlSettings:
    return ControlSettings(
        rl_routes=api["enable_rl"],
        lora_routes=api["enable_lora_routes"],
        admin_key=read_admin_key(api["admin_key_file"], os.environ),
        timeout_s=api["control_timeout"],
        stale_weights=api["allow_stale_weights"],
    )


def _history_settings(api: dict[str, Any]) -> HistorySettings:
    path, flag = api["history_store_password_file"], "--history-store-password-file"
    return HistorySettings(
        max_bytes=int(api["history_mb"] * 1024 * 1024),
        ttl_s=api["history_ttl"],
        store_url=api["history_store"],
        store_password=read_secret(
            "password of the history store", path, flag, os.environ, "TOKENWIRE_HISTORY_STORE_PASSWORD"
        ),
    )


def _template_settings(api: dict[str, Any]) -> TemplateSettings:
    return TemplateSettings(
        source=_read_template(api["chat_template"]),
        content_format=api["chat_template_content_format"],
        default_kwargs=_json_object(api["default_chat_template_kwargs"]),
        trust_request=api["trust_request_chat_template"],
    )


def _parser_settings(api: dict[str, Any]) -> ParserSettings:
    names = ("tool_call_parser", "reasoning_parser", "tool_parser_plugin", "reasoning_parser_plugin")
    return ParserSettings(
        **{name: api[name] for name in names},
        enable_auto_tool_choice=api["enable_auto_tool_choice"],
        tool_strict_level=api["tool_strict_level"],
        default_chat_template_kwargs=_json_object(api["default_chat_template_kwargs"]),
    )


def _json_object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidRequest(f"--default-chat-template-kwargs is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest(f"--default-chat-template-kwargs must be a JSON object, got {text}")
    return value


def _read_template(value: str | None) -> str | None:
    """Return a template given as a file or as its text. Raises InvalidRequest."""
    if value is None:
        return None
    if "{" in value:
        return value
    try:
        return Path(value).read_text()
    except OSError as error:
        raise InvalidRequest(f"--chat-template: cannot read {value}: {error.strerror}") from error
