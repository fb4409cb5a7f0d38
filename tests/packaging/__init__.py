"""What users install: the wheel, and every documented install command."""
