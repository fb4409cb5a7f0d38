// The conversation of the playground, kept in this tab until it is closed.

const KEY = "tokenwire-conversation";
const turns = load();

/** Turns are {role: "user", content, pictures} or {role: "assistant", content, reasoning, name, note, tokens}. */
export const allTurns = () => turns;

/** Return what the model gets. */
export const messages = () => turns.map(message);

/** Return what the model gets of one turn. */
export function message({ role, content, pictures = [] }) {
  if (!pictures.length) return { role, content };
  const parts = pictures.map((url) => ({ type: "image_url", image_url: { url } }));
  return { role, content: content ? [...parts, { type: "text", text: content }] : parts };
}

export function addTurns(...added) {
  turns.push(...added);
  try {
    sessionStorage.setItem(KEY, JSON.stringify(turns));
  } catch {
    // The browser limits the size: the conversation goes on, and does not outlive a reload.
    sessionStorage.removeItem(KEY);
  }
}

export function clearTurns() {
  turns.length = 0;
  sessionStorage.removeItem(KEY);
}

function load() {
  return JSON.parse(sessionStorage.getItem(KEY) ?? "[]");
}
