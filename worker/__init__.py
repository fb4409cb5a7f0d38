"""The worker owns token ids: ids in, ids out; it knows nothing of HTTP, chat or text."""
