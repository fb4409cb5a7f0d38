"""What users install: the wheel, and every install line that documents and messages name."""
