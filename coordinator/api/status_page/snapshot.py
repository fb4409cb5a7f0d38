"""The state of the fleet in this process, for the status page, without querying workers."""

import json
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tokenwire import __version__
from tokenwire.coordinator.api.admin.worker_status import worker_object
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.coordinator.fleet.status import FleetStatus
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.http.readiness import Readiness
from tokenwire.coordinator.types import ServedModel


class Snapshot:
    """Collects models, workers and queues into one JSON object, of this process alone."""

    def __init__(
        self,
        process: str,
        pool: WorkerPool,
        fleet: FleetStatus,
        models: ModelDirectory,
        queue: AdmissionQueue,
        readiness: Readiness,
        clock: Callable[[], float] = time.monotonic,
        prefixes: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> None:
        """`prefixes` counts requests of sessions by model and by why their prompts missed what was cached."""
        self.process = process
        self._pool = pool
        self._fleet = fleet
        self._models = models
        self._queue = queue
        self._readiness = readiness
        self._clock = clock
        self._prefixes = prefixes
        self._started = clock()

    def json(self) -> bytes:
        """Return the snapshot as JSON."""
        return json.dumps(self._take(), separators=(",", ":")).encode()

    def _take(self) -> dict[str, Any]:
        ready = "ready" if self._pool.is_ready() else "no worker is ready"
        return {
            "process": self.process,
            "version": __version__,
            "state": "stopping" if self._readiness.stopping else ready,
            # Counters are read together with the time, so that two snapshots give a rate.
            "uptime_s": round(self._clock() - self._started, 3),
            "models": [self._model(model) for model in self._models.list()] + self._awaited(),
            "workers": [self._worker(session) for session in self._pool.sessions],
        }

    def _model(self, model: ServedModel) -> dict[str, Any]:
        adapters = [each.lora.name for each in self._models.adapters() if each.model == model.name]
        return {
            "names": self._models.names(model),
            "adapters": adapters,
            "max_model_len": model.max_model_len,
            "revisions": {
                revision.digest: round(share, 1)
                for revision, share in self._models.revision_shares(model.base_model).items()
            },
            "prefixes": dict(self._prefixes.get(model.base_model, {})),
            **self._queued(model.base_model),
        }

    def _awaited(self) -> list[dict[str, Any]]:
        unknown: dict[str, Any] = {"adapters": [], "max_model_len": None, "revisions": {}, "prefixes": {}}
        return [{"names": [name], **unknown, **self._queued(name)} for name in self._models.awaited()]

    def _queued(self, model: str) -> dict[str, int]:
        requests, sequences = self._queue.lengths().get(model, (0, 0))
        return {"waiting_requests": requests, "waiting_sequences": sequences}

    def _worker(self, session: WorkerSession) -> dict[str, Any]:
        status = self._fleet.of(session)
        max_num_seqs = session.model.max_num_seqs if session.model is not None else 0
        # Plain vLLM servers do not report their load.
        load = session.workload.load if status.connected and max_num_seqs else None
        return {
            **worker_object(status),
            "model": session.model_name or None,
            "engine": session.model.engine or None if session.model is not None else None,
            "max_num_seqs": max_num_seqs or None,
            "running": None if load is None else load.running,
            "waiting": None if load is None else load.waiting,
            "kv_cache_usage": None if load is None else round(load.kv_cache_usage, 4),
            "open_slots": session.open_slots,
            "tokens": session.workload.tokens,
        }
