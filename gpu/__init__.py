"""What only a GPU can show: steps that run on one machine with one, and dry on a CPU."""
