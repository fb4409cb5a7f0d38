// Polls the status once a second while the page is visible, and prompts for a key where one is required.

import { startChat } from "./chat.js";
import { byId, setText } from "./elements.js";
import { fetchApi, forgetKey, getKey, keepKey } from "./server.js";
import { showUnavailable, showStatus } from "./status.js";

const EVERY_MS = 1000;
const AFTER_FAILURE_MS = 3000;
let timer = 0;
let polling = false;

async function refresh() {
  clearTimeout(timer);
  if (polling || document.hidden) return;
  polling = true;
  let pause = EVERY_MS;
  try {
    const response = await fetchApi("status.json", { signal: AbortSignal.timeout(5000) });
    showStatus(await response.json());
    showKeyForm(false);
  } catch (error) {
    pause = error.status === 401 ? null : AFTER_FAILURE_MS;
    if (error.status === 401) showKeyForm(true);
    else showUnavailable(`This coordinator is unreachable (${error.message}).`);
  }
  polling = false;
  if (pause !== null) timer = setTimeout(refresh, pause);
}

function showKeyForm(needed) {
  byId("key-forget").hidden = needed || !getKey();
  if (byId("key-form").hidden === !needed) return;
  byId("key-form").hidden = !needed;
  if (needed) {
    showUnavailable("An API key is required.");
    byId("key").focus();
  }
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value.trim());
  byId("key").value = "";
  setText(byId("key-error"), "");
  refresh().then(() => {
    if (!byId("key-form").hidden) setText(byId("key-error"), "Invalid API key.");
  });
});
byId("key-forget").addEventListener("click", () => {
  forgetKey();
  location.reload();
});
document.addEventListener("visibilitychange", refresh);
startChat();
refresh();
