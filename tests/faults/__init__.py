"""Effects of faults on streams: real processes, real sockets, injected faults."""
