"""Options of the simulated engine."""

from pathlib import Path

import click

from tokenwire.cli.options import OptionGroup

_GROUP = OptionGroup(
    "Simulated engine (--engine sim)",
    {
        "sim_script": {
            "type": click.Path(exists=True, dir_okay=False, path_type=Path),
            "help": "JSON list of ids to say, repeated.",
        },
        "sim_step_ms": {"type": float, "default": 10.0, "help": "Time of a step."},
        "sim_prefill_rate": {"type": float, "default": 20_000.0, "help": "Prompt tokens per second; 0: no limit."},
        "sim_kv_tokens": {"type": int, "help": "Tokens that the KV cache holds."},
        "sim_max_num_seqs": {"type": int, "default": 256, "help": "Sequences that run at a time."},
        "sim_max_queue": {"type": int, "default": 0, "help": "Sequences that may wait; 0: no limit."},
        "sim_max_model_len": {"type": int, "help": "Context length."},
        "sim_seed": {"type": int, "default": 0, "help": "Another seed is another model."},
        "sim_eos_rate": {"type": float, "default": 0.0, "help": "Probability that a token ends the sequence."},
        "sim_seeds": {
            "type": click.Choice(["positional", "generator"]),
            "default": "positional",
            "help": "Where noise comes from: the ids and the seed alone, or a generator of each request, which only a "
            "run from the start brings into the same state.",
        },
        "sim_fault": {"multiple": True, "help": "What goes wrong, KIND@TRIGGER=N, for example crash@tokens=500."},
    },
)
simulation_options = _GROUP.add
