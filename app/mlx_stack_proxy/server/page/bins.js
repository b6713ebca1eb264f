// The spans of time that a bar of a plot stands for: hours, or from three days on this place's days.

const MOST_HOURS = 60;

/** Return the spans `{from, to}` of a report, in seconds since 1970. The first may begin before it. */
export function spans(report) {
  const days = report.until - report.since > MOST_HOURS * 3600;
  const found = [];
  for (let from = days ? midnight(report.since) : report.since; found.length === 0 || from < report.until;) {
    const to = days ? midnight(from, 1) : from + 3600;
    found.push({ from, to });
    from = to;
  }
  return found;
}

function midnight(seconds, days = 0) {
  const at = new Date(seconds * 1000);
  return new Date(at.getFullYear(), at.getMonth(), at.getDate() + days).getTime() / 1000;
}

/** Return the spans with `sums`: what `numbers(row)`, a list, adds up to over the rows of each. */
export function summed(report, numbers) {
  const bins = spans(report).map((bin) => ({ ...bin, sums: numbers({ counts: {} }).map(() => 0) }));
  let place = 0;
  for (const row of [...report.hours].sort((a, b) => a.hour - b.hour)) {
    while (place < bins.length - 1 && row.hour >= bins[place].to) place += 1;
    numbers(row).forEach((number, at) => { bins[place].sums[at] += number; });
  }
  return bins;
}
