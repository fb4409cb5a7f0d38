"""The admin routes of every contract, over HTTP with real processes."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import Service, simulated_service

pytestmark = pytest.mark.slow

ADMIN_KEY = "sesame"
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two workers behind a coordinator with admin routes."""
    folder = tmp_path_factory.mktemp("admin")
    options = ("--sim-step-ms", "2", "--served-model-name", "sim")
    key = folder / "admin-key"
    key.write_text(ADMIN_KEY)
    admin_options = ["--enable-rl", "--admin-key-file", str(key)]
    with simulated_service(folder, *options, workers=2, coordinator_options=admin_options) as started:
        yield started
        assert "Traceback" not in started.coordinator.log, started.coordinator.log


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    """A client of the service, with a running fleet."""
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    with httpx.Client(base_url=service.url, headers=headers, timeout=30) as client:
        assert client.post("/resume").status_code == 200
        yield client


def operate(client: httpx.Client, path: str, body: Any = None) -> Any:
    """Post, expect success and return the JSON answer."""
    answer = client.post(path, json=body) if body is not None else client.post(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def get(client: httpx.Client, path: str) -> Any:
    """Get, expect success and return the JSON answer."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_vllm_pauses(client: httpx.Client) -> None:
    """vLLM's routes by query or body, idempotent, with vLLM's responses."""
    assert operate(client, "/pause?mode=keep&clear_cache=false") == {"status": "paused"}
    assert operate(client, "/pause", {"mode": "wait"}) == {"status": "paused"}
    assert get(client, "/is_paused") == {"is_paused": True}
    assert get(client, "/is_sleeping") == {"is_sleeping": True}
    assert get(client, "/v1/rl/health") == {"status": "ok"}
    assert operate(client, "/resume") == operate(client, "/resume") == {"status": "resumed"}
    assert get(client, "/is_paused") == {"is_paused": False}
    wrong = client.post("/pause?mode=later")
    assert wrong.status_code == 400
    assert "mode" in wrong.json()["error"]["message"]


@pytest.mark.parametrize("mode", ["keep", "wait", "abort"])
def test_a_pause_holds_new_requests(service: Service, client: httpx.Client, mode: str) -> None:
    """A request during a pause waits in an engine, and is completed after the resume."""
    operate(client, f"/pause?mode={mode}")
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(httpx.post(service.url + CHAT, json=BODY, timeout=30)))
    thread.start()
    while not any(service.server_info(worker).open_slots for worker in range(2)):
        pass
    thread.join(0.2)  # eight tokens take 16 ms
    assert thread.is_alive()

    operate(client, "/resume")

    thread.join()
    assert answers[0].json()["usage"]["completion_tokens"] == 8


def test_vllm_sleeps(client: httpx.Client) -> None:
    """Levels and tags, by query and by body; partly awake counts as asleep."""
    assert operate(client, "/sleep?level=1&mode=keep") == {"status": "sleeping", "level": 1}
    assert operate(client, "/wake_up?tags=weights") == {"status": "sleeping", "tags": ["weights"]}
    assert get(client, "/is_sleeping") == {"is_sleeping": True}
    assert operate(client, "/wake_up", {"tags": ["kv_cache"]}) == {"status": "awake", "tags": ["kv_cache"]}
    assert get(client, "/is_sleeping") == {"is_sleeping": False}


def test_vllm_transfers_weights(client: httpx.Client) -> None:
    """The stages of TRL, in its order, and the resulting version."""
    info = {"master_address": "127.0.0.1", "master_port": 1, "rank_offset": 1, "world_size": 3, "packed": True}
    assert "message" in operate(client, "/init_weight_transfer_engine", {"init_info": info})
    assert "message" in operate(client, "/start_weight_update", {})
    assert operate(client, "/update_weights", {"update_info": {"names": []}}) == {"message": "Weights updated"}
    assert "message" in operate(client, "/finish_weight_update", {"weight_version": "t1"})
    assert get(client, "/weight_info") == {"weight_version": "t1"}
    labelled = operate(client, "/update_weight_version", {"new_version": "t2"})
    assert labelled == {"success": True, "new_version": "t2"}
    assert get(client, "/v1/rl/weight_version")["weight_version"] == "t2"


def test_prime_rl_updates_from_a_directory(client: httpx.Client, tmp_path: Path) -> None:
    """`weight_dir` is loaded by every worker and changes their output; null does nothing; a missing one is a 404."""
    before = client.post(CHAT, json=BODY).json()["choices"][0]["message"]["content"]
    step = tmp_path / "step_7"
    step.mkdir()

    assert operate(client, "/update_weights", {"weight_dir": str(step)}) == {"status": "ok"}

    after = {client.post(CHAT, json=BODY).json()["choices"][0]["message"]["content"] for _ in range(4)}
    assert len(after) == 1
    assert before not in after
    assert get(client, "/weight_info") == {"weight_version": "step_7"}
    assert operate(client, "/update_weights", {"weight_dir": None}) == {"status": "ok"}
    assert get(client, "/weight_info") == {"weight_version": "step_7"}
    assert client.post("/update_weights", json={"weight_dir": "/nowhere"}).status_code == 404
    assert client.post("/update_weights", json={}).status_code == 400
    assert operate(client, "/reload_weights") == {"status": "ok"}
    assert get(client, "/weight_info") == {"weight_version": "default"}


def test_prime_rl_finds_the_fleet(service: Service, client: httpx.Client, tmp_path: Path) -> None:
    """Discovery has exactly the fields that its client allows, and its weight update works."""
    listed = get(client, "/v1/rl/workers")
    assert listed.keys() == {"protocol_version", "namespace", "workers"}
    (entry,) = listed["workers"]
    required = {"namespace", "component", "endpoint", "instance_id", "transport", "request_plane_url"}
    assert (
        required
        <= entry.keys()
        <= required | {*("system_url", "admin_base_url", "world_size", "model", "routes", "error")}
    )
    assert (entry["admin_base_url"], entry["world_size"], entry["model"]) == (service.url, 2, "sim")
    assert "error" not in entry

    update = {"method": "update_weights_from_path", "args": [str(tmp_path)]}

    assert operate(client, "/collective_rpc", update) == {"results": [None, None]}
    assert get(client, "/weight_info") == {"weight_version": tmp_path.name}
    assert client.post("/collective_rpc", json={"method": "unknown"}).status_code == 501
    assert client.post("/collective_rpc", json={}).status_code == 400


def test_trl_reads_what_it_needs(client: httpx.Client) -> None:
    """World size of all workers, the configuration, caches, liveness."""
    assert get(client, "/get_world_size") == {"world_size": 2}
    config = get(client, "/server_info?config_format=json")["vllm_config"]
    assert config["model_config"]["logprobs_mode"] == "processed_logprobs"
    assert config["model_config"]["dtype"]
    assert config["parallel_config"]["data_parallel_size"] == 1
    assert {"weight_transfer_config", "lora_config"} <= config.keys()
    assert operate(client, "/reset_prefix_cache") == {"success": True}
    assert get(client, "/liveness") == {"status": "ok"}


def test_adapters_are_models(client: httpx.Client) -> None:
    """A loaded adapter is listed, named in requests and responses, changes the output, and is gone when unloaded."""
    base = client.post(CHAT, json=BODY).json()
    body = {"lora_name": "red", "lora_path": "/adapters/red"}
    loaded = client.post("/v1/load_lora_adapter", json=body)
    assert loaded.text == "Success: LoRA adapter 'red' added successfully."
    assert client.post("/v1/load_lora_adapter", json=body).status_code == 400
    card = next(card for card in get(client, "/v1/models")["data"] if card["id"] == "red")
    assert (card["root"], card["parent"]) == ("/adapters/red", "sim")

    for path, update in (
        (CHAT, BODY),
        ("/v1/completions", {"prompt": "Hi", "max_tokens": 8, "temperature": 0}),
        ("/inference/v1/generate", {"token_ids": [65], "sampling_params": {"max_tokens": 8}}),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 16}),
        ("/v1/messages", {"messages": BODY["messages"], "max_tokens": 8}),
    ):
        answer = operate(client, path, {**update, "model": "red"})
        assert answer["model"] == "red", path
    changed = [client.post(CHAT, json={**BODY, "model": "red"}).json() for _ in range(4)]
    texts = {answer["choices"][0]["message"]["content"] for answer in changed}
    assert len(texts) == 1
    assert base["choices"][0]["message"]["content"] not in texts

    assert operate(client, "/load_lora_adapter", {**body, "lora_path": "/adapters/red-2"}) == {"status": "ok"}
    removed = client.post("/v1/unload_lora_adapter", json={"lora_name": "red"})
    assert removed.text == "Success: LoRA adapter 'red' removed successfully."
    assert client.post("/v1/unload_lora_adapter", json={"lora_name": "red"}).status_code == 404
    assert client.post(CHAT, json={**BODY, "model": "red"}).status_code == 404


def test_dynamo_reads_and_changes_the_state(service: Service, client: httpx.Client, tmp_path: Path) -> None:
    """/v1/rl in Dynamo's format, with every worker in each response."""
    paused = operate(client, "/v1/rl/pause")
    assert paused["status"] == "ok"
    assert [worker["worker"] for worker in paused["workers"]] == service.addresses
    assert get(client, "/v1/rl/state")["pause_state"] == "paused"
    updated = operate(client, "/v1/rl/update_weights", {"weight_dir": str(tmp_path), "weight_version": "v9"})
    assert updated["applied_weight_version"] == "v9"
    assert operate(client, "/v1/rl/update_weights", {"weight_dir": ""})["applied_weight_version"] == "v9"
    operate(client, "/v1/rl/load_lora_adapter", {"lora_name": "blue", "lora_path": "/adapters/blue"})
    operate(client, "/v1/rl/resume")
    state = get(client, "/v1/rl/state")
    assert (state["ready"], state["pause_state"], state["applied_weight_version"]) == (True, "running", "v9")
    assert state["loras"] == [{"name": "blue", "loaded_on": service.addresses}]
    assert get(client, "/v1/rl/ready")["ready"]
    assert get(client, "/v1/rl/liveness") == {"status": "ok"}
    for _ in range(2):
        assert operate(client, "/v1/rl/unload_lora_adapter", {"lora_name": "blue"})["status"] == "ok"
    assert client.post("/v1/rl/pause?mode=later").status_code == 400
    assert client.post("/pause", json={"model": "unknown"}).status_code == 404


def test_admin_routes_are_disabled_by_default(tmp_path: Path) -> None:
    """Adapters have a flag of their own; with an admin key the routes require it."""
    with simulated_service(tmp_path) as service:
        assert httpx.post(f"{service.url}/pause").status_code == 404
        assert httpx.post(f"{service.url}/v1/load_lora_adapter").status_code == 404
    key = tmp_path / "key"
    key.write_text("sesame\n")
    options = ["--enable-lora-routes", "--admin-key-file", str(key)]
    with simulated_service(tmp_path, coordinator_options=options) as service:
        assert httpx.post(f"{service.url}/pause").status_code == 404
        body = {"lora_name": "red", "lora_path": "/red"}
        assert httpx.post(f"{service.url}/v1/load_lora_adapter", json=body).status_code == 401
        headers = {"Authorization": "Bearer sesame"}
        assert httpx.post(f"{service.url}/v1/load_lora_adapter", json=body, headers=headers).status_code == 200
        assert "sesame" not in service.coordinator.log


def test_older_trl_without_gpus_gets_a_501(client: httpx.Client) -> None:
    """Its weight update needs NCCL; the message names another one."""
    assert client.get("/health/", follow_redirects=False).status_code == 200
    assert get(client, "/get_world_size/") == {"world_size": 2}
    assert client.post("/reset_prefix_cache/", follow_redirects=False).status_code == 200
    communicator = {"host": "127.0.0.1", "port": 1, "world_size": 3, "client_device_uuid": "x"}
    parameter = {"name": "norm", "dtype": "torch.float32", "shape": [2]}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/init_communicator/", communicator),
        ("/update_named_param/", parameter),
    ]
    for path, body in bodies:
        answer = client.post(path, json=body)
        assert answer.status_code == 501
        assert "weight_dir" in answer.json()["error"]["message"]


def test_older_trl_may_close_an_unopened_communicator(client: httpx.Client) -> None:
    """Its clients do so at exit; no later call fails."""
    for _ in range(2):
        assert "message" in operate(client, "/close_communicator/", {})
    assert "message" in operate(client, "/close_communicator/")
    assert get(client, "/v1/rl/state")["ready"]
