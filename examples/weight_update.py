"""Update the weights while a reply is being generated: pause, load, resume. Needs `make serve ARGS=--enable-rl`.

One call reaches all workers of the model, however many there are. The reply that is under way is frozen, not lost, and
names the weights that generated each of its tokens.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from safetensors.torch import load_file, save_file

client = httpx.Client(base_url=os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000"), timeout=120)


def post(path: str, body: dict[str, Any] | None = None) -> Any:
    """Post JSON; returns the answer. Raises httpx.HTTPStatusError."""
    response = client.post(path, json=body or {})
    if response.status_code == 404:
        sys.exit("The server has no routes for weights. Start it with: make serve ARGS=--enable-rl")
    response.raise_for_status()
    return response.json()


def train_a_step(model: Path, folder: Path) -> Path:
    """Write a checkpoint of the model with slightly changed weights, as a trainer would; returns its folder."""
    if not (model / "model.safetensors").is_file():
        sys.exit(f"This example reads the server's model, and there is no {model / 'model.safetensors'} here.")
    shutil.copytree(model, folder)
    weights = load_file(model / "model.safetensors")
    weights["model.norm.weight"] *= 1.01
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def update(checkpoint: Path) -> None:
    """Pause all workers, load the checkpoint on each, and let them go on, also after an error or Ctrl-C."""
    try:
        print("pause: ", post("/v1/rl/pause")["status"])
        loaded = post("/v1/rl/update_weights", {"weight_dir": str(checkpoint), "weight_version": checkpoint.name})
        print("update:", loaded["status"], loaded["applied_weight_version"])
    finally:
        print("resume:", post("/v1/rl/resume")["status"])


def generate(model: str, checkpoint: Path) -> None:
    """Generate a reply, and update the weights after 20 of its tokens."""
    request = {
        "model": model,
        "prompt": "Once upon a time",
        "max_tokens": 100,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
    }
    tokens: list[int] = []
    updated = False
    with client.stream("POST", "/v1/completions", json=request) as stream:
        for line in stream.iter_lines():
            if not line.startswith("data: {"):
                continue
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            tokens += choice["token_ids"]
            if len(tokens) >= 20 and not updated:
                update(checkpoint)
                updated = True
            if choice["finish_reason"]:
                print(f"{len(tokens)} tokens in one reply, by these weights:", choice["weight_versions"])


model = (client.get("/v1/models").json()["data"] or sys.exit("The server serves no model yet."))[0]
with tempfile.TemporaryDirectory() as scratch:
    checkpoint = train_a_step(Path(model["root"]), Path(scratch) / "step_1")
    try:
        generate(model["id"], checkpoint)
    finally:
        post("/reload_weights")  # those that the server started with
print("back to:", client.get("/v1/rl/state").json()["applied_weight_version"])
