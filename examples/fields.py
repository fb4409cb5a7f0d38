"""See fields of vLLM's API that are not served: each is rejected by name, none is dropped."""

import os

import httpx

url = os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000")

FIELDS = {"best_of": 4, "use_beam_search": True, "suffix": "The end."}

for name, value in FIELDS.items():
    response = httpx.post(f"{url}/v1/completions", json={"prompt": "Once upon a time", name: value}, timeout=60)
    print(response.status_code, response.json()["error"]["message"])
