// Pictures for the next message: chosen, dropped or pasted. They are sent as data.

import { byId, make } from "./elements.js";

const pending = [];

/** Set up the ways in which pictures are added. */
export function startPictures() {
  byId("chat-picture").addEventListener("change", async ({ target }) => {
    await addFiles(target.files);
    target.value = "";
  });
  // On the whole page: a file that is dropped beside the form would replace the page, and the conversation with it.
  document.addEventListener("dragover", (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    if (!byId("playground-view").hidden) addFiles(event.dataTransfer.files);
  });
  byId("chat-text").addEventListener("paste", (event) => addFiles(event.clipboardData.files));
}

/** Return the pictures, each with its name and its data URL, and begin anew. */
export function takePictures() {
  const taken = pending.splice(0);
  show();
  return taken;
}

/** Put pictures back, before those that came meanwhile. */
export function returnPictures(taken) {
  pending.unshift(...taken);
  show();
}

/** Return the elements that show pictures. */
export const shownPictures = (urls) => urls.map((url, index) => image(url, `Picture ${index + 1}`));

async function addFiles(files) {
  for (const file of [...files].filter(({ type }) => type.startsWith("image/")))
    pending.push({ name: file.name, url: await read(file) });
  show();
}

function show() {
  byId("chat-text").required = !pending.length;
  byId("chat-pictures").replaceChildren(
    ...pending.map((picture) => {
      const remove = make("button");
      remove.type = "button";
      remove.title = `Remove ${picture.name}`;
      remove.append(image(picture.url, remove.title));
      remove.addEventListener("click", () => {
        pending.splice(pending.indexOf(picture), 1);
        show();
      });
      return remove;
    }),
  );
}

function image(url, text) {
  const element = make("img");
  element.src = url;
  element.alt = text;
  return element;
}

const read = (file) =>
  new Promise((done, fail) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => fail(reader.error);
    reader.readAsDataURL(file);
  });
