"""Encodes JSON for responses: compact, without escaping non-ASCII text."""

import json

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
