// Charts of the traffic with uPlot: one figure for each, with the values at the cursor as text.

import { byId, make, setText } from "./elements.js";

const HEIGHT = 160;
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const exactClock = new Intl.DateTimeFormat("en", { timeStyle: "medium", hourCycle: "h23" });
const percent = (value) => `${+(100 * value).toPrecision(value < 0.1 ? 2 : 3)} %`;
const seconds = (value) => (value < 1 ? `${+(1000 * value).toPrecision(3)} ms` : `${+value.toPrecision(3)} s`);
const MINUTES = [1, 2, 5, 10, 15, 30].map((minutes) => 60 * minutes);
const PERCENTILES = ["p50", "p95"];

const CHARTS = [
  { title: "Throughput", note: "tokens per second", columns: ["tokens"], names: ["tokens/s"], format: compact.format, wide: true },
  { title: "Time to first token", note: "of requests that ended", columns: ["first50", "first95"], names: PERCENTILES, format: seconds },
  { title: "Inter-token latency", note: "time between tokens of a sequence", columns: ["gap50", "gap95"], names: PERCENTILES, format: seconds },
  { title: "Failed requests", note: "rejected, timed out or ended by an error", columns: ["failures"], names: ["failed"], format: percent, least: 0.05, most: 1 },
  { title: "Prefix-cache hits", note: "share of prompt tokens", columns: ["cached"], names: ["cached"], format: percent, least: 1, most: 1 },
];
const charts = [];

/** Make the charts, empty. */
export function startCharts() {
  charts.push(...CHARTS.map((about) => new Chart(about)));
  byId("charts").replaceChildren(...charts.map((chart) => chart.figure));
  document.addEventListener("themechange", () => charts.forEach((chart) => chart.plot.redraw(false)));
}

/** Show the columns of a number of seconds. */
export function showTraffic(columns, span) {
  for (const chart of charts) chart.show(columns, span);
}

class Chart {
  constructor(about) {
    this._about = about;
    this._span = "";
    this._canvas = make("div", "plot");
    this._canvas.tabIndex = 0;
    this._canvas.setAttribute("role", "img");
    this._at = make("span", "at note");
    this._values = about.names.map((_, index) => make("b", `value series-${index}`, "–"));
    this.figure = make("figure", about.wide ? "card wide" : "card");
    this.figure.append(this._caption(), this._canvas);
    const nothing = [[], ...about.columns.map(() => [])];
    this.plot = new uPlot(this._options(), nothing, this._canvas);
    this._canvas.addEventListener("keydown", (event) => this._moveCursor(event));
    new ResizeObserver(() => this._fit()).observe(this._canvas);
  }

  show(columns, span) {
    this._span = span;
    this.plot.setData([columns.time, ...this._about.columns.map((name) => columns[name])]);
    this._showValues();
  }

  _caption() {
    const { title, note, names } = this._about;
    const caption = make("figcaption");
    const heading = make("h3", "", title);
    heading.append(" ", make("span", "note", note));
    const values = make("p", "values");
    names.forEach((name, index) => {
      const entry = make("span");
      entry.append(make("i", `marker series-${index}`), `${name} `, this._values[index]);
      values.append(entry);
    });
    values.append(this._at);
    caption.append(heading, values);
    return caption;
  }

  _options() {
    const { columns, names, format, least = 0, most = Infinity } = this._about;
    const grid = { stroke: () => this._color("--line"), width: 1 };
    const axis = { stroke: () => this._color("--soft"), font: "12px system-ui, sans-serif", grid, ticks: { show: false } };
    return {
      width: 300,
      height: HEIGHT,
      padding: [8, 22, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "traffic" }, drag: { x: false, y: false }, y: false },
      scales: { y: { range: (_, __, top) => [0, Math.min(most, Math.max(least, (top || 0) * 1.1)) || 1] } },
      axes: [
        { ...axis, size: 26, gap: 4, space: 55, incrs: MINUTES, values: (_, splits) => splits.map((time) => clock.format(1000 * time)) },
        { ...axis, size: 62, space: 28, values: (_, splits) => splits.map((value) => format(value)) },
      ],
      series: [{}, ...columns.map((_, index) => this._series(names[index], index, columns.length))],
      hooks: { setCursor: [() => this._showValues()] },
    };
  }

  _series(label, index, count) {
    const stroke = () => this._color(`--series-${index}`);
    const fill = count === 1 ? () => this._color("--series-fill") : undefined;
    return { label, stroke, fill, width: 2, points: { show: false } };
  }

  /** Show the values at the cursor, or the last ones. */
  _showValues() {
    const plot = this.plot;
    if (!plot) return;
    const times = plot.data[0];
    const chosen = plot.cursor.idx;
    const index = chosen ?? times.length - 1;
    const texts = this._values.map((element, series) => {
      const column = plot.data[series + 1];
      const value = chosen == null ? column.findLast((each) => each !== null) : column[index];
      setText(element, value == null ? "–" : this._about.format(value));
      return `${this._about.names[series]} ${element.textContent}`;
    });
    const when = chosen == null ? "" : `at ${exactClock.format(1000 * times[index])}`;
    setText(this._at, when);
    this._canvas.setAttribute("aria-label", `${this._about.title}, ${this._span}: ${texts.join(", ")} ${when || "now"}. Arrow keys move in time.`);
  }

  _moveCursor(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const times = this.plot.data[0];
    if (event.key === "Escape") charts.forEach(({ plot }) => plot.setCursor({ left: -10, top: -10 }));
    if (!step || !times.length) return;
    event.preventDefault();
    const index = Math.min(times.length - 1, Math.max(0, (this.plot.cursor.idx ?? times.length - 1) + step));
    for (const { plot } of charts) plot.setCursor({ left: plot.valToPos(times[index], "x"), top: 0 });
  }

  _fit() {
    const width = this._canvas.clientWidth;
    if (width) this.plot.setSize({ width, height: HEIGHT });
  }

  /** A canvas needs the color itself: an element resolves the variable for the theme. */
  _color(variable) {
    this._canvas.style.color = `var(${variable})`;
    return getComputedStyle(this._canvas).color;
  }
}
