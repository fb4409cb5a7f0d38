"""Stored responses: those of the Responses API that clients retrieve and continue by their ids."""
