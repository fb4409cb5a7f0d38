"""JSON as it goes over the wire: no blanks, and text as it is."""

import json

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
