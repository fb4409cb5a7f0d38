"""Load an adapter while the server runs, use it by name, unload it. Needs

make serve ARGS='--enable-rl -- --enable-lora --max-lora-rank 8'
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import httpx
import torch
from openai import OpenAI
from safetensors.torch import save_file

url = os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000")
client = OpenAI(base_url=url + "/v1", api_key="none")
model = (client.models.list().data or sys.exit("The server serves no model yet."))[0]
RANK = 8


def make_adapter(folder: Path, base: Path) -> Path:
    """Write a random adapter for the query projections, in peft's format; returns its folder."""
    if not (base / "config.json").is_file():
        sys.exit(f"This example reads the server's model, and there is no {base / 'config.json'} here.")
    config = json.loads((base / "config.json").read_text())
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": 64, "target_modules": ["q_proj"], "bias": "none"})
    )
    torch.manual_seed(7)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        weights[f"{name}.lora_A.weight"] = torch.randn(RANK, config["hidden_size"]) * 0.1
        weights[f"{name}.lora_B.weight"] = torch.randn(config["hidden_size"], RANK) * 0.1
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def ask(name: str) -> str:
    """Return a reply of the model or adapter of this name."""
    answer = client.completions.create(model=name, prompt="The sea is", max_tokens=16, temperature=0)
    return answer.choices[0].text


with tempfile.TemporaryDirectory() as scratch:
    adapter = make_adapter(Path(scratch) / "red", Path((model.model_extra or {})["root"]))
    loaded = httpx.post(f"{url}/v1/load_lora_adapter", json={"lora_name": "red", "lora_path": str(adapter)}, timeout=60)
    if loaded.status_code == 404:
        sys.exit("Start the server with: make serve ARGS='--enable-rl -- --enable-lora --max-lora-rank 8'")
    loaded.raise_for_status()
    print(loaded.text)
    try:
        print("models: ", [each.id for each in client.models.list()])
        print("base:   ", repr(ask(model.id)))
        print("adapter:", repr(ask("red")))
    finally:
        httpx.post(f"{url}/v1/unload_lora_adapter", json={"lora_name": "red"}).raise_for_status()
print("models: ", [each.id for each in client.models.list()])
