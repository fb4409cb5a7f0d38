"""What is mutated, and the tests that judge first."""

MUTATED = (
    "coordinator/fleet/admission/fair_bound.py",
    "coordinator/fleet/admission/fair_queue.py",
    "coordinator/fleet/admission/queue.py",
    "coordinator/fleet/admission/queued_request.py",
    "coordinator/fleet/admission/shares.py",
    "coordinator/fleet/admission/work_meter.py",
    "coordinator/fleet/failover/failover.py",
    "coordinator/fleet/failover/poison_cache.py",
    "coordinator/fleet/failover/poison_detection.py",
    "coordinator/fleet/failover/poison_journal.py",
    "coordinator/fleet/failover/recovery.py",
    "coordinator/fleet/failover/replay.py",
    "coordinator/fleet/failover/sequence.py",
    "coordinator/fleet/frames.py",
    "coordinator/fleet/outliers.py",
    "coordinator/fleet/session.py",
    "coordinator/fleet/session_stats.py",
    "coordinator/fleet/slots.py",
    "coordinator/fleet/transport/paced.py",
    "coordinator/history/digests.py",
    "coordinator/history/request_history.py",
    "coordinator/history/store.py",
    "coordinator/history/tail.py",
    "coordinator/history/token_history.py",
    "coordinator/history/turns.py",
    "coordinator/text/detokenizer.py",
    "coordinator/text/stops.py",
    "worker/engine/frame_buffer.py",
    "worker/services/session.py",
)
"""The modules that promise exactness and failover."""

JUDGES = (
    "tests/coordinator/fleet",
    "tests/coordinator/history",
    "tests/coordinator/text/test_detokenizer.py",
    "tests/coordinator/text/test_stops.py",
    "tests/worker/engine",
    "tests/worker/services",
)
"""Their own tests, and those of their neighbours: mutmut runs those that reach the mutant, the fastest first."""

LEFT_OUT = (
    "tests/coordinator/fleet/behaviour/test_resumption.py",  # real timeouts; simulation resumes in virtual time
    "tests/coordinator/fleet/discovery",
    "tests/coordinator/fleet/transport/test_grpc.py",
    "tests/coordinator/fleet/transport/vllm_http",
)
"""Tests that are slow, or of something else."""
