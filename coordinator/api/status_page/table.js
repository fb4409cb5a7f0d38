// A table whose rows are updated in place and sorted by the column that the user chose.

import { make, setClass, setText } from "./elements.js";

const collator = new Intl.Collator("en", { numeric: true });

/**
 * Columns are {label, value, cell?, numeric?}: `value` returns what to sort by, null for unknown, and `cell` what to
 * show, {text, note?, tone?}. The roles are explicit because phones show rows as cards, without a table's layout.
 */
export class Table {
  constructor(table, columns, sortable = false) {
    this._columns = columns;
    this._items = [];
    this._sorted = { column: columns[0], descending: false };
    this._body = make("tbody");
    this._body.setAttribute("role", "rowgroup");
    const head = make("thead");
    head.setAttribute("role", "rowgroup");
    const row = make("tr");
    row.setAttribute("role", "row");
    this._headers = columns.map((column) => this._header(column, sortable));
    row.append(...this._headers);
    head.append(row);
    table.append(head, this._body);
    if (sortable) this._markSorted();
  }

  /** Show items; elements are reused by their `key`. */
  show(items) {
    this._items = items;
    const { column, descending } = this._sorted;
    const sign = descending ? -1 : 1;
    const sorted = items.toSorted((one, other) => compare(column.value(one), column.value(other), sign));
    const present = new Map([...this._body.children].map((row) => [row.dataset.key, row]));
    sorted.forEach((item, position) => {
      const row = present.get(item.key) ?? this._makeRow(item.key);
      present.delete(item.key);
      this._columns.forEach((each, index) => fill(row.children[index], each, item));
      if (this._body.children[position] !== row) this._body.insertBefore(row, this._body.children[position] ?? null);
    });
    for (const gone of present.values()) gone.remove();
  }

  _header(column, sortable) {
    const header = make("th", column.numeric ? "number" : "");
    header.setAttribute("role", "columnheader");
    header.scope = "col";
    if (!sortable) {
      header.textContent = column.label;
      return header;
    }
    const button = make("button", "", column.label);
    button.type = "button";
    button.addEventListener("click", () => {
      this._sorted = { column, descending: this._sorted.column === column && !this._sorted.descending };
      this._markSorted();
      this.show(this._items);
    });
    header.append(button);
    return header;
  }

  _markSorted() {
    this._headers.forEach((header, index) => {
      const chosen = this._columns[index] === this._sorted.column;
      if (chosen) header.setAttribute("aria-sort", this._sorted.descending ? "descending" : "ascending");
      else header.removeAttribute("aria-sort");
    });
  }

  _makeRow(key) {
    const row = make("tr");
    row.dataset.key = key;
    row.setAttribute("role", "row");
    for (const { label, numeric } of this._columns) {
      const cell = make("td", numeric ? "number" : "");
      cell.setAttribute("role", "cell");
      cell.dataset.label = label;
      const value = make("div");
      value.append(make("span"), make("span", "note"));
      cell.append(value);
      row.append(cell);
    }
    return row;
  }
}

function fill(cell, column, item) {
  const { text, note = "", tone = "" } = column.cell ? column.cell(item) : { text: column.value(item) ?? "–" };
  const [value, below] = cell.firstChild.children;
  setClass(value, tone);
  setText(value, text);
  setText(below, note);
}

/** Unknown values are last in both directions. */
function compare(one, other, sign) {
  if (one === null || other === null) return (one === null) - (other === null);
  return sign * (typeof one === "number" ? one - other : collator.compare(one, other));
}
