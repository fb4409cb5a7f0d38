"""Token-exact history: prompts of conversations that go on re-use the very ids of what was said before."""
