"""The gRPC service through which coordinators put media and ask how a prompt with media expands."""

from collections.abc import AsyncIterator

import grpc

from tokenwire.errors import MediaMissing, Unsupported
from tokenwire.peer_auth.grpc_options import FEATURES_PART_BYTES
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc
from tokenwire.worker.engine.media import EngineMedia
from tokenwire.worker.services.calls import answered

PutContext = grpc.aio.ServicerContext[pb.PutRequest, pb.PutResponse]
ExpandContext = grpc.aio.ServicerContext[pb.ExpandRequest, pb.ExpandResponse]
RenderContext = grpc.aio.ServicerContext[pb.RenderRequest, pb.RenderResponse]


class MediaService(inference_pb2_grpc.MediaServicer):
    """Puts and expansions; an engine whose model takes text only has none."""

    def __init__(self, media: EngineMedia | None) -> None:
        self._media = media

    async def Put(self, requests: AsyncIterator[pb.PutRequest], context: PutContext) -> pb.PutResponse:
        await answered(context, lambda: self._served().put(requests))
        return pb.PutResponse()

    async def Expand(self, request: pb.ExpandRequest, context: ExpandContext) -> pb.ExpandResponse:
        return await answered(context, lambda: self._expanded(request))

    async def Render(self, request: pb.RenderRequest, context: RenderContext) -> AsyncIterator[pb.RenderResponse]:
        response = await answered(context, lambda: self._expanded(request.prompt))
        features = memoryview(response.features_json)
        response.ClearField("features_json")
        yield pb.RenderResponse(part=response)
        for start in range(0, len(features), FEATURES_PART_BYTES):
            part = pb.ExpandResponse(features_json=bytes(features[start : start + FEATURES_PART_BYTES]))
            yield pb.RenderResponse(part=part)

    async def _expanded(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        try:
            response = await self._served().expand(request)
        except MediaMissing as error:
            return pb.ExpandResponse(missing=error.missing)
        length = len(response.token_ids)
        return pb.ExpandResponse(length=length) if 0 < request.max_token_ids < length else response

    def _served(self) -> EngineMedia:
        if self._media is None:
            raise Unsupported("This model takes text only.")
        return self._media
