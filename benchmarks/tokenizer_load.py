"""Measures how long building a tokenizer keeps all other threads of a process waiting, by the number of its tokens.

Run it as `python -m benchmarks.tokenizer_load 1000000`.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer, models

_TICK_S = 0.001


def longest_wait(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds that something takes in a thread, and the longest that this one could not run meanwhile."""
    thread = threading.Thread(target=work)
    began = last = time.perf_counter()
    longest = 0.0
    thread.start()
    while thread.is_alive():
        time.sleep(_TICK_S)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return last - began, longest


def main() -> None:
    """Print it for each way to build a tokenizer, and to read a vocabulary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", type=int, help="size of the vocabulary")
    tokens = parser.parse_args().tokens
    vocabulary = {f"zz{number}": number for number in range(tokens)}
    text = json.dumps({"model": {"type": "BPE", "vocab": vocabulary, "merges": []}})
    files = text.encode()
    backend = Tokenizer.from_buffer(files)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_bytes(files)
        ways: dict[str, Callable[[], object]] = {
            "from_buffer": lambda: Tokenizer.from_buffer(files),
            "from_str": lambda: Tokenizer.from_str(text),
            "from_file": lambda: Tokenizer.from_file(str(path)),
            "models.BPE": lambda: models.BPE(vocabulary, []),
            "__setstate__": lambda: Tokenizer(models.BPE()).__setstate__(files),
            "get_vocab": backend.get_vocab,
            "id_to_token": lambda: [backend.id_to_token(number) for number in range(len(vocabulary))],
        }
        for name, work in ways.items():
            seconds, longest = longest_wait(work)
            print(
                f"{name} of {len(files) / 1e6:.1f} MB: {seconds:.2f} s, of which others waited {longest:.2f} s at once"
            )


if __name__ == "__main__":
    main()
