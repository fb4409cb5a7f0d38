// Renders the fields of a JSON schema; nested schemas can be expanded.

import { make } from "./elements.js";

/** Return an element that shows a schema. */
export function schemaView(api, schema) {
  const known = resolve(api, schema);
  const list = make("dl", "schema");
  for (const [name, field] of Object.entries(known.properties ?? {}))
    list.append(nameOf(name, field, known), fieldView(api, field));
  if (list.childElementCount) return list;
  return fieldView(api, known);
}

function nameOf(name, field, parent) {
  const term = make("dt");
  term.append(make("code", "", name), make("span", "note", kindOf(field) + (parent.required?.includes(name) ? ", required" : "")));
  return term;
}

function fieldView(api, field) {
  const view = make("dd");
  const about = [field.description, limitsOf(field)].filter(Boolean).join(" ");
  if (about) view.append(make("p", "", about));
  for (const part of partsOf(field)) {
    const inner = make("details");
    inner.append(make("summary", "", part.$ref.split("/").pop()));
    inner.addEventListener("toggle", () => inner.childElementCount > 1 || inner.append(schemaView(api, part)));
    view.append(inner);
  }
  return view;
}

const resolve = (api, schema) => (schema.$ref ? api.components.schemas[schema.$ref.split("/").pop()] : schema);

/** Return the named schemas that a field refers to. */
function partsOf(field) {
  if (field.$ref) return [field];
  const inner = [...(field.anyOf ?? []), ...(field.oneOf ?? []), field.items, field.additionalProperties];
  return inner.filter((part) => part && typeof part === "object").flatMap(partsOf);
}

/** Return the name of a field's type. */
function kindOf(field) {
  if (field.$ref) return field.$ref.split("/").pop();
  const several = field.anyOf ?? field.oneOf;
  if (several) return several.map(kindOf).join(" or ");
  if ("const" in field) return JSON.stringify(field.const);
  if (field.enum) return field.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (field.type === "array") return field.items ? `list of ${kindOf(field.items)}` : "list";
  return field.type ?? "anything";
}

function limitsOf(field) {
  const words = { minimum: "at least", exclusiveMinimum: "more than", maximum: "at most", exclusiveMaximum: "less than" };
  const found = [field, ...(field.anyOf ?? [])].flatMap((part) =>
    Object.entries(words).flatMap(([name, word]) => (part[name] === undefined ? [] : [`${word} ${part[name]}`])),
  );
  if (field.default !== undefined && field.default !== null) found.push(`default ${JSON.stringify(field.default)}`);
  return found.length ? `(${found.join(", ")})` : "";
}
