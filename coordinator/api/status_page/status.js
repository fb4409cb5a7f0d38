// Renders the state of the fleet: figures, and tables of workers, models and processes.

import { byId, make, setClass, setText } from "./elements.js";
import { merge, sum } from "./fleet.js";
import { Table } from "./table.js";

const number = new Intl.NumberFormat("en");
const rounded = (value) => (value === null ? "–" : number.format(Math.round(value)));

const workers = new Table(
  byId("workers"),
  [
    { label: "address", value: (worker) => worker.worker },
    {
      label: "model",
      value: (worker) => worker.model,
      cell: (worker) => ({ text: worker.model ?? "–", note: servedOf(worker) }),
    },
    { label: "state", value: stateOf, cell: (worker) => ({ text: stateOf(worker), tone: `dot ${toneOf(worker)}`, note: reasonOf(worker) }) },
    { label: "running", numeric: true, value: (worker) => worker.running ?? worker.open_slots, cell: runningOf },
    { label: "waiting", numeric: true, value: (worker) => worker.waiting },
    {
      label: "KV cache",
      numeric: true,
      value: (worker) => worker.kv_cache_usage,
      cell: ({ kv_cache_usage: usage }) => ({ text: usage === null ? "–" : `${(100 * usage).toFixed(1)} %` }),
    },
    { label: "tokens/s", numeric: true, value: (worker) => worker.rate, cell: (worker) => ({ text: rounded(worker.rate) }) },
  ],
  true,
);
const models = new Table(byId("models"), [
  {
    label: "name",
    value: (model) => model.key,
    cell: ({ names: [name, ...others] }) => ({ text: name, note: others.length ? `also ${others.join(", ")}` : "" }),
  },
  { label: "revisions", value: ({ revisions }) => sharesOf(revisions ?? {}) || null },
  { label: "adapters", value: (model) => model.adapters.join(", ") || null },
  {
    label: "context",
    numeric: true,
    value: (model) => model.max_model_len,
    cell: (model) => ({ text: model.max_model_len ? `${number.format(model.max_model_len)} tokens` : "–" }),
  },
  { label: "queued requests", numeric: true, value: (model) => model.waiting_requests },
  { label: "sessions' prompts", value: ({ prefixes }) => causesOf(prefixes) || null },
]);
const processes = new Table(byId("processes"), [
  { label: "process", value: (process) => process.key },
  { label: "state", value: (process) => process.state },
  { label: "up", numeric: true, value: (process) => process.uptime, cell: (process) => ({ text: durationOf(process.uptime) }) },
  { label: "open sequences", numeric: true, value: (process) => process.open },
  { label: "tokens/s", numeric: true, value: (process) => process.rate, cell: (process) => ({ text: rounded(process.rate) }) },
]);

/** Render the snapshots of all processes. */
export function showStatus(snapshots) {
  const fleet = merge(snapshots);
  const ready = fleet.workers.filter((worker) => worker.ready).length;
  const all = fleet.workers.length;
  setText(byId("version"), fleet.version);
  setText(byId("state"), `${fleet.state}, ${ready} of ${all} workers ready`);
  setClass(byId("state"), `state dot ${fleet.state !== "ready" ? "bad" : ready < all ? "wait" : "good"}`);

  const rates = fleet.processes.map((process) => process.rate);
  setText(byId("rate"), rates.includes(null) ? "–" : rounded(sum(rates)));
  setText(byId("running"), number.format(sum(fleet.workers.map((worker) => worker.running ?? worker.open_slots))));
  setText(byId("waiting"), number.format(sum(fleet.workers.map((worker) => worker.waiting ?? 0))));
  setText(byId("queued"), number.format(sum(fleet.models.map((model) => model.waiting_requests))));

  byId("no-workers").hidden = all > 0;
  byId("processes-section").hidden = fleet.processes.length < 2;
  workers.show(fleet.workers);
  models.show(fleet.models);
  processes.show(fleet.processes);
  offerModels(fleet.models);
}

/** Show that there is no snapshot, and why. */
export function showUnavailable(reason) {
  setText(byId("state"), reason);
  setClass(byId("state"), "state dot bad");
}

function stateOf(worker) {
  const paused = worker.session !== "connecting" && worker.pause_state !== "running" ? `, ${worker.pause_state}` : "";
  return worker.session + paused;
}

function servedOf({ weight_version: version, revision }) {
  return [version && `weights ${version}`, revision && `revision ${revision}`].filter(Boolean).join(", ");
}

/** During a rollout, the share of new requests of each revision. */
function sharesOf(revisions) {
  const shares = Object.entries(revisions);
  return shares.map(([revision, share]) => (shares.length > 1 ? `${revision}: ${share} %` : revision)).join(", ");
}

/** Why prompts of sessions could not use what was cached of the last ones, the most frequent cause first. */
function causesOf(prefixes) {
  const causes = Object.entries(prefixes).sort(([, one], [, other]) => other - one);
  return causes.map(([cause, count]) => `${cause === "none" ? "continued" : cause.replace("_", " ")}: ${number.format(count)}`).join(", ");
}

function toneOf(worker) {
  return worker.ready ? "good" : ["draining", "stalled"].includes(worker.session) ? "wait" : "bad";
}

function reasonOf(worker) {
  return [...new Set([worker.only, worker.reason, worker.reconcile_error].filter(Boolean))].join("; ");
}

/** For servers that do not report what they run: the sequences sent by this coordinator. */
function runningOf(worker) {
  const { session, running, max_num_seqs: most, open_slots: own } = worker;
  if (running === null) return { text: session === "connecting" ? "–" : `${number.format(own)} from here` };
  return { text: `${number.format(running)} of ${number.format(most)}` };
}

function durationOf(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** List the models in the playground, keeping the selected one if it is still served. */
function offerModels(served) {
  const names = served.flatMap((model) => [model.names[0], ...model.adapters]);
  const select = byId("chat-model");
  const shown = [...select.options].map((option) => option.value);
  if (names.length === shown.length && names.every((name, index) => name === shown[index])) return;
  const chosen = select.value;
  select.replaceChildren(...names.map((name) => make("option", "", name)));
  if (names.includes(chosen)) select.value = chosen;
}
