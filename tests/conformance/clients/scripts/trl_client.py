"""TRL's clients since 1.11, on vLLM's own routes: generate, chat, log-probabilities of sequences, pauses."""

import sys

from trl.experimental.async_grpo.vllm_client import VLLMClient as VLLMRolloutClient
from trl.generation.vllm_client import VLLMClient

client = VLLMClient(base_url=sys.argv[1])
greedy = {"temperature": 0.0, "max_tokens": 8}

made = client.generate(["Hello, my name", "One two three"], n=1, **greedy, logprobs=2)
assert [len(part) for part in made["completion_ids"]] == [8, 8]
assert all(len(token) >= 2 for part in made["logprobs"] for token in part)
again = client.generate(made["prompt_ids"], n=1, **greedy)
assert again["completion_ids"] == made["completion_ids"]
several = client.generate(made["prompt_ids"], n=2, temperature=1.0, max_tokens=4, generation_kwargs={"seed": 2**62})
assert len(several["completion_ids"]) == 4
forced = client.generate(["A number:"], structured_outputs_regex=r"[0-9]{3}", **greedy)
assert len(forced["completion_ids"]) == 1

chat = client.chat([[{"role": "user", "content": "Say hello."}]], **greedy, logprobs=0)
assert len(chat["prompt_ids"]) == len(chat["completion_ids"]) == 1
assert len(chat["logprobs"][0]) == len(chat["completion_ids"][0])

sequences = [prompt + completion for prompt, completion in zip(made["prompt_ids"], made["completion_ids"], strict=True)]
lengths = [len(prompt) for prompt in made["prompt_ids"]]
scored = client.get_sequence_logprobs(sequences, lengths, top_logprobs=5)
assert [len(part) for part in scored["logprobs"]] == [8, 8]
assert [[token for (token,) in part] for part in scored["actual_token_ids"]] == made["completion_ids"]
for sampled, read in zip(made["logprobs"], scored["logprobs"], strict=True):
    # Greedy tokens are the likeliest ones: what they got when they were made is what reading them again gives.
    assert all(abs(one[0] - other[0]) < 0.01 for one, other in zip(sampled, read, strict=True))

info = client.get_server_info()
assert info["model_config"]["logprobs_mode"]
assert info["lora_config"] is None
assert info["parallel_config"]["data_parallel_size"] == client.get_world_size() == 1
client.reset_prefix_cache()
try:
    client.init_communicator(device=0)
except RuntimeError as error:
    assert "--weight-transfer-config" in str(error)  # the client's error for servers without one
else:
    raise AssertionError("there is no GPU to communicate with")

rollout = VLLMRolloutClient(server_url=sys.argv[1])
assert rollout.get_dtype() == "torch.float32"
assert rollout.get_max_model_len() > 0
rollout.pause()
rollout.resume()
assert client.generate(made["prompt_ids"], n=1, **greedy)["completion_ids"] == made["completion_ids"]
