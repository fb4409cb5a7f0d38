"""What is known of each request while it is served, and who hears of it."""
