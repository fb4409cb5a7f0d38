// The playground: one conversation by POST /v1/chat/completions, streamed, optionally with tokens.

import { byId, make, setText } from "./elements.js";
import { stream } from "./server.js";

const messages = [];
let running = null;

/** Set up the form. */
export function startChat() {
  byId("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) send(byId("chat-text").value);
  });
  byId("chat-text").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("chat-form").requestSubmit();
  });
  byId("chat-cancel").addEventListener("click", () => running?.abort());
  byId("chat-clear").addEventListener("click", () => {
    running?.abort();
    messages.length = 0;
    byId("chat-log").replaceChildren();
    setText(byId("chat-note"), "");
  });
}

async function send(text) {
  const log = byId("chat-log");
  const own = { role: "user", content: text };
  const asked = [...messages, own];
  addEntry("user", "you").text.textContent = text;
  byId("chat-text").value = "";

  const controller = (running = new AbortController());
  const reply = new Reply(addEntry("assistant", byId("chat-model").value), byId("chat-tokens").checked);
  byId("chat-cancel").disabled = false;
  byId("chat-send").disabled = true;
  log.setAttribute("aria-busy", "true"); // Screen readers read the whole reply at once.
  setText(byId("chat-note"), "");
  try {
    for await (const piece of stream("v1/chat/completions", request(asked), controller.signal)) {
      if (piece instanceof Response) reply.begin(piece.headers);
      else reply.take(piece);
    }
    reply.end();
  } catch (error) {
    reply.end();
    setText(byId("chat-note"), controller.signal.aborted ? "Stopped." : `Failed: ${error.message}`);
  }
  // A reply that was cleared meanwhile belongs to no conversation.
  if (reply.isShown() && reply.content) messages.push(own, { role: "assistant", content: reply.content });
  running = null;
  log.setAttribute("aria-busy", "false");
  byId("chat-cancel").disabled = true;
  byId("chat-send").disabled = false;
}

function request(asked) {
  const maximum = byId("chat-max").valueAsNumber;
  const temperature = byId("chat-temperature").valueAsNumber;
  const stop = byId("chat-stop").value;
  return {
    model: byId("chat-model").value,
    messages: asked,
    stream: true,
    stream_options: { include_usage: true },
    ...(Number.isNaN(maximum) ? {} : { max_tokens: maximum }),
    ...(Number.isNaN(temperature) ? {} : { temperature }),
    ...(stop ? { stop: [stop] } : {}),
    ...(byId("chat-tokens").checked ? { return_token_ids: true, logprobs: true } : {}),
  };
}

function addEntry(className, who) {
  const item = make("li", className);
  const name = make("p", "who", who);
  const text = make("p", "said");
  item.append(name, text);
  byId("chat-log").append(item);
  return { item, name, text };
}

/** A reply being streamed. */
class Reply {
  constructor(entry, showsTokens) {
    this.content = "";
    this._entry = entry;
    this._tokens = showsTokens ? make("ol", "tokens") : null;
    this._started = performance.now();
    this._facts = [];
    this._usage = null;
    this._firstAt = null;
    if (this._tokens) {
      this._tokens.setAttribute("aria-label", "Tokens with their ids and probabilities");
      entry.item.append(this._tokens);
    }
  }

  isShown() {
    return this._entry.item.isConnected;
  }

  /** Read the response's headers: with --enable-debug-headers, the worker of the request. */
  begin(headers) {
    const worker = headers.get("X-Tokenwire-Worker");
    if (worker) this._facts.push(`from ${worker}`);
  }

  take(chunk) {
    this._usage = chunk.usage ?? this._usage;
    for (const choice of chunk.choices) {
      const text = (choice.delta.reasoning ?? "") + (choice.delta.content ?? "");
      if (text && this._firstAt === null) this._firstAt = performance.now();
      this.content += choice.delta.content ?? "";
      if (text) this._entry.text.append(text);
      if (this._tokens && choice.logprobs?.content) this._showTokens(choice);
      if (choice.finish_reason) this._facts.push(this._ending(choice));
    }
  }

  /** Show the summary. */
  end() {
    const facts = [...this._facts];
    if (this._firstAt !== null) facts.push(`first text after ${Math.round(this._firstAt - this._started)} ms`);
    if (this._usage) {
      const { prompt_tokens: before, completion_tokens: made } = this._usage;
      facts.push(`${before} prompt tokens, ${made} made in ${Math.round(performance.now() - this._started)} ms`);
    }
    if (facts.length) this._entry.item.append(make("p", "note", facts.join("; ")));
  }

  _ending(choice) {
    const reason = choice.stop_reason ?? null;
    return `ended by ${choice.finish_reason}${reason === null ? "" : ` (${JSON.stringify(reason)})`}`;
  }

  _showTokens({ logprobs, token_ids: ids }) {
    logprobs.content.forEach(({ token, logprob }, index) => {
      const probability = Math.exp(logprob);
      const item = make("li", shade(probability));
      const percent = `${(100 * probability).toFixed(1)} %`;
      item.append(make("span", "text", visible(token)), make("span", "id", `${ids?.[index] ?? "?"} · ${percent}`));
      this._tokens.append(item);
    });
  }
}

const shade = (probability) =>
  probability > 0.9 ? "sure" : probability > 0.5 ? "likely" : probability > 0.1 ? "open" : "rare";

/** Make whitespace visible: a token may consist of nothing else. */
const visible = (token) => token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
