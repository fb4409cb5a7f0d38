"""An engine without a model: plausible tokens, timing, caching and faults on command."""
