// What was changed between two texts: pieces that stayed, went, or came.

const TOKEN = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const MOST = 1500; // tokens of what differs, on either side; beyond that it is shown as one change

/** `[kind, text]` in a row; kind is "same", "gone" or "new". */
export function difference(before, after) {
  const a = before.match(TOKEN) ?? [];
  const b = after.match(TOKEN) ?? [];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  const most = Math.min(a.length, b.length) - start;
  while (end < most && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const middle = between(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return joined([
    ...a.slice(0, start).map((text) => ["same", text]),
    ...middle,
    ...a.slice(a.length - end).map((text) => ["same", text]),
  ]);
}

/** The longest common run of tokens stays; all else went or came. */
function between(a, b) {
  if (a.length > MOST || b.length > MOST) return [["gone", a.join("")], ["new", b.join("")]];
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] =
        a[i] === b[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const pieces = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      pieces.push(["same", a[i]]);
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      pieces.push(["gone", a[i]]);
      i += 1;
    } else {
      pieces.push(["new", b[j]]);
      j += 1;
    }
  }
  return pieces;
}

function joined(pieces) {
  const found = [];
  for (const [kind, text] of pieces) {
    if (!text) continue;
    const last = found[found.length - 1];
    if (last && last[0] === kind) last[1] += text;
    else found.push([kind, text]);
  }
  return found;
}
