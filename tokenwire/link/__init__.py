"""The secured link between coordinators and workers: certificates, tokens, or both."""
