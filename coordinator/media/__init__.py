"""Pictures that requests name: fetches them with guards, checks what they are, and keeps their bytes by digest."""
