"""Generated from proto/tokenwire/v1 by `make proto`; do not edit."""
