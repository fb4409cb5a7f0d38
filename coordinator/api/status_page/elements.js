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
