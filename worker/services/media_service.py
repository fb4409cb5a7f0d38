"""The gRPC service through which coordinators put media and ask how a prompt with media expands."""

from collections.abc import AsyncIterator

import grpc

from tokenwire.errors import MediaMissing, TokenwireError
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.v1 import inference_pb2_grpc
from tokenwire.worker.engine.media import EngineMedia

PutContext = grpc.aio.ServicerContext[pb.PutRequest, pb.PutResponse]
ExpandContext = grpc.aio.ServicerContext[pb.ExpandRequest, pb.ExpandResponse]


class MediaService(inference_pb2_grpc.MediaServicer):
    """Puts and expansions; an engine whose model takes text only has none."""

    def __init__(self, media: EngineMedia | None) -> None:
        self._media = media

    async def Put(self, requests: AsyncIterator[pb.PutRequest], context: PutContext) -> pb.PutResponse:
        if self._media is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "This model takes text only.")
        try:
            await self._media.put(requests)
        except TokenwireError as error:
            await context.abort(error.grpc_code, error.message)
        return pb.PutResponse()

    async def Expand(self, request: pb.ExpandRequest, context: ExpandContext) -> pb.ExpandResponse:
        if self._media is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "This model takes text only.")
        try:
            return await self._media.expand(request)
        except MediaMissing as error:
            return pb.ExpandResponse(missing=error.missing)
        except TokenwireError as error:
            await context.abort(error.grpc_code, error.message)
