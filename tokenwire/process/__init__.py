"""What every process needs, a coordinator's and a worker's: logs, sockets, files that rotate, startup."""
