// The proxy's state: a few words for the head of the page, and a list of problems.

/** Return `{tone, word}` for a status: its worst problem, or "All well". */
export function overall(status) {
  const tiers = Object.entries(status.tiers);
  const out = tiers.filter(([, tier]) => tier.state !== "ok").map(([name]) => name);
  const { refused, restart_due: due } = settings(status);
  const level = status.memory_pressure?.level;
  if (status.litellm !== "ok") return { tone: "bad", word: "LiteLLM is down" };
  if (out.length === tiers.length) return { tone: "bad", word: "No tier works" };
  if (status.store !== "ok") return { tone: "bad", word: "The store fails" };
  if (level === "critical") return { tone: "bad", word: "Memory is critical" };
  if (refused.length) return { tone: "bad", word: "Settings refused" };
  if (out.length) return { tone: "warn", word: `${out.join(", ")} out` };
  if (level === "warning") return { tone: "warn", word: "Memory is short" };
  if (due.length) return { tone: "warn", word: "Restart due" };
  return { tone: "good", word: "All well" };
}

/** Return `{tone, text}` for each problem of LiteLLM, the store and the settings. */
export function wrong(status) {
  const { refused, restart_due: due } = settings(status);
  const found = refused.map((text) => ({ tone: "bad", text: `The changed settings are refused: ${text}` }));
  if (status.litellm !== "ok") found.unshift({ tone: "bad", text: `LiteLLM can't be reached: ${status.litellm}` });
  if (status.store !== "ok") found.push({ tone: "bad", text: `The store fails: ${status.store}. Meanwhile this page shows what the proxy has in memory.` });
  if (due.length) found.push({ tone: "warn", text: `These settings wait for a restart: ${due.join(", ")}` });
  return found;
}

function settings(status) {
  const said = status.configuration;
  const list = (value) => (Array.isArray(value) ? value : value ? [String(value)] : []);
  return { refused: list(said?.refused), restart_due: list(said?.restart_due) };
}
