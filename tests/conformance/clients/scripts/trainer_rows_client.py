"""examples/trainer_rows.py, and what TRL's trainer makes of it: tensors of ids, log-probabilities and masks."""

import sys
from pathlib import Path

import torch
from trl.trainer.utils import pad

sys.path.insert(0, str(Path(__file__).parents[4] / "examples"))
from trainer_rows import count_twice, rollouts

batch = rollouts(sys.argv[1], ["Count from one to five.", "Count from six to nine."], count_twice)
assert {"prompt_ids", "completion_ids", "logprobs", "env_mask"} <= batch.keys()  # what rollout_func returns
assert batch["session_reward"] in ([1.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0])
padded = {
    name: pad([torch.tensor(each) for each in batch[name]], padding_value=0, padding_side="right")
    for name in ("completion_ids", "logprobs", "env_mask")
}
assert padded["completion_ids"].shape == padded["logprobs"].shape == padded["env_mask"].shape
assert all(sum(mask) > 0 and mask[0] == 1 for mask in batch["env_mask"])
assert bool((padded["logprobs"][padded["env_mask"] == 1] <= 0).all())
assert bool((padded["logprobs"][padded["env_mask"] == 0] == 0).all())
