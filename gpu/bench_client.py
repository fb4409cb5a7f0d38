"""`python -m gpu.bench_client`: `vllm bench serve`, several times in one process.

Importing it takes longer than many a run. Its arguments come as a JSON list in a line of standard input; then it makes
the prompts, writes `prepared`, and sends them when it reads another line: so that several clients begin together.
"""

import asyncio
import json
import os
import sys
import traceback
from typing import Any, TextIO


def main() -> None:
    """Write `ready`, then `prepared` and `done` for each run, `failed` in place of either."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what vLLM prints goes to the log
    from vllm.benchmarks import serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    serve.get_samples = _pausing(serve.get_samples, replies)
    print("ready", file=replies)
    for line in iter(sys.stdin.readline, ""):
        try:
            asyncio.run(serve.main_async(parser.parse_args(json.loads(line))))
            print("done", file=replies)
        except (Exception, SystemExit):
            traceback.print_exc()
            print("failed", file=replies)


def _pausing(get_samples: Any, replies: TextIO) -> Any:
    """Return a function that makes the prompts and then waits for a line: the bench has no other place for it."""

    def get_and_wait(*args: Any, **kwargs: Any) -> Any:
        samples = get_samples(*args, **kwargs)
        print("prepared", file=replies)
        sys.stdin.readline()
        return samples

    return get_and_wait


if __name__ == "__main__":
    main()
