// DOM helpers. Data always becomes text, never markup.

export const byId = (id) => document.getElementById(id);

/** Create an element with a class and a text. */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== "") element.textContent = text;
  return element;
}

/** Set a text only if it differs, so that screen readers and selections are undisturbed. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Set the class of an element only if it differs. */
export function setClass(element, className) {
  if (element.className !== className) element.className = className;
}

/**
 * Update the rows of a table's body: [{key, cells: [{label, text, note?, className?}]}].
 * Elements are reused by key.
 */
export function showRows(body, rows) {
  const present = new Map([...body.children].map((row) => [row.dataset.key, row]));
  rows.forEach(({ key, cells }, position) => {
    const row = present.get(key) ?? makeRow(key, cells);
    present.delete(key);
    cells.forEach((cell, index) => fill(row.children[index], cell));
    if (body.children[position] !== row) body.insertBefore(row, body.children[position] ?? null);
  });
  for (const gone of present.values()) gone.remove();
}

function makeRow(key, cells) {
  const row = make("tr");
  row.dataset.key = key;
  row.setAttribute("role", "row");
  for (const { label } of cells) {
    const cell = make("td");
    cell.setAttribute("role", "cell");
    cell.dataset.label = label;
    const value = make("div");
    value.append(make("span"), make("span", "note"));
    cell.append(value);
    row.append(cell);
  }
  return row;
}

function fill(cell, { text, note = "", className = "", tone = "" }) {
  const [value, below] = cell.firstChild.children;
  setClass(cell, className);
  setClass(value, tone);
  setText(value, text);
  setText(below, note);
}
