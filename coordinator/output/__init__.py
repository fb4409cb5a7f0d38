"""From ids to replies: choices, server-sent events, collected answers. Knows no sockets and no workers."""
