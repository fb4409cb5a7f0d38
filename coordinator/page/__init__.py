"""The status page: what this coordinator knows of its fleet, live, and a playground for chats."""
