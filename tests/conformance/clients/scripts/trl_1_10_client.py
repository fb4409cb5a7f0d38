"""TRL's client up to 1.10, which talks to TRL's own server: generate, chat, and log-probabilities of sequences."""

import sys

from trl.generation.vllm_client import VLLMClient

client = VLLMClient(base_url=sys.argv[1])
greedy = {"temperature": 0.0, "max_tokens": 8}

made = client.generate(["Hello, my name", "One two three"], n=1, **greedy, logprobs=2)
assert [len(part) for part in made["completion_ids"]] == [8, 8]
again = client.generate(made["prompt_ids"], n=1, **greedy)
assert again["completion_ids"] == made["completion_ids"]
several = client.generate(made["prompt_ids"], n=2, temperature=1.0, max_tokens=4, generation_kwargs={"seed": 2**62})
assert len(several["completion_ids"]) == 4

chat = client.chat([[{"role": "user", "content": "Say hello."}]], **greedy)
assert len(chat["prompt_ids"]) == len(chat["completion_ids"]) == 1

sequences = [prompt + completion for prompt, completion in zip(made["prompt_ids"], made["completion_ids"], strict=True)]
lengths = [len(prompt) for prompt in made["prompt_ids"]]
for use_binary in (False, True):
    scored = client.get_sequence_logprobs(sequences, lengths, top_logprobs=5, use_binary=use_binary)
    assert [len(part) for part in scored["logprobs"]] == [8, 8]
    likeliest = [[position[0] for position in part] for part in scored["logprob_token_ids"]]
    assert likeliest == made["completion_ids"]
assert [[token for (token,) in part] for part in scored["actual_token_ids"]] == made["completion_ids"]

client.reset_prefix_cache()
world = client.session.get(f"{client.base_url}/get_world_size/").json()
assert world == {"world_size": 1}
