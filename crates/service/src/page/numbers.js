// Numbers for people.

/** A whole number with thin groups. */
export const count = (number) => Number(number).toLocaleString("en");

/** Bytes as MB, with three digits. */
export function megabytes(bytes) {
  const value = bytes / 1e6;
  return `${value >= 100 ? Math.round(value) : value.toPrecision(3)} MB`;
}

/** Seconds as a span of time. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "?";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
