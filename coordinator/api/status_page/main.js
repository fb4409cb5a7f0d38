// Asks for the status once a second while somebody looks, and for a key where one is needed.

import { startChat } from "./chat.js";
import { byId, say } from "./elements.js";
import { ask, forgetKey, getKey, keepKey } from "./server.js";
import { showAbsence, showStatus } from "./status.js";

const EVERY_MS = 1000;
const AFTER_FAILURE_MS = 3000;
let timer = 0;
let asking = false;

async function refresh() {
  clearTimeout(timer);
  if (asking || document.hidden) return;
  asking = true;
  let pause = EVERY_MS;
  try {
    const response = await ask("status.json", { signal: AbortSignal.timeout(5000) });
    showStatus(await response.json());
    showKeyForm(false);
  } catch (error) {
    pause = error.status === 401 ? null : AFTER_FAILURE_MS;
    if (error.status === 401) showKeyForm(true);
    else showAbsence(`This coordinator does not answer (${error.message}).`);
  }
  asking = false;
  if (pause !== null) timer = setTimeout(refresh, pause);
}

function showKeyForm(needed) {
  byId("key-forget").hidden = needed || !getKey();
  if (byId("key-form").hidden === !needed) return;
  byId("key-form").hidden = !needed;
  if (needed) {
    showAbsence("An API key is needed.");
    byId("key").focus();
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value.trim());
  byId("key").value = "";
  say(byId("key-problem"), "");
  refresh().then(() => {
    if (!byId("key-form").hidden) say(byId("key-problem"), "The coordinator does not know this key.");
  });
});
byId("key-forget").addEventListener("click", () => {
  forgetKey();
  location.reload();
});
document.addEventListener("visibilitychange", refresh);
startChat();
refresh();
