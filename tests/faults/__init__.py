"""What becomes of streams when something breaks: real processes, real sockets, faults on command."""
