// One reply of the playground: its text as it arrives, its tokens on demand, and how it ended.

import { make, setText } from "./elements.js";

/** Add a turn to the log; return its elements. */
export function addEntry(log, role, name) {
  const item = make("div", role);
  const text = make("p", "reply-text");
  item.append(make("p", "who", name), text);
  log.append(item);
  return { item, text };
}

/** A reply in the log, streamed or restored. */
export class Reply {
  constructor(log, name) {
    this.turn = { role: "assistant", name, content: "", reasoning: "", note: "", tokens: [] };
    this._entry = addEntry(log, "assistant", name);
    this._reasoning = null;
    this._list = null;
    this._started = performance.now();
    this._firstAt = null;
    this._facts = [];
    this._usage = null;
  }

  /** Show a kept reply. */
  static restore(log, turn) {
    const reply = new Reply(log, turn.name);
    reply.turn = turn;
    if (turn.reasoning) reply._showReasoning(turn.reasoning);
    reply._entry.text.append(turn.content);
    if (turn.tokens.length) reply._showTokens(turn.tokens, false);
    reply._entry.item.append(make("p", "note", turn.note));
  }

  isShown() {
    return this._entry.item.isConnected;
  }

  remove() {
    this._entry.item.remove();
  }

  /** Read the response's headers: with --enable-debug-headers, the worker of the request. */
  begin(headers) {
    const worker = headers.get("X-Tokenwire-Worker");
    if (worker) this._facts.push(`from ${worker}`);
  }

  /** Add a chunk. */
  take(chunk) {
    this._usage = chunk.usage ?? this._usage;
    for (const { delta, logprobs, token_ids: ids, finish_reason: finish, stop_reason: stop } of chunk.choices) {
      if ((delta.reasoning || delta.content) && this._firstAt === null) this._firstAt = performance.now();
      if (delta.reasoning) this._showReasoning(delta.reasoning);
      if (delta.content) this._entry.text.append(delta.content);
      this.turn.reasoning += delta.reasoning ?? "";
      this.turn.content += delta.content ?? "";
      if (logprobs?.content?.length) {
        const tokens = logprobs.content.map(({ token, logprob }, index) => [token, ids?.[index] ?? null, logprob]);
        this.turn.tokens.push(...tokens);
        this._showTokens(tokens, true);
      }
      if (finish) this._facts.push(`ended by ${finish}${stop == null ? "" : ` (${JSON.stringify(stop)})`}`);
    }
  }

  /** Show the summary. */
  end() {
    const facts = this._facts;
    if (this._firstAt !== null) facts.push(`first text after ${Math.round(this._firstAt - this._started)} ms`);
    if (this._usage) {
      const { prompt_tokens: before, completion_tokens: made } = this._usage;
      facts.push(`${before} prompt tokens, ${made} made in ${Math.round(performance.now() - this._started)} ms`);
    }
    this.turn.note = facts.join(" · ");
    if (facts.length) this._entry.item.append(make("p", "note", this.turn.note));
  }

  _showReasoning(text) {
    if (!this._reasoning) {
      this._reasoning = make("p", "reasoning");
      this._entry.text.before(this._reasoning);
    }
    this._reasoning.append(text);
  }

  _showTokens(tokens, open) {
    if (!this._list) {
      const details = make("details");
      details.open = open;
      this._summary = make("summary");
      this._list = make("ol", "tokens");
      this._list.setAttribute("aria-label", "Tokens with their ids and log-probabilities");
      details.append(this._summary, this._list);
      this._entry.item.append(details);
    }
    for (const [token, id, logprob] of tokens) {
      const item = make("li", shade(Math.exp(logprob)));
      item.append(make("span", "text", visible(token)), make("span", "id", id ?? "?"), make("span", "id", logprob.toFixed(3).replace("-", "−")));
      this._list.append(item);
    }
    const count = this._list.childElementCount;
    setText(this._summary, `${count} token${count === 1 ? "" : "s"} with ids and log-probabilities`);
  }
}

const shade = (probability) =>
  probability > 0.9 ? "sure" : probability > 0.5 ? "likely" : probability > 0.1 ? "open" : "rare";

/** Make whitespace visible: a token may consist of nothing else. */
const visible = (token) => token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
