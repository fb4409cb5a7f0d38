"""An engine without a model: plausible tokens, time, cache and faults on command."""
