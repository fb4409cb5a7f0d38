"""Reports tools that were left out of a prompt because only their vendor's servers can run them."""

import json
import logging
from collections.abc import Sequence

from starlette.responses import Response

log = logging.getLogger(__name__)

HEADER = "X-Tokenwire-Tools-Left-Out"


class LeftOutTools:
    """Names these tools in a header of each response, and once in the log."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def name_in(self, response: Response, types: Sequence[str]) -> Response:
        """Add the header to the response of a request with such tools; `types` are from the route's own list."""
        if types:
            response.headers[HEADER] = ", ".join(dict.fromkeys(types))
        for type_ in types:
            if type_ not in self._logged:
                self._logged.add(type_)
                log.warning("left out tools of type %s, which only their vendor's servers run", json.dumps(type_))
        return response
