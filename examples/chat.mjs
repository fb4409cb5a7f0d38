// Stream a chat from JavaScript without a library: `node examples/chat.mjs` (18 or later).

const url = process.env.TOKENWIRE_URL ?? "http://127.0.0.1:8000";

const response = await fetch(`${url}/v1/chat/completions`, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify({
    messages: [{ role: "user", content: "What is the capital of France?" }],
    max_tokens: 40,
    temperature: 0,
    stream: true,
  }),
});
if (!response.ok) {
  console.error(await response.text());
  process.exit(1);
}

let buffered = "";
for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
  const events = (buffered + piece).split("\n\n");
  buffered = events.pop(); // an event that has not arrived completely
  for (const event of events) {
    const data = event.replace(/^data: /, "");
    if (data === "[DONE]") break;
    process.stdout.write(JSON.parse(data).choices[0]?.delta.content ?? "");
  }
}
console.log();
