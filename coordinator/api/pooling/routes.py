"""All routes of models that pool."""

from tokenwire.coordinator.api.pooling.cohere import cohere_routes
from tokenwire.coordinator.api.pooling.embeddings import embedding_routes
from tokenwire.coordinator.api.pooling.results import result_routes
from tokenwire.coordinator.api.pooling.scoring import scoring_routes
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.generation.model_directory import ModelDirectory
from tokenwire.coordinator.pooling.service import PoolingService


def pooling_routes(pooling: PoolingService, models: ModelDirectory) -> ApiRouter:
    """Return the routes."""
    router = ApiRouter()
    for routes in (embedding_routes, cohere_routes, scoring_routes, result_routes):
        router.include(routes(pooling, models))
    return router
