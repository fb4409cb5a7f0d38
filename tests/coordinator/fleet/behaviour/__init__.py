"""Behaviour that several files of the fleet have together, on real sockets: losses, protocol errors, versions."""
