"""Token-exact history: prompts that continue a conversation reuse the ids of its earlier turns."""
