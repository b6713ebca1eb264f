// Asks the JSON endpoints next to the page.

/** An answer with an error status. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** Whether the proxy wants `server.admin_key` first. */
  get wantsKey() {
    return this.status === 401;
  }
}

const PATIENCE = 10_000; // milliseconds

/** Return an endpoint's parsed answer. Throws `Refused`, or an error without a `status` if no proxy answers. */
export async function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const asked = new URLSearchParams(given).toString();
  const options = { credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) };
  return answer(await fetch(asked ? `${path}?${asked}` : path, options));
}

/** Send the key once, for a cookie that no script can read. Throws as `get()`. */
export async function signIn(key) {
  await answer(await fetch("sign-in", { method: "POST", body: new URLSearchParams({ key }) }));
}

export async function signOut() {
  await answer(await fetch("sign-out", { method: "POST" }));
}

async function answer(response) {
  const body = response.status === 204 ? null : await response.json().catch(() => null);
  if (response.ok) return body;
  throw new Refused(response.status, body?.error?.message ?? `status ${response.status}`);
}
