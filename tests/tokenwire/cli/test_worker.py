"""`tokenwire worker` starts the configured engine, or reports why it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def worker(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a worker that ends by itself."""
    command = [sys.executable, "-m", "tokenwire", "worker", "--listen", f"unix:{folder / 'worker'}", *arguments]
    surroundings = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=60, check=False
    )


def test_engine_arguments_may_come_from_the_environment(tmp_path: Path) -> None:
    """Where a command line cannot carry them after --: they are split as a shell would, and come first."""
    arguments = ["--engine", "sim", "--", "--after", "dashes"]

    done = worker(tmp_path, *arguments, TOKENWIRE_ENGINE_ARGS="--from 'the environment'")

    expected = "tokenwire: The simulated engine takes no engine arguments: --from 'the environment' --after dashes\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_options_of_the_simulated_engine_need_it(tmp_path: Path) -> None:
    """By argument or environment: vLLM has none of them."""
    done = worker(tmp_path, "--sim-step-ms", "1", TOKENWIRE_SIM_SEED="5")

    expected = "tokenwire: Only the simulated engine, --engine sim, takes --sim-step-ms --sim-seed\n"
    assert (done.returncode, done.stderr) == (1, expected)


@pytest.mark.parametrize("model", ["nowhere", "org/model"])
def test_a_simulated_engine_needs_a_directory(tmp_path: Path, model: str) -> None:
    """It has no weights, and looks for no model in a hub."""
    done = worker(tmp_path, model, "--engine", "sim")

    expected = f"tokenwire: The simulated engine needs a local directory with tokenizer files, got {model!r}\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_an_engine_that_cannot_start_ends_the_worker(tmp_path: Path) -> None:
    """With the engine's reason in its log, no traceback, and no socket left behind."""
    done = worker(tmp_path, "--engine", "sim", "--sim-kv-tokens", "64")

    assert done.returncode == 1
    reason, end = done.stderr.splitlines()
    assert "E worker: " in reason
    assert reason.endswith("raise kv_tokens or lower max_model_len")
    assert end.endswith("I worker: stopped")
    assert not (tmp_path / "worker").exists()


def test_an_engine_without_its_package_names_the_remedy(tmp_path: Path) -> None:
    """vLLM is only installed where an engine runs."""
    (broken := tmp_path / "vllm").mkdir()
    (broken / "__init__.py").write_text("raise ImportError('no vLLM here')")
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text("{}")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    done = worker(tmp_path, str(model), PYTHONPATH=path)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("tokenwire: The vLLM engine cannot be loaded (no vLLM here).")
    assert "pip install 'tokenwire[worker]'" in done.stderr


def test_a_vllm_that_was_not_tested_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    """It would fail at its first request, if at all; who wants to try says so."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise ImportError('it was loaded')")
    (tmp_path / "vllm-0.99.0.dist-info").mkdir()
    (tmp_path / "vllm-0.99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.99.0\n")
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text("{}")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    refused = worker(tmp_path, str(model), PYTHONPATH=path)
    tried = worker(tmp_path, str(model), "--allow-untested-vllm", PYTHONPATH=path)

    assert (refused.returncode, tried.returncode) == (1, 1)
    assert "vLLM 0.99.0 is installed" in refused.stderr
    assert "it was loaded" not in refused.stderr
    assert "it was loaded" in tried.stderr
