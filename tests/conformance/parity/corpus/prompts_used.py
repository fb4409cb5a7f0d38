"""Prompts that several topics share, and the embedded model's greedy replies to them."""

SUM = "What is 2+2?"  # The answer to the equation 2 + 2 is 4. And then it ends.
COLORS = "Name three colors."  # 1. Red\n2. Blue\n3. Green
STORY = "Tell me a story."
PARTY = "Write an emoji party: 🎉🎊🥳 only emojis"  # 🎉🎊🥳🎉🎊 and so on, two or more tokens each
FRANCE = "The capital of France is"  # Paris.\n\nThe answer is: 2018-…
FACES = "😀 😃 😄 😁 😆 😀 😃 😄 😁 😆 😀 😃"
TURNS = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "Hello, who are you?"},
    {"role": "assistant", "content": "A model."},
    {"role": "user", "content": "Which one?"},
]
SCRAPS = [181, 249, 121, 222, 228, 235, 100, 101, 133, 187, 188, 10813, 232]
"""Tokens that are parts of characters: whatever is sampled from them, most of it is broken text."""
EOS = ("stop", None)
LENGTH = ("length", None)
