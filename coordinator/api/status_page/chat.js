// The playground: a conversation by POST /v1/chat/completions, streamed.

import { addTurns, allTurns, clearTurns, message, messages } from "./conversation.js";
import { byId, setText } from "./elements.js";
import { returnPictures, shownPictures, startPictures, takePictures } from "./pictures.js";
import { Reply, addEntry } from "./reply.js";
import { stream } from "./server.js";

let running = null;

/** Set up the form, and show what the tab has kept. */
export function startChat() {
  for (const turn of allTurns())
    if (turn.role === "user") showOwn(turn);
    else Reply.restore(byId("chat-log"), turn);
  startPictures();
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
    clearTurns();
    takePictures();
    byId("chat-log").replaceChildren();
    setText(byId("chat-note"), "");
    byId("chat-text").focus();
  });
}

async function send(text) {
  const pictures = takePictures();
  const own = { role: "user", content: text, pictures: pictures.map(({ url }) => url) };
  const history = [...messages(), message(own)];
  const item = showOwn(own);
  byId("chat-text").value = "";
  const controller = (running = new AbortController());
  const reply = new Reply(byId("chat-log"), byId("chat-model").value);
  setText(byId("chat-note"), "");
  setBusy(true);
  let begun = false;
  try {
    for await (const piece of stream("v1/chat/completions", request(history), controller.signal)) {
      begun = true;
      if (piece instanceof Response) reply.begin(piece.headers);
      else followed(() => reply.take(piece));
    }
  } catch (error) {
    setText(byId("chat-note"), controller.signal.aborted ? "Stopped." : `Failed: ${error.message}`);
  }
  followed(() => reply.end());
  // A reply that was cleared meanwhile belongs to no conversation.
  if (reply.isShown() && !begun) {
    reply.remove();
    item.remove();
    returnToForm(text, pictures);
  } else if (reply.isShown() && reply.turn.content) addTurns(own, reply.turn);
  running = null;
  setBusy(false);
}

/** Let a message that was refused be changed and sent again, before what was typed meanwhile. */
function returnToForm(text, pictures) {
  byId("chat-text").value = [text, byId("chat-text").value].filter(Boolean).join("\n");
  returnPictures(pictures);
}

function request(history) {
  const maximum = byId("chat-max").valueAsNumber;
  const temperature = byId("chat-temperature").valueAsNumber;
  const stop = byId("chat-stop").value;
  return {
    model: byId("chat-model").value,
    messages: history,
    stream: true,
    stream_options: { include_usage: true },
    ...(Number.isNaN(maximum) ? {} : { max_tokens: maximum }),
    ...(Number.isNaN(temperature) ? {} : { temperature }),
    ...(stop ? { stop: [stop] } : {}),
    ...(byId("chat-tokens").checked ? { return_token_ids: true, logprobs: true } : {}),
  };
}

function showOwn({ content, pictures = [] }) {
  let entry;
  followed(() => {
    entry = addEntry(byId("chat-log"), "user", "you");
    entry.text.append(content);
    entry.text.after(...shownPictures(pictures));
  });
  return entry.item;
}

/** Make a change to the log, and keep its end in view if it was. */
function followed(change) {
  const page = document.scrollingElement;
  const atEnd = page.scrollHeight - page.scrollTop - page.clientHeight < 80;
  change();
  if (atEnd && !byId("playground-view").hidden) page.scrollTop = page.scrollHeight;
}

function setBusy(busy) {
  byId("chat-log").setAttribute("aria-busy", String(busy)); // Screen readers read the full reply at once.
  byId("chat-cancel").disabled = !busy;
  byId("chat-send").disabled = busy;
}
