"""Admin operations in the OpenAPI document."""

from pydantic import BaseModel

from tokenwire.coordinator.api.admin.engines import RemoteProcedure, ResetCache, ServerInfo, WorldSize
from tokenwire.coordinator.api.admin.form import Form
from tokenwire.coordinator.api.admin.lora import LoadAdapter, UnloadAdapter
from tokenwire.coordinator.api.admin.pause import Pause, Sleep, WakeUp
from tokenwire.coordinator.api.admin.rl import RlPause, RlUpdateWeights
from tokenwire.coordinator.api.admin.trl_weights import InitCommunicator, NamedParameter
from tokenwire.coordinator.api.admin.weights import FinishUpdate, InitTransfer, SetVersion, UpdateWeights
from tokenwire.coordinator.api.openapi import admin_schemas as schemas
from tokenwire.coordinator.api.openapi.operation import Operation


def _admin(summary: str, response: type[BaseModel] | type[str], form: type[BaseModel] = Form) -> Operation:
    return Operation("Admin", summary, response, form=form)


def _rl(summary: str, response: type[BaseModel] = schemas.RlDone, form: type[BaseModel] = Form) -> Operation:
    return Operation("Reinforcement learning", summary, response, form=form)


def _trl(summary: str, response: type[BaseModel] = schemas.Confirmation, form: type[BaseModel] = Form) -> Operation:
    return Operation("TRL", summary, response, form=form)


_WORLD = _admin("Return the number of engine processes", schemas.WorldSizeResponse, WorldSize)
_RESET = _admin("Reset the prefix caches", schemas.Success, ResetCache)

ADMIN_OPERATIONS = {
    "/v1/load_lora_adapter": _admin("Load an adapter", str, LoadAdapter),
    "/load_lora_adapter": _admin("Load an adapter, or replace it", schemas.Done, LoadAdapter),
    "/v1/unload_lora_adapter": _admin("Unload an adapter", str, UnloadAdapter),
    "/pause": _admin("Pause generation", schemas.Done, Pause),
    "/resume": _admin("Resume generation", schemas.Done),
    "/is_paused": _admin("Return whether generation is paused", schemas.Paused),
    "/sleep": _admin("Put engines to sleep", schemas.Done, Sleep),
    "/wake_up": _admin("Wake engines up", schemas.Done, WakeUp),
    "/is_sleeping": _admin("Return whether engines are asleep", schemas.Sleeping),
    "/update_weights": _admin("Update weights by transfer or from a directory", schemas.DoneOrMessage, UpdateWeights),
    "/reload_weights": _admin("Reload the weights", schemas.Done),
    "/update_weight_version": _admin("Set the weight version", schemas.VersionSet, SetVersion),
    "/weight_info": _admin("Return the weight version", schemas.WeightInfo),
    "/init_weight_transfer_engine": _admin("Initialize a weight transfer", schemas.Confirmation, InitTransfer),
    "/shutdown_weight_transfer_engine": _admin("Shut down a weight transfer", schemas.Confirmation),
    "/start_weight_update": _admin("Start a weight update", schemas.Confirmation),
    "/start_draft_weight_update": _admin("Start a weight update of a draft model", schemas.Confirmation),
    "/finish_weight_update": _admin("Finish a weight update", schemas.Confirmation, FinishUpdate),
    "/get_world_size": _WORLD,
    "/get_world_size/": _WORLD,
    "/server_info": _admin("Return an engine's configuration", schemas.ServerInfoResponse, ServerInfo),
    "/reset_prefix_cache": _RESET,
    "/reset_prefix_cache/": _RESET,
    "/collective_rpc": _admin("Call a method of every engine process", schemas.MethodResults, RemoteProcedure),
    "/liveness": _admin("Check that every engine responds", schemas.Liveness),
    "/v1/rl/pause": _rl("Pause generation", form=RlPause),
    "/v1/rl/resume": _rl("Resume generation"),
    "/v1/rl/update_weights": _rl("Update weights from a directory", form=RlUpdateWeights),
    "/v1/rl/load_lora_adapter": _rl("Load an adapter, or replace it", form=LoadAdapter),
    "/v1/rl/unload_lora_adapter": _rl("Unload an adapter", form=UnloadAdapter),
    "/v1/rl/state": _rl("Return the state of the fleet", schemas.RlState),
    "/v1/rl/health": _rl("Return whether a worker is connected", schemas.Done),
    "/v1/rl/ready": _rl("Return whether all workers are connected and in sync", schemas.RlReady),
    "/v1/rl/liveness": _rl("Check that every engine responds", schemas.Liveness),
    "/v1/rl/weight_version": _rl("Return the weight version", schemas.RlWeightVersion),
    "/v1/rl/workers": _rl("List the admin endpoint of each model", schemas.RlWorkers),
    "/init_communicator/": _trl("Initialize a communicator", form=InitCommunicator),
    "/update_named_param/": _trl("Update one parameter", form=NamedParameter),
    "/close_communicator/": _trl("Close the communicator"),
}
