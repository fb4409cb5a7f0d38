#!/bin/sh
# Stream a chat with curl; every line that begins with "data: " is one event.
set -eu
url=${TOKENWIRE_URL:-http://127.0.0.1:8000}

curl --silent --show-error --fail-with-body --no-buffer "$url/v1/chat/completions" \
  --header 'Content-Type: application/json' \
  --data '{
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 40, "temperature": 0, "stream": true
  }'
