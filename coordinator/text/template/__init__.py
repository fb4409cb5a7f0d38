"""Chat templates: messages in, a prompt's text out, within bounds."""
