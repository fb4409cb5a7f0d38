// Renders a snapshot (/status.json): figures, workers, models. Rates are differences between two snapshots of one process.

import { byId, setClass, make, setText, showRows } from "./elements.js";

const KEPT = 120;
const number = new Intl.NumberFormat("en");
const rates = [];
/** The last snapshot of each process: several may answer in turn. */
const last = new Map();

/** Render a snapshot. */
export function showStatus(snapshot) {
  const before = last.get(snapshot.process);
  last.set(snapshot.process, snapshot);
  const perWorker = snapshot.workers.map((worker) => rateOf(worker, before, snapshot));
  const ready = snapshot.workers.filter((worker) => worker.session === "ready" && worker.routable).length;

  setText(byId("version"), snapshot.version);
  setText(byId("process"), snapshot.process);
  setText(byId("state"), `${snapshot.state}, ${ready} of ${snapshot.workers.length} workers ready`);
  setClass(byId("state"), `state ${snapshot.state !== "ready" ? "bad" : ready < snapshot.workers.length ? "wait" : "good"}`);

  showFigures(snapshot, before ? sum(perWorker) : null);
  byId("no-workers").hidden = snapshot.workers.length > 0;
  showRows(byId("workers"), snapshot.workers.map((worker, index) => workerRow(worker, perWorker[index])));
  showRows(byId("models"), snapshot.models.map(modelRow));
  showChoices(snapshot.models);
}

/** Show that there is no snapshot, and why. */
export function showUnavailable(reason) {
  setText(byId("state"), reason);
  setClass(byId("state"), "state bad");
}

function rateOf(worker, before, now) {
  const then = before?.workers.find((each) => each.worker === worker.worker);
  const seconds = now.uptime_s - (before?.uptime_s ?? now.uptime_s);
  return then && seconds > 0 ? Math.max(0, worker.tokens - then.tokens) / seconds : 0;
}

function showFigures(snapshot, rate) {
  setText(byId("rate"), rate === null ? "–" : number.format(Math.round(rate)));
  setText(byId("running"), number.format(sum(snapshot.workers.map((worker) => worker.running ?? worker.open_slots))));
  setText(byId("waiting"), number.format(sum(snapshot.workers.map((worker) => worker.waiting ?? 0))));
  setText(byId("queued"), number.format(sum(snapshot.models.map((model) => model.waiting_requests))));
  if (rate === null) return;
  rates.push(rate);
  if (rates.length > KEPT) rates.shift();
  const top = Math.max(1, ...rates);
  const points = rates.map((each, index) => `${KEPT - rates.length + index},${29 - (28 * each) / top}`);
  byId("history-line").setAttribute("points", points.join(" "));
}

function workerRow(worker, rate) {
  const connected = worker.session !== "connecting";
  const paused = connected && worker.pause_state !== "running" ? `, ${worker.pause_state}` : "";
  const tone = worker.session === "ready" && worker.routable ? "good" : ["draining", "stalled"].includes(worker.session) ? "wait" : "bad";
  const usage = worker.kv_cache_usage === null ? "–" : `${(100 * worker.kv_cache_usage).toFixed(1)} %`;
  return {
    key: worker.worker,
    cells: [
      { label: "address", text: worker.worker },
      { label: "model", text: worker.model ?? "–", note: worker.weight_version ? `weights ${worker.weight_version}` : "" },
      { label: "state", text: worker.session + paused, tone, note: reasonOf(worker) },
      { label: "running", text: runningOf(worker, connected), className: "number" },
      { label: "waiting", text: worker.waiting === null ? "–" : number.format(worker.waiting), className: "number" },
      { label: "KV cache", text: usage, className: "number" },
      { label: "tokens/s", text: number.format(Math.round(rate)), className: "number" },
    ],
  };
}

/** For servers that do not report what they run: the sequences sent by this process. */
function runningOf(worker, connected) {
  if (worker.running === null) return connected ? `${number.format(worker.open_slots)} from here` : "–";
  return `${number.format(worker.running)} of ${number.format(worker.max_num_seqs)}`;
}

function reasonOf(worker) {
  const reasons = new Set([worker.reason, worker.reconcile_error].filter(Boolean));
  return [...reasons].join("; ");
}

function modelRow(model) {
  const [name, ...others] = model.names;
  return {
    key: name,
    cells: [
      { label: "name", text: name, note: others.length ? `also ${others.join(", ")}` : "" },
      { label: "adapters", text: model.adapters.join(", ") || "–" },
      { label: "context", text: model.max_model_len ? number.format(model.max_model_len) : "–", className: "number" },
      { label: "queued requests", text: number.format(model.waiting_requests), className: "number" },
    ],
  };
}

/** List the models in the playground, keeping the selected one if it is still served. */
function showChoices(models) {
  const names = models.flatMap((model) => [model.names[0], ...model.adapters]);
  const select = byId("chat-model");
  const shown = [...select.options].map((option) => option.value);
  if (names.length === shown.length && names.every((name, index) => name === shown[index])) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => make("option", "", name)));
  if (names.includes(chosen)) select.value = chosen;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
