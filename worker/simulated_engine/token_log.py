"""A log of what a simulated engine sampled, for checks of everything that passes it on."""

import json
from array import array
from pathlib import Path

from tokenwire.errors import EngineFailed
from tokenwire.protocol.packed_ids import prompt_ids
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import EngineSequence, Step


def open_log(path: Path) -> "TokenLog":
    """Return a log that appends to a file. Raises EngineFailed if it cannot."""
    try:
        return TokenLog(path)
    except OSError as error:
        raise EngineFailed(f"--sim-token-log: cannot write {path}: {error.strerror}") from error


class TokenLog:
    """Appends JSON lines to a file: each request's prompt, and the tokens of each step. Lines are written at once.

    Tokens have their log-probabilities, where the request asks for these.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be written."""
        self._file = path.open("a", buffering=1)
        self._runs: dict[EngineSequence, int] = {}
        """Numbers of the sequences: a resumed request has several of one id."""
        self._last = 0

    def on_submit(self, submit: pb.Submit, sequences: list[EngineSequence]) -> None:
        """Log the prompt of a request, once for each sequence."""
        for sequence in sequences:
            self._last += 1
            self._runs[sequence] = self._last
            self._write(
                run=self._last,
                request_id=submit.request_id,
                index=sequence.index,
                prompt_ids=[*prompt_ids(submit)],
            )

    def on_step(self, step: Step) -> None:
        """Log the tokens of a step."""
        scores = {sequence: [*rows.logprobs[:: rows.width]] for sequence, rows in step.logprobs}
        scores |= {sequence: [*array("f", logprobs)] for sequence, logprobs in step.scores}  # as they are sent
        for sequence, token_ids in zip(step.sequences, step.token_ids, strict=True):
            self._write(run=self._runs[sequence], token_ids=token_ids, logprobs=scores.get(sequence))
        for sequence, _ in step.finishes:
            self._runs.pop(sequence, None)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, **line: object) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
