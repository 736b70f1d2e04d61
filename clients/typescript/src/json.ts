import type { JsonObject, JsonValue } from "@bufbuild/protobuf";

export type { JsonObject, JsonValue };

/**
 * A JSON object for the API. Properties that are `undefined` are left out, and `toJSON` is honoured, as
 * `JSON.stringify` does.
 *
 * @throws TypeError for what JSON does not have, where `JSON.stringify` would change it silently.
 */
export function jsonObject(value: unknown, what: string): JsonObject {
  const made = jsonValue(value, what, new Set());
  if (made === null || typeof made !== "object" || Array.isArray(made)) {
    throw new TypeError(`${what} is an object, not ${made === null ? "null" : Array.isArray(made) ? "an array" : typeof made}`);
  }
  return made;
}

function jsonValue(value: unknown, where: string, above: Set<object>): JsonValue {
  if (value === null || typeof value === "string" || typeof value === "boolean") {
    return value;
  }
  if (typeof value === "number") {
    if (!Number.isFinite(value)) {
      throw new TypeError(`${where}: ${value} is no JSON number`);
    }
    return value;
  }
  if (typeof value !== "object") {
    throw new TypeError(`${where}: ${typeof value} is no JSON value`);
  }
  if (above.has(value)) {
    throw new TypeError(`${where} contains itself`);
  }
  above.add(value);
  let made: JsonValue;
  if ("toJSON" in value && typeof value.toJSON === "function") {
    made = jsonValue((value.toJSON as () => unknown)(), where, above);
  } else if (Array.isArray(value)) {
    made = value.map((item, index) => jsonValue(item, `${where}[${index}]`, above));
  } else {
    const object: JsonObject = {};
    for (const [name, item] of Object.entries(value)) {
      if (item === undefined) {
        continue;
      }
      // Not an assignment, which gives an object with another prototype for the name `__proto__`.
      Object.defineProperty(object, name, {
        value: jsonValue(item, `${where}.${name}`, above),
        enumerable: true,
        configurable: true,
        writable: true,
      });
    }
    made = object;
  }
  above.delete(value);
  return made;
}
