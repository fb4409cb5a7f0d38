// Requests to this coordinator and no other server, with the user's API key if there is one.

const KEY = "tokenwire-key";
const ADMIN_KEY = "tokenwire-admin-key";

export const getKey = () => sessionStorage.getItem(KEY) ?? "";
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const getAdminKey = () => sessionStorage.getItem(ADMIN_KEY) ?? "";
export const keepAdminKey = (key) => sessionStorage.setItem(ADMIN_KEY, key);
/** Remove the keys, and the conversation that they paid for. */
export const forgetAll = () => sessionStorage.clear();

/** An error response. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Send a request and return the response. Throws ApiError with the server's message. */
export async function fetchApi(path, options = {}) {
  const headers = { ...options.headers };
  if (getKey()) headers.Authorization = `Bearer ${getKey()}`;
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new ApiError(response.status, body?.error?.message ?? `${response.status} ${response.statusText}`);
}

/** Post JSON; yield the response, then the objects of its event stream. */
export async function* stream(path, body, signal) {
  const response = await fetchApi(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  yield response;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.code, chunk.error.message);
      yield chunk;
    }
  }
}
