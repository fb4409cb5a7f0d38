// Renders this server's OpenAPI document: its routes by group, each with its fields and a form to try it.

import { attemptForm } from "./attempt.js";
import { byId, setClass, make, setText } from "./elements.js";
import { schemaView } from "./schema.js";
import { fetchApi, getAdminKey, getKey, keepAdminKey, keepKey } from "./server.js";

async function start() {
  try {
    show(await (await fetchApi("openapi.json")).json());
    setText(byId("state"), "");
  } catch (error) {
    setClass(byId("state"), "state bad");
    setText(byId("state"), `The document is not available (${error.message}).`);
  }
}

function show(api) {
  setText(byId("version"), api.info.version);
  setText(byId("description"), api.info.description);
  showKeys(api.components.securitySchemes);
  for (const { name, description } of api.tags) {
    const section = make("section");
    section.append(make("h2", "", name), make("p", "note", description));
    for (const [path, methods] of Object.entries(api.paths))
      for (const [method, operation] of Object.entries(methods))
        if (operation.tags[0] === name) section.append(operationView(api, path, method, operation));
    byId("operations").append(section);
  }
}

function showKeys(schemes) {
  keyField("api-key", schemes.apiKey, getKey, keepKey);
  keyField("admin-key", schemes.adminKey, getAdminKey, keepAdminKey);
  byId("keys").hidden = !schemes.apiKey && !schemes.adminKey;
  byId("keys").addEventListener("submit", (event) => event.preventDefault());
}

function keyField(id, scheme, get, keep) {
  byId(`${id}-field`).hidden = !scheme;
  byId(id).value = get();
  byId(id).addEventListener("input", () => keep(byId(id).value.trim()));
}

function operationView(api, path, method, operation) {
  const view = make("details", "operation");
  const summary = make("summary");
  summary.append(make("code", "method", method.toUpperCase()), make("code", "", path), make("span", "", operation.summary));
  view.append(summary);
  // Filled when it is opened: there are many.
  view.addEventListener("toggle", () => view.childElementCount > 1 || fill(view, api, path, method, operation));
  return view;
}

function fill(view, api, path, method, operation) {
  if (operation.description) view.append(make("p", "", operation.description));
  const body = operation.requestBody?.content["application/json"];
  if (operation.parameters?.length) view.append(make("h3", "", "Parameters"), parametersView(api, operation.parameters));
  if (body) view.append(make("h3", "", "Body"), schemaView(api, body.schema));
  view.append(make("h3", "", "Responses"));
  for (const [status, answer] of Object.entries(operation.responses)) view.append(answerView(api, status, answer));
  view.append(make("h3", "", "Try it"), attemptForm(path, method, operation));
}

function parametersView(api, parameters) {
  const properties = Object.fromEntries(parameters.map(({ name, schema }) => [name, schema]));
  const required = parameters.filter((each) => each.required).map(({ name }) => name);
  return schemaView(api, { type: "object", properties, required });
}

function answerView(api, status, answer) {
  const response = answer.$ref ? api.components.responses[answer.$ref.split("/").pop()] : answer;
  const view = make("details");
  const summary = make("summary");
  summary.append(make("code", "", status), make("span", "", response.description));
  view.append(summary);
  for (const [type, { schema }] of Object.entries(response.content ?? {}))
    view.append(make("p", "note", type), schemaView(api, schema));
  return view;
}

start();
