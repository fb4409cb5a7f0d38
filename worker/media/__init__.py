"""Media of prompts in a worker: bytes that coordinators put, and processes that make an engine's input of them."""
