// Sums the samples of all processes (/status/traffic.json) and derives what the charts show.

const [PERIOD, SECONDS, TOKENS, REQUESTS, FAILURES, PROMPT, CACHED, FIRST_TOKENS, GAPS] = Array(9).keys();
/** Percentiles and ratios are of this many samples: few requests end in one. */
const WINDOW = 6;
const KEPT_S = 3600;

/** An hour of samples, by process and period, of the coordinator that responded last. */
export class Traffic {
  constructor() {
    this._processes = new Map();
    this._about = null;
    /** The period to request more samples from. */
    this.since = 0;
  }

  get isEmpty() {
    return !this._about;
  }

  /** How long there have been samples. */
  get seconds() {
    const oldest = [...this._processes.values()].map((known) => Math.min(...known.keys(), this._about.period));
    return (this._about.period - Math.min(...oldest)) * this._about.period_s;
  }

  /** Add a response of the server. */
  add(response) {
    this._about = response;
    const before = this._processes;
    const oldest = response.period - KEPT_S / response.period_s;
    const isWhole = !this.since || response.processes.every(({ process }) => before.has(process));
    // The latest samples are requested again, as processes are not simultaneous, and all of a process that is new.
    this.since = isWhole ? response.period - 3 : 0;
    this._processes = new Map();
    for (const { process, samples } of response.processes) {
      const known = new Map(before.get(process));
      for (const sample of samples) known.set(sample[PERIOD], sample);
      for (const period of known.keys()) if (period <= oldest) known.delete(period);
      this._processes.set(process, known);
    }
  }

  /** Return columns by name, one value for each period of the last seconds; null where there is nothing to show. */
  columns(seconds) {
    const { period, period_s: length } = this._about;
    const count = seconds / length;
    const totals = [];
    for (let each = period - count - WINDOW; each <= period; each++) totals.push(this._total(each));
    const shown = totals.slice(WINDOW);
    const windows = shown.map((_, index) => joined(totals.slice(index + 1, index + 1 + WINDOW)));
    return {
      time: shown.map((_, index) => (period - count + index) * length),
      tokens: shown.map((total) => total && total[TOKENS]),
      first50: windows.map((each) => this._firstToken(each, 0.5)),
      first95: windows.map((each) => this._firstToken(each, 0.95)),
      gap50: windows.map((each) => this._gap(each, 0.5)),
      gap95: windows.map((each) => this._gap(each, 0.95)),
      failures: windows.map((each) => ratio(each[FAILURES], each[REQUESTS])),
      cached: windows.map((each) => ratio(each[CACHED], each[PROMPT])),
    };
  }

  _total(period) {
    const samples = [...this._processes.values()].map((known) => known.get(period)).filter(Boolean);
    if (!samples.length) return null;
    const total = joined(samples);
    total[TOKENS] = samples.reduce((rate, each) => rate + each[TOKENS] / Math.max(each[SECONDS], 1), 0);
    return total;
  }

  _firstToken(total, share) {
    return quantile(total[FIRST_TOKENS], this._about.first_token_bounds_s, share);
  }

  _gap(total, share) {
    return quantile(total[GAPS], this._about.token_gap_bounds_s, share);
  }
}

function joined(samples) {
  const total = [0, 0, 0, 0, 0, 0, 0, [], []];
  for (const sample of samples.filter(Boolean)) {
    for (const column of [TOKENS, REQUESTS, FAILURES, PROMPT, CACHED]) total[column] += sample[column];
    for (const column of [FIRST_TOKENS, GAPS])
      sample[column].forEach((count, index) => (total[column][index] = (total[column][index] ?? 0) + count));
  }
  return total;
}

const ratio = (part, whole) => (whole ? part / whole : null);

/** Estimate a quantile from a histogram, as if the values of a bucket were evenly spread. */
function quantile(counts, bounds, share) {
  const rank = share * counts.reduce((total, count) => total + count, 0);
  if (!rank) return null;
  let below = 0;
  for (const [index, count] of counts.entries()) {
    if (count && below + count >= rank) {
      const lower = index ? bounds[index - 1] : 0;
      return lower + ((bounds[index] ?? lower) - lower) * ((rank - below) / count);
    }
    below += count;
  }
  return bounds.at(-1);
}
