// A form that sends one request with the key of its route and shows the response as it arrives.

import { make, setText } from "./elements.js";
import { fetchApi, getAdminKey, getKey } from "./server.js";

/** Return the form of one operation. */
export function attemptForm(path, method, operation) {
  const form = make("form", "attempt");
  const inputs = (operation.parameters ?? []).map((parameter) => input(form, parameter));
  const body = operation.requestBody && textArea(form, operation.requestBody.content["application/json"].example ?? {});
  if (body && operation.requestBody.content["application/json"].example?.model) nameModel(body);
  const send = make("button", "", "Send");
  const stop = make("button", "", "Stop");
  stop.type = "button";
  stop.disabled = true;
  const row = make("div", "row");
  row.append(send, stop);
  const status = make("p", "note");
  status.setAttribute("role", "status");
  const answer = make("pre");
  form.append(row, status, answer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const controller = new AbortController();
    stop.onclick = () => controller.abort();
    send.disabled = !(stop.disabled = false);
    setText(answer, "");
    try {
      const headers = body ? { "Content-Type": "application/json" } : {};
      const key = keyFor(operation.security ?? []);
      if (key) headers.Authorization = `Bearer ${key}`;
      const options = { method: method.toUpperCase(), headers, body: body?.value, signal: controller.signal };
      await show(await fetch(address(path, inputs), { ...options, cache: "no-store", credentials: "omit" }), status, answer);
    } catch (error) {
      setText(status, controller.signal.aborted ? "Stopped." : `Failed: ${error.message}`);
    }
    send.disabled = !(stop.disabled = true);
  });
  return form;
}

function input(form, { name, in: place, required }) {
  const label = make("label", "", `${name} `);
  const field = make("input");
  field.required = required;
  label.append(field);
  form.append(label);
  return { name, place, field };
}

function textArea(form, example) {
  const area = make("textarea");
  area.rows = 8;
  area.spellcheck = false;
  area.setAttribute("aria-label", "Body");
  area.value = JSON.stringify(example, null, 2);
  form.append(area);
  return area;
}

/** Replace the example's model by one that is served. */
async function nameModel(area) {
  const before = area.value;
  try {
    const [model] = (await (await fetchApi("v1/models")).json()).data;
    if (model && area.value === before) area.value = JSON.stringify({ ...JSON.parse(before), model: model.id }, null, 2);
  } catch {
    // The list may require a key: the user then types the name or enters a key.
  }
}

function keyFor(security) {
  return security.some((each) => "adminKey" in each) ? getAdminKey() : getKey();
}

/** Return a relative URL, so that it works behind a proxy's prefix too. */
function address(path, inputs) {
  const query = new URLSearchParams();
  for (const { name, place, field } of inputs) {
    if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(field.value));
    else if (field.value) query.append(name, field.value);
  }
  return path.slice(1) + (query.size ? `?${query}` : "");
}

async function show(response, status, answer) {
  setText(status, `${response.status} ${response.statusText}`);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let piece; reader && !(piece = await reader.read()).done; setText(answer, text)) text += piece.value;
  if (response.headers.get("content-type")?.startsWith("application/json")) setText(answer, JSON.stringify(JSON.parse(text), null, 2));
}
