"""Turns ids into replies: choices, server-sent events and collected responses, without sockets or workers."""
