"""Routes of pooling models: embeddings, scores and classes."""
