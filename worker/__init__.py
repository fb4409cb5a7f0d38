"""The worker runs one engine on token ids, without HTTP, chat or text."""
