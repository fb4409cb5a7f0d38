"""What both halves must do alike, besides the messages: versions, digests, hashes, seeds, names of fields."""
