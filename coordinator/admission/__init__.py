"""The line in which requests wait for a worker with room: who goes first, how long it may get, and for how long."""
