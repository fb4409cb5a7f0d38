// The little that is needed of the DOM. Whatever comes from elsewhere becomes text, never markup.

export const byId = (id) => document.getElementById(id);

/** Make an element with a class and a text. */
export function make(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== "") element.textContent = text;
  return element;
}

/** Set a text, and touch nothing when it is that already: screen readers and selections stay undisturbed. */
export function say(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Set the class of an element, likewise. */
export function look(element, className) {
  if (element.className !== className) element.className = className;
}

/**
 * Make a table's body show rows: [{key, cells: [{label, text, note?, className?}]}].
 * Rows stay the same elements for as long as their key is there.
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
  look(cell, className);
  look(value, tone);
  say(value, text);
  say(below, note);
}
