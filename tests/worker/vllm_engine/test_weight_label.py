"""The label of the weights, with a vLLM that keeps it and with one that does not."""

from tokenwire.worker.vllm_engine.weight_label import WeightLabel


class _OldLlm:
    """An AsyncLLM without labels."""

    finished = 0

    async def finish_weight_update(self) -> None:
        self.finished += 1


class _LabellingLlm:
    """An AsyncLLM that keeps the label."""

    label = "first"

    async def get_weight_version(self) -> str:
        return self.label

    async def update_weight_version(self, version: str) -> None:
        self.label = version

    async def finish_weight_update(self, version: str | None) -> None:
        self.label = version or self.label


async def test_a_label_is_kept_here_if_vllm_has_none() -> None:
    """It is set by itself and at the end of an update of the weights, which may leave it as it is."""
    llm, label = _OldLlm(), WeightLabel()
    assert await label.read(llm) == "default"
    await label.set(llm, "two")
    assert await label.read(llm) == "two"
    await label.finish_update(llm, None)
    assert (label.current, llm.finished) == ("two", 1)
    await label.finish_update(llm, "three")
    assert (label.current, llm.finished) == ("three", 2)


async def test_a_label_that_vllm_keeps_changes_with_its_steps() -> None:
    """Setting it leaves the current one: a step that begins later carries the new one."""
    llm, label = _LabellingLlm(), WeightLabel()
    assert await label.read(llm) == "first"
    await label.set(llm, "second")
    assert (llm.label, label.current) == ("second", "first")
    await label.finish_update(llm, "third")
    assert await label.read(llm) == "third"
