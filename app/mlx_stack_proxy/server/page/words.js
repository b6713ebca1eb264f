// Words for events, reasons and kinds. An event of an unknown kind shows its fields as they are.

import { counted, span } from "./dom.js";

const REASONS = {
  tool_validation_failure: "an invalid tool call",
  loop_detected: "a loop",
  timeout: "silence for too long",
  server_error: "an error of the server",
  context_overflow: "a prompt too long for the model",
  empty_response: "an empty reply",
  output_truncated: "a reply cut off at its limit",
  client_error: "a request that the server refuses",
  upstream_unavailable: "LiteLLM out of reach, or the proxy stopping",
  unreachable: "LiteLLM out of reach",
  tier_degraded: "an open breaker",
  client_left: "the client left",
  memory_pressure: "short memory",
  budget_exceeded: "a used-up budget",
  tier_busy: "a full queue",
};

/** Say in words why an attempt failed or the next tier was asked. */
export function reason(name) {
  return REASONS[name] ?? word(name);
}

const tool = (detail) => (detail.tool ? `${detail.tool}: ` : "");
/** Write a name in words. */
export const word = (text) => String(text ?? "").replaceAll("_", " ");
// A loop within a reply has no count.
const loop = (d) => `${tool(d)}${word(d.detector)}${d.repeats ? `, ${counted(d.repeats, "time")}` : ""}`;

const TOLD = {
  loop_warning(d) {
    if (d.truncated) return ["warn", "Reply cut short", word(d.truncated)];
    if (d.action === "second_opinion") return ["warn", "Second opinion", loop(d)];
    return ["warn", "Loop: model warned", loop(d)];
  },
  loop_break: (d) => ["bad", "Loop broken", loop(d)],
  tool_call_invalid: (d) => [
    "warn",
    d.doubt ? "Doubted call" : "Invalid call",
    [`${tool(d)}${word(d.failure)}`, ...(d.fields ?? [])].join(" "),
  ],
  tool_call_repaired: (d) =>
    d.format
      ? ["good", "Call found in text", `${tool(d)}${word(d.format)}`]
      : ["good", "Call mended", `${tool(d)}${word(d.repair)}`],
  escalated: (d) => ["warn", "Next tier", `${d.from} → ${d.to}: ${reason(d.reason)}`],
  exhausted: (d) => ["bad", "No reply", `${word(d.type)} (${d.status})`],
  recovered: (d) => ["good", "Recovered", recovered(d)],
  client_left: (d) => ["", "Client left", d.seconds ? `after ${span(d.seconds)}` : ""],
  store_down: (d) => ["bad", "The store fails", d.why ?? ""],
  store_up: (d) => ["good", "The store works again", d.seconds ? `after ${span(d.seconds)}` : ""],
  tier_degraded: (d) => ["bad", "Breaker open", `tried again in ${span(d.seconds ?? 0)}`],
  prompt_cut: (d) => ["bad", "Prompt cut by its server", `${d.tokens} of about ${d.estimate} tokens read`],
  tier_recovered: () => ["good", "Tier works again", ""],
  upstream_down: (d) => ["bad", "LiteLLM down", d.why ?? ""],
  upstream_up: (d) => ["good", "LiteLLM is back", d.seconds ? `after ${span(d.seconds)}` : ""],
  config_reloaded: (d) => [
    d.restart?.length ? "warn" : "",
    "Configuration reloaded",
    [...(d.keys ?? []), ...(d.restart ?? []).map((key) => `${key} waits for a restart`)].join(", "),
  ],
  config_refused: (d) => ["bad", "Configuration refused", (d.problems ?? []).join("; ")],
  started: (d) => (d.killed ? ["bad", "Proxy started", "after it was killed"] : ["", "Proxy started", d.version ?? ""]),
  stopped: (d) => ["", "Proxy stopped", d.seconds ? `after ${span(d.seconds)}` : ""],
  budget_warning: (d) => ["warn", "Budget nearly used", `${word(d.scope)}, limit ${d.limit}`],
  budget_exceeded: (d) => ["bad", "Budget used up", `${word(d.scope)}, limit ${d.limit}`],
  pressure_changed: (d) => [
    { critical: "bad", warning: "warn" }[d.to] ?? "good",
    "Memory pressure",
    `${d.from} → ${d.to}${d.cause ? ": " + word(d.cause) : ""}`,
  ],
};

function recovered(detail) {
  const parts = [(detail.reasons ?? []).map(reason).join(", ")];
  if (detail.attempts) parts.push(counted(detail.attempts, "attempt"));
  if (detail.seconds) parts.push(span(detail.seconds));
  return parts.filter(Boolean).join(" · ");
}

function plain(event) {
  const said = Object.entries(event.detail ?? {}).map(([name, value]) => `${word(name)} ${shown(value)}`);
  return ["", titled(event.kind), said.join(", ")];
}

/** Write a name in words, the first with a capital. */
export function titled(name) {
  const said = word(name);
  return said.charAt(0).toUpperCase() + said.slice(1);
}

const shown = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

/** Return `{tone, title, text}` for an event. */
export function told(event) {
  const tell = Object.hasOwn(TOLD, event.kind) ? TOLD[event.kind] : null;
  const [tone, title, text] = tell ? tell(event.detail ?? {}) : plain(event);
  return { tone, title, text: String(text) };
}

export const KINDS = Object.keys(TOLD);
