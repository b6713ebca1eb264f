// The form that asks for `server.admin_key`, if the proxy has one.

import { signIn } from "./api.js";
import { h, say } from "./dom.js";

/** Make the form. `then`: called once the proxy has accepted the key. */
export function form(then) {
  const trouble = h("p", { class: "trouble", role: "alert" });
  const key = h("input", {
    type: "password", id: "key", name: "key", required: true, autocomplete: "current-password",
  });
  const button = h("button", { type: "submit", class: "main" }, "Sign in");
  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      await signIn(key.value);
      then();
    } catch (error) {
      say(trouble, error.wantsKey ? "That is not the key." : `It was not taken: ${error.message}`);
      key.select();
    } finally {
      button.disabled = false;
    }
  }
  const made = h(
    "form", { class: "sign-in", method: "post", action: "sign-in", onsubmit: submit },
    h("h1", null, "Sign in"),
    h("p", null, "This proxy shows what it did to whoever has its ", h("code", null, "server.admin_key"), "."),
    h("label", { for: "key" }, "Key"), key, button, trouble,
    h("p", { class: "note" }, "It is sent once, for a cookie that ends after 7 days and that can only look."),
  );
  queueMicrotask(() => key.focus());
  return made;
}
