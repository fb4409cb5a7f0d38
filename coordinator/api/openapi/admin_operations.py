"""What the OpenAPI document says of the routes that steer a fleet."""

from pydantic import BaseModel

from tokenwire.coordinator.api.admin.engines import RemoteProcedure, ResetCache, ServerInfo, WorldSize
from tokenwire.coordinator.api.admin.form import Form
from tokenwire.coordinator.api.admin.lora import LoadAdapter, UnloadAdapter
from tokenwire.coordinator.api.admin.pause import Pause, Sleep, WakeUp
from tokenwire.coordinator.api.admin.rl import RlPause, RlUpdateWeights
from tokenwire.coordinator.api.admin.trl import InitCommunicator, NamedParameter
from tokenwire.coordinator.api.admin.weights import FinishUpdate, InitTransfer, SetVersion, UpdateWeights
from tokenwire.coordinator.api.openapi import admin_schemas as answers
from tokenwire.coordinator.api.openapi.operation import Operation


def _steer(summary: str, answer: type[BaseModel] | type[str], form: type[BaseModel] = Form) -> Operation:
    return Operation("Steering", summary, answer, form=form)


def _rl(summary: str, answer: type[BaseModel] = answers.RlDone, form: type[BaseModel] = Form) -> Operation:
    return Operation("Reinforcement learning", summary, answer, form=form)


def _trl(summary: str, answer: type[BaseModel] = answers.Message, form: type[BaseModel] = Form) -> Operation:
    return Operation("TRL", summary, answer, form=form)


_WORLD = _steer("Count the processes of the engines", answers.WorldSizeAnswer, WorldSize)
_RESET = _steer("Empty the prefix caches", answers.Success, ResetCache)

STEERING = {
    "/v1/load_lora_adapter": _steer("Load an adapter", str, LoadAdapter),
    "/load_lora_adapter": _steer("Load an adapter, or replace it", answers.Done, LoadAdapter),
    "/v1/unload_lora_adapter": _steer("Unload an adapter", str, UnloadAdapter),
    "/pause": _steer("Pause generation", answers.Done, Pause),
    "/resume": _steer("Go on after a pause", answers.Done),
    "/is_paused": _steer("Tell whether generation is paused", answers.Paused),
    "/sleep": _steer("Put engines to sleep", answers.Done, Sleep),
    "/wake_up": _steer("Wake engines up", answers.Done, WakeUp),
    "/is_sleeping": _steer("Tell whether engines sleep", answers.Sleeping),
    "/update_weights": _steer("Update weights by transfer or from a directory", answers.DoneOrMessage, UpdateWeights),
    "/reload_weights": _steer("Read the weights again", answers.Done),
    "/update_weight_version": _steer("Label the weights", answers.VersionSet, SetVersion),
    "/weight_info": _steer("Tell the label of the weights", answers.WeightInfo),
    "/init_weight_transfer_engine": _steer("Set a transfer of weights up", answers.Message, InitTransfer),
    "/shutdown_weight_transfer_engine": _steer("Take a transfer of weights down", answers.Message),
    "/start_weight_update": _steer("Begin an update of weights", answers.Message),
    "/start_draft_weight_update": _steer("Begin an update of a draft model's weights", answers.Message),
    "/finish_weight_update": _steer("End an update of weights", answers.Message, FinishUpdate),
    "/get_world_size": _WORLD,
    "/get_world_size/": _WORLD,
    "/server_info": _steer("Show an engine's configuration", answers.ServerInfoAnswer, ServerInfo),
    "/reset_prefix_cache": _RESET,
    "/reset_prefix_cache/": _RESET,
    "/collective_rpc": _steer("Call a method of every engine process", answers.Results, RemoteProcedure),
    "/liveness": _steer("Ask every engine for a sign of life", answers.Liveness),
    "/v1/rl/pause": _rl("Pause generation", form=RlPause),
    "/v1/rl/resume": _rl("Go on after a pause"),
    "/v1/rl/update_weights": _rl("Update weights from a directory", form=RlUpdateWeights),
    "/v1/rl/load_lora_adapter": _rl("Load an adapter, or replace it", form=LoadAdapter),
    "/v1/rl/unload_lora_adapter": _rl("Unload an adapter", form=UnloadAdapter),
    "/v1/rl/state": _rl("Show the state of the fleet", answers.RlState),
    "/v1/rl/health": _rl("Tell whether a worker is connected", answers.Done),
    "/v1/rl/ready": _rl("Tell whether all workers are there and alike", answers.RlReady),
    "/v1/rl/liveness": _rl("Ask every engine for a sign of life", answers.Liveness),
    "/v1/rl/weight_version": _rl("Tell the label of the weights", answers.RlWeightVersion),
    "/v1/rl/workers": _rl("List where fleets can be steered", answers.RlWorkers),
    "/init_communicator/": _trl("Set a communicator up", form=InitCommunicator),
    "/update_named_param/": _trl("Receive one parameter", form=NamedParameter),
    "/close_communicator/": _trl("Take a communicator down"),
}
