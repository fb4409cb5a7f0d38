"""How coordinators and workers authenticate each other."""
