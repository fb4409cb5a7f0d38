"""The gRPC service through which coordinators put media and ask how a prompt with media expands."""

from collections.abc import AsyncIterator

import grpc

from tokenwire.errors import MediaMissing, Unsupported
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc
from tokenwire.worker.engine.media import EngineMedia
from tokenwire.worker.services.calls import answered

PutContext = grpc.aio.ServicerContext[pb.PutRequest, pb.PutResponse]
ExpandContext = grpc.aio.ServicerContext[pb.ExpandRequest, pb.ExpandResponse]


class MediaService(inference_pb2_grpc.MediaServicer):
    """Puts and expansions; an engine whose model takes text only has none."""

    def __init__(self, media: EngineMedia | None) -> None:
        self._media = media

    async def Put(self, requests: AsyncIterator[pb.PutRequest], context: PutContext) -> pb.PutResponse:
        await answered(context, lambda: self._served().put(requests))
        return pb.PutResponse()

    async def Expand(self, request: pb.ExpandRequest, context: ExpandContext) -> pb.ExpandResponse:
        async def expand() -> pb.ExpandResponse:
            try:
                response = await self._served().expand(request)
            except MediaMissing as error:
                return pb.ExpandResponse(missing=error.missing)
            length = len(response.token_ids)
            return pb.ExpandResponse(length=length) if 0 < request.max_token_ids < length else response

        return await answered(context, expand)

    def _served(self) -> EngineMedia:
        if self._media is None:
            raise Unsupported("This model takes text only.")
        return self._media
