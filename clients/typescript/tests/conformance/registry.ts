/** The table of operations, and what they share; `tests/clients/OPERATIONS.md` is their contract. */

import { Client, Workspace, type CallOptions } from "../../src/index.js";

/** The arguments of an operation, as they came. */
export type Args = Readonly<Record<string, unknown>>;

/** Maps an operation to calls of the library. `call` has the request's signal, and its deadline if it names one. */
export type Operation = (objects: Objects, args: Args, call: CallOptions) => Promise<object>;

/** Something of which a user would take the first item within a scope. */
export type Scope = (objects: Objects, args: Args) => Promise<AsyncIterable<unknown> & Partial<AsyncDisposable>>;

/** All operations by name. */
export const operations = new Map<string, Operation>();
/** What the operation `scope` can be asked for, by its `what`. */
export const scopes = new Map<string, Scope>();

/** Add to the table. */
export function register(some: Readonly<Record<string, Operation>>): void {
  for (const [name, operation] of Object.entries(some)) {
    operations.set(name, operation);
  }
}

/** A request that makes no sense. */
export class DriverBug extends Error {}

/** What the source of a write ended with. */
export class SourceFailed extends Error {}

/** What operations made, by name, and what belongs to the driver as a whole. */
export class Objects {
  /** Every client that was made. */
  readonly clients = new Set<Client>();
  /** What the library warned of. */
  readonly warnings: string[] = [];
  /** What `spawn_many` holds. */
  readonly held: AsyncDisposable[] = [];
  readonly #named = new Map<string, unknown>();

  /** Store under the name in `as`, or the default. */
  put(args: Args, kind: string, made: unknown): void {
    this.#named.set(optionalText(args, "as") ?? kind, made);
  }

  /** Store under a name. */
  store(name: string, made: unknown): void {
    this.#named.set(name, made);
  }

  /** What is stored under the name that `args[kind]` gives, or the default. */
  get<T>(args: Args, kind: string, type: abstract new (...args: never[]) => T): T {
    const name = optionalText(args, kind) ?? kind;
    const found = this.#named.get(name);
    if (!(found instanceof type)) {
      throw new DriverBug(`nothing of ${type.name} under ${JSON.stringify(name)}`);
    }
    return found;
  }

  /** The workspace that `args.ws` names. */
  workspace(args: Args): Workspace {
    return this.get(args, "ws", Workspace);
  }
}

/** An argument that must be text. */
export function text(args: Args, name: string): string {
  const value = args[name];
  if (typeof value !== "string") {
    throw new DriverBug(`${name} is a string, not ${JSON.stringify(value)}`);
  }
  return value;
}

/** An argument that is text or absent. */
export function optionalText(args: Args, name: string): string | undefined {
  return args[name] === undefined ? undefined : text(args, name);
}

/** An argument that must be a number. */
export function number(args: Args, name: string): number {
  const value = args[name];
  if (typeof value !== "number") {
    throw new DriverBug(`${name} is a number, not ${JSON.stringify(value)}`);
  }
  return value;
}

/** An argument that is a number or absent. */
export function optionalNumber(args: Args, name: string): number | undefined {
  return args[name] === undefined ? undefined : number(args, name);
}

/** Seconds, in milliseconds. */
export function milliseconds(args: Args, name: string): number | undefined {
  const seconds = optionalNumber(args, name);
  return seconds === undefined ? undefined : seconds * 1000;
}

/** An argument that is true, false or absent. */
export function flag(args: Args, name: string): boolean | undefined {
  const value = args[name];
  if (value !== undefined && typeof value !== "boolean") {
    throw new DriverBug(`${name} is true or false, not ${JSON.stringify(value)}`);
  }
  return value;
}

/** What a promise gives, or the reason of the signal, whichever is first. */
export function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal?.reason as Error);
    work.then(resolve, reject).finally(() => signal?.removeEventListener("abort", abort));
    signal?.addEventListener("abort", abort, { once: true });
  });
}
