"""Worker discovery: a static list, a file, a DNS name, or a Kubernetes service."""
