"""`tokenwire bench`: throughput and latency of any OpenAI-compatible server, as its clients see them."""

import asyncio
import json
import statistics
import time
from collections.abc import Sequence

import click

from tokenwire.cli import option
from tokenwire.errors import Unavailable
from tokenwire.load import StreamResult, http_request, stream_many


@click.command()
@option("--url", default="http://127.0.0.1:8000", help="The server.")
@option("--model", default="", help="Model name. [default: the server's first]")
@option("--concurrency", type=click.IntRange(1, 10_000), default=16, help="Streams at a time.")
@option("--requests", type=click.IntRange(1), help="Requests in all. [default: four per stream]")
@option("--max-tokens", type=click.IntRange(1), default=128, help="Tokens per reply.")
@option("--prompt", default="Tell me a long story about a lighthouse.", help="The user's message.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(
    url: str, model: str, concurrency: int, requests: int | None, max_tokens: int, prompt: str, as_json: bool
) -> None:
    """Measure an OpenAI-compatible server: streamed chat completions, so many at a time."""
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"model": model} if model else {}),
    }
    rendered = [http_request(url, "/v1/chat/completions", body)] * (requests or 4 * concurrency)
    started = time.monotonic()
    try:
        results = asyncio.run(stream_many(url, rendered, concurrency))
    except OSError as error:
        raise Unavailable(f"cannot reach {url}: {error}") from error
    figures = summarize(results, time.monotonic() - started)
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, value in figures.items():
        click.echo(f"{name:<28} {value:>12,.2f}")


def summarize(results: Sequence[StreamResult], seconds: float) -> dict[str, float]:
    """Return the figures of a run: requests, tokens/s, time to first token and gaps in milliseconds."""
    whole = [result for result in results if result.status == 200 and result.complete]
    first = [1000 * result.time_to_first_token for result in whole if result.time_to_first_token is not None]
    gaps = [1000 * gap for result in whole for gap in result.gaps]
    tokens = sum(result.completion_tokens for result in whole)
    return {
        "requests": float(len(results)),
        "failed": float(len(results) - len(whole)),
        "seconds": seconds,
        "tokens": float(tokens),
        "tokens_per_s": tokens / seconds,
        "events_per_token": sum(result.events for result in whole) / tokens if tokens else 0.0,
        "ttft_p50_ms": percentile(first, 50),
        "ttft_p99_ms": percentile(first, 99),
        "itl_p50_ms": percentile(gaps, 50),
        "itl_p99_ms": percentile(gaps, 99),
    }


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile, 0 for no values."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
