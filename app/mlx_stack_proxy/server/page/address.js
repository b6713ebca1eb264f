// The address says, after the `#`, what the page shows, so that a link can be sent:
// `#/exchanges?kind=loop_break&since=12h`. No server gets that part, and it holds no key.

/** Return `{view, id, query}` of the present address. */
export function current() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [view, id] = path.split("/", 2);
  return {
    view: view || "overview",
    id: id ? decoded(id) : "",
    query: new URLSearchParams(query ?? ""),
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone % that somebody typed
  }
}

/** Return the address of a view. `query`: an object, whose empty values are left out. */
export function to(view, id = "", query = {}) {
  const given = Object.entries(query).filter(([, value]) => value);
  const asked = new URLSearchParams(given).toString();
  const path = view === "overview" ? "#/" : `#/${view}${id ? "/" + encodeURIComponent(id) : ""}`;
  return asked ? `${path}?${asked}` : path;
}

/** Return the address of the same view with another value in its query, on its first page. */
export function changed(name, value) {
  const { view, id, query } = current();
  const given = Object.fromEntries(query);
  delete given.before;
  return to(view, id, { ...given, [name]: value });
}

const UNITS = { m: 60, h: 3600, d: 86400 };
export const RANGES = { "1h": "1 hour", "12h": "12 hours", "24h": "24 hours", "7d": "7 days", "14d": "14 days" };
export const USUAL_RANGE = "12h";

/** Return how many seconds back the address asks for. */
export function seconds(query) {
  const found = /^(\d{1,4})([mhd])$/.exec(query.get("since") ?? USUAL_RANGE);
  return found ? Number(found[1]) * UNITS[found[2]] : 12 * 3600;
}
