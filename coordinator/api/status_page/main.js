// Polls the server while the page is visible, prompts for a key where one is required, and switches between the views.

import { startCharts, showTraffic } from "./charts.js";
import { startChat } from "./chat.js";
import { byId, setText } from "./elements.js";
import { fetchApi, forgetAll, getKey, keepKey } from "./server.js";
import { showStatus, showUnavailable } from "./status.js";
import { Traffic } from "./traffic.js";

const EVERY_MS = 1000;
const TRAFFIC_EVERY_MS = 5000;
const AFTER_FAILURE_MS = 3000;
const VIEWS = ["status", "playground"];
const traffic = new Traffic();
let timer = 0;
let trafficDue = 0;
let polling = false;

async function refresh() {
  clearTimeout(timer);
  if (polling || document.hidden) return;
  polling = true;
  let pause = EVERY_MS;
  try {
    showStatus((await fetchJson("status.json")).processes);
    if (Date.now() >= trafficDue) await refreshTraffic();
    showKeyForm(false);
  } catch (error) {
    pause = error.status === 401 ? null : AFTER_FAILURE_MS;
    if (error.status === 401) showKeyForm(true);
    else showUnavailable(`This coordinator is unreachable (${error.message}).`);
  }
  polling = false;
  if (pause !== null) timer = setTimeout(refresh, pause);
}

async function fetchJson(path) {
  return (await fetchApi(path, { signal: AbortSignal.timeout(5000) })).json();
}

async function refreshTraffic() {
  const first = traffic.isEmpty;
  traffic.add(await fetchJson(`status/traffic.json?since=${traffic.since}`));
  trafficDue = Date.now() + TRAFFIC_EVERY_MS;
  if (first) chooseSpan();
  showSpan();
}

/** Begin with the shortest span that shows all samples. */
function chooseSpan() {
  const spans = [...document.querySelectorAll("[name=span]")];
  (spans.find((each) => Number(each.value) >= traffic.seconds) ?? spans.at(-1)).checked = true;
}

function showSpan() {
  const chosen = document.querySelector("[name=span]:checked");
  if (!traffic.isEmpty) showTraffic(traffic.columns(Number(chosen.value)), `last ${chosen.parentElement.textContent.trim()}`);
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

function showView() {
  const shown = VIEWS.find((view) => location.hash === `#${view}`) ?? VIEWS[0];
  for (const view of VIEWS) {
    byId(`${view}-view`).hidden = view !== shown;
    if (view === shown) byId(`${view}-link`).setAttribute("aria-current", "page");
    else byId(`${view}-link`).removeAttribute("aria-current");
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
  forgetAll();
  location.reload();
});
byId("span").addEventListener("change", showSpan);
addEventListener("hashchange", showView);
document.addEventListener("visibilitychange", refresh);
startCharts();
startChat();
showView();
refresh();
