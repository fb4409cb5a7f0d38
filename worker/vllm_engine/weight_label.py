"""The label of an engine's weights: vLLM keeps it and stamps each step with it, but not in its first minors."""

from typing import Any

_INITIAL = "default"
"""vLLM's own."""


class WeightLabel:
    """The label as of the last step."""

    def __init__(self) -> None:
        self.current = _INITIAL

    async def read(self, llm: Any) -> str:
        """Return the label, read anew if this AsyncLLM keeps it."""
        if hasattr(llm, "get_weight_version"):
            self.current = str(await llm.get_weight_version())
        return self.current

    async def set(self, llm: Any, version: str) -> None:
        """Label the current weights; later steps carry the label."""
        if hasattr(llm, "update_weight_version"):
            await llm.update_weight_version(version)
        else:
            self.current = version

    async def finish_update(self, llm: Any, version: str | None) -> None:
        """Finish an update of the weights, and label them if a label is given."""
        if hasattr(llm, "update_weight_version"):
            await llm.finish_weight_update(version)
        else:
            await llm.finish_weight_update()
            self.current = version or self.current
