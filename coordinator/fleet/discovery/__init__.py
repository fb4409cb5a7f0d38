"""Finds workers: a list, a file, a name in the DNS, or a service in Kubernetes."""
