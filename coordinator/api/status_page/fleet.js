// Merges the snapshots of all processes of a coordinator (/status.json) into one view of the fleet.

/** The worst state first: what any process sees is shown. */
const STATES = ["stopping", "no worker is ready", "ready"];
/** Of every process seen: behind a load balancer, several coordinators may respond in turn. */
const last = new Map();

/** Return the merged view. Rates are differences between two snapshots of the same process, null before the second. */
export function merge(snapshots) {
  const views = snapshots.map((snapshot) => ({ snapshot, before: last.get(snapshot.process) }));
  for (const snapshot of snapshots) last.set(snapshot.process, snapshot);
  return {
    version: snapshots[0].version,
    state: STATES.find((state) => snapshots.some((each) => each.state === state)) ?? snapshots[0].state,
    processes: views.map(processOf),
    workers: groupBy(views.flatMap(workersOf), ({ worker }) => worker).map(mergeWorker),
    models: groupBy(snapshots.flatMap(({ models }) => models), ({ names }) => names[0]).map(mergeModel),
  };
}

export const sum = (values) => values.reduce((total, value) => total + value, 0);

function processOf({ snapshot, before }) {
  const workers = workersOf({ snapshot, before });
  return {
    key: snapshot.process,
    state: snapshot.state,
    uptime: snapshot.uptime_s,
    open: sum(workers.map((worker) => worker.open_slots)),
    rate: before ? sum(workers.map((worker) => worker.rate ?? 0)) : null,
  };
}

function workersOf({ snapshot, before }) {
  const seconds = snapshot.uptime_s - (before?.uptime_s ?? snapshot.uptime_s);
  return snapshot.workers.map((worker) => {
    const then = before?.workers.find((each) => each.worker === worker.worker);
    const rate = then && seconds > 0 ? Math.max(0, worker.tokens - then.tokens) / seconds : null;
    return { ...worker, rate, ready: worker.session === "ready" && worker.routable };
  });
}

/** A worker's load is what it reported, for all coordinators; slots and tokens are those of each process. */
function mergeWorker(views) {
  const worst = views.find((view) => !view.ready) ?? views[0];
  const unready = views.filter((view) => !view.ready).length;
  return {
    ...worst,
    key: worst.worker,
    only: unready && unready < views.length ? `in ${unready} of ${views.length} processes` : "",
    model: views.find((view) => view.model)?.model ?? null,
    max_num_seqs: largest(views, "max_num_seqs"),
    running: largest(views, "running"),
    waiting: largest(views, "waiting"),
    kv_cache_usage: largest(views, "kv_cache_usage"),
    open_slots: sum(views.map((view) => view.open_slots)),
    rate: views.every((view) => view.rate === null) ? null : sum(views.map((view) => view.rate ?? 0)),
  };
}

function mergeModel(views) {
  return {
    ...views[0],
    key: views[0].names[0],
    adapters: [...new Set(views.flatMap((view) => view.adapters))],
    max_model_len: largest(views, "max_model_len"),
    waiting_requests: sum(views.map((view) => view.waiting_requests)),
    prefixes: total(views.map((view) => view.prefixes ?? {})),
  };
}

/** Add counts by name. */
function total(counts) {
  const all = {};
  for (const [name, count] of counts.flatMap(Object.entries)) all[name] = (all[name] ?? 0) + count;
  return all;
}

function largest(views, name) {
  const known = views.map((view) => view[name]).filter((value) => value !== null);
  return known.length ? Math.max(...known) : null;
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return [...groups.values()];
}
