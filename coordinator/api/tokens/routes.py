"""The routes of all token-in contracts."""

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.openai.chat import ChatService
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.tokens.abort import Aborts, abort_routes
from tokenwire.coordinator.api.tokens.chat_tokens import RenderingCheck, chat_tokens_routes
from tokenwire.coordinator.api.tokens.generate import generate_routes
from tokenwire.coordinator.api.tokens.sglang import sglang_routes
from tokenwire.coordinator.api.tokens.tokenize import tokenize_routes
from tokenwire.coordinator.api.tokens.trl import trl_routes
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.generation.service import GenerationService
from tokenwire.coordinator.output.settings import ApiSettings


def token_routes(
    chat: ChatService,
    generation: GenerationService,
    models: ModelDirectory,
    aborts: Aborts,
    api: ApiSettings,
    authorization: AdminAuthorization,
) -> ApiRouter:
    """Return the routes of every contract."""
    router = ApiRouter()
    router.include(tokenize_routes(models, generation, api))
    router.include(generate_routes(generation, models, api))
    router.include(chat_tokens_routes(chat, RenderingCheck(api)))
    router.include(sglang_routes(generation, models))
    router.include(trl_routes(generation, models))
    router.include(abort_routes(aborts, api, authorization))
    return router
