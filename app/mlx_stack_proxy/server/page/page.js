// The page: shows the view that the address names. While it is visible, it asks for the status
// every two seconds, and has the view refresh itself.

import { current, to } from "./address.js";
import { get, signOut } from "./api.js";
import { h, moment, pill, say, span } from "./dom.js";
import { ExchangeView } from "./exchange.js";
import { Exchanges } from "./exchanges.js";
import { Overview } from "./overview.js";
import { form } from "./sign_in.js";
import { overall } from "./standing.js";

const PAUSE = 2000; // milliseconds between two requests
const main = document.getElementById("main");
const standing = document.getElementById("standing");
const signOutButton = document.getElementById("sign-out");
const SIGNED_IN = "signed-in"; // remembered to show the sign-out button: no script sees the cookie

let view = null;
let shownFor = "";
let timer = 0;
let answeredAt = 0; // seconds since 1970
const trouble = h("div", { class: "trouble", role: "alert" });
let asking = 0; // counts the calls of look(): the late answer of an earlier call is not shown

function made(address) {
  if (address.view === "exchange" && address.id) return new ExchangeView(address.id);
  if (address.view === "exchanges") return new Exchanges();
  return new Overview();
}

function open() {
  signOutButton.hidden = !localStorage.getItem(SIGNED_IN);
  const address = current();
  const key = `${address.view}/${address.id}`;
  if (key !== shownFor || view === null) {
    shownFor = key;
    view = made(address);
    main.replaceChildren(view.element);
    window.scrollTo(0, 0);
  }
  for (const link of document.querySelectorAll("nav.views a")) {
    const here = link.getAttribute("href").replace(/^#\/?/, "") || "overview";
    const chosen = here === address.view || (here === "exchanges" && address.view === "exchange");
    if (chosen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  look();
}

async function look() {
  clearTimeout(timer);
  asking += 1;
  const mine = asking;
  try {
    const status = await get("status");
    if (mine !== asking) return;
    showStanding(status);
    await view.refresh(status);
    if (mine === asking && view) showFresh();
  } catch (error) {
    if (mine !== asking) return;
    if (error.wantsKey) return askForKey();
    showTrouble(error);
  }
  if (mine === asking && !document.hidden) timer = setTimeout(look, PAUSE);
}

function askForKey() {
  view = null;
  shownFor = "";
  standing.replaceChildren();
  signOutButton.hidden = true;
  main.replaceChildren(form(() => {
    localStorage.setItem(SIGNED_IN, "yes");
    open();
  }));
}

/** Show the proxy's state, how long it has been up, and its version. */
function showStanding(status) {
  const { tone, word } = overall(status);
  const up = status.stopping ? "stopping" : `up ${span(Date.now() / 1000 - status.started)}`;
  if (standing.dataset.word !== word) {
    standing.dataset.word = word;
    standing.replaceChildren(pill(word, tone), h("span", { class: "note" }));
  }
  say(standing.lastChild, `${up} · ${status.version}`);
}

function showFresh() {
  answeredAt = Date.now() / 1000;
  document.body.classList.remove("stale");
  trouble.remove();
  if (!main.contains(view.element)) main.replaceChildren(view.element);
}

/** Turn what is shown grey, as it is no longer of now; say why. */
function showTrouble(error) {
  document.body.classList.add("stale");
  if (!error.status) {
    standing.dataset.word = "";
    const last = answeredAt ? `last answer ${moment(answeredAt)}` : "";
    standing.replaceChildren(pill("No answer from the proxy", "bad"), h("span", { class: "note" }, last));
    return;
  }
  const empty = view.element.hasAttribute("aria-busy");
  trouble.replaceChildren(h(empty ? "h1" : "p", null, error.message), h("p", null, h("a", { href: to("overview") }, "Overview")));
  if (empty) main.replaceChildren(trouble);
  else if (!trouble.isConnected) main.prepend(trouble);
}

// Keys: j and k go from row to row, / to the search, Escape back.
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const rows = [...main.querySelectorAll("a.row")];
  const place = rows.indexOf(document.activeElement);
  if (event.key === "j" || event.key === "k") {
    const next = rows[Math.max(0, Math.min(rows.length - 1, place + (event.key === "j" ? 1 : -1)))];
    next?.focus();
  } else if (event.key === "/") {
    const field = main.querySelector("input[type=search]");
    if (!field) return;
    event.preventDefault();
    field.focus();
  } else if (event.key === "Escape" && current().view === "exchange") history.back();
}

window.addEventListener("hashchange", open);
document.addEventListener("keydown", pressed);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : look()));
signOutButton.addEventListener("click", async () => {
  await signOut();
  localStorage.removeItem(SIGNED_IN);
  askForKey();
});
open();
