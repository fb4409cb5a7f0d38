"""Scripted replies to the request for a summary, and to what comes after it."""

import json
from pathlib import Path

from tokenwire.worker.simulated_engine.reply_rules import ReplyRule

SUMMARY = "The user wants a “river” named, and its length. Left to do: the length. (summary-7919)"
ASKED = r"Write only the summary\.<\|im_end\|>\n<\|im_start\|>assistant\n\Z"
"""What a prompt for a summary ends with."""
RULES = [
    {"prompt": f"(?s)please write nothing.*{ASKED}", "reply": ""},
    {"prompt": f"(?s)summary-7919.*{ASKED}", "reply": "A second summary, of the first one and more. (summary-5040)"},
    {"prompt": ASKED, "reply": f"\n{SUMMARY}\n"},
    {"prompt": "summary-5040", "reply": "It goes on from the second summary."},
    {"prompt": "summary-7919", "reply": "It goes on from the summary."},
]
REPLY_RULES = tuple(ReplyRule(**rule) for rule in RULES)


def write_rules(file: Path, reasoning: str = "") -> Path:
    """Write the rules for a simulated engine, which reasons so before each reply."""
    file.write_text(json.dumps([{**rule, "reply": reasoning + rule["reply"]} for rule in RULES]))
    return file
