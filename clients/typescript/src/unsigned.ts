/** A size or an offset for the API. Throws `TypeError` for what is no whole number from 0 to 2^53 - 1. */
export function unsigned(name: string, value: number): bigint {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new TypeError(`${name} is a whole number of at least 0, not ${String(value)}`);
  }
  return BigInt(value);
}
