/** The conformance driver of the TypeScript client; `tests/clients/OPERATIONS.md` is its contract. */

import * as readline from "node:readline";
import { CommandFailedError, OutputLostError, WorkspacedError, type CallOptions } from "../../src/index.js";
import "./files_ops.js";
import "./load_ops.js";
import "./offload_ops.js";
import "./port_ops.js";
import { runResult } from "./process_ops.js";
import { DriverBug, milliseconds, Objects, operations, SourceFailed, type Args } from "./registry.js";
import "./roles_ops.js";
import "./workspace_ops.js";

interface Request {
  id: number;
  op: string;
  args?: Args;
}

/** Runs requests, and prints what comes of them. */
class Driver {
  readonly #objects = new Objects();
  readonly #running = new Map<number, { stop: AbortController; done: Promise<void> }>();

  /** Begin what a line asks for. */
  take(line: string): void {
    const { id, op, args = {} } = JSON.parse(line) as Request;
    if (op === "cancel") {
      this.#running.get(args["id"] as number)?.stop.abort();
      say({ id, ok: {} });
      return;
    }
    const stop = new AbortController();
    const done = this.#answer(id, op, args, stop.signal).finally(() => this.#running.delete(id));
    this.#running.set(id, { stop, done });
  }

  /** Cancel what runs, and close every client. */
  async close(): Promise<void> {
    const running = [...this.#running.values()];
    running.forEach(({ stop }) => stop.abort());
    await Promise.all(running.map(({ done }) => done));
    await Promise.all([...this.#objects.clients].map((client) => client.close()));
  }

  async #answer(id: number, op: string, args: Args, signal: AbortSignal): Promise<void> {
    try {
      const operation = operations.get(op);
      if (operation === undefined) {
        throw new DriverBug(`no operation ${op}`);
      }
      const call: CallOptions = { signal, timeoutMs: milliseconds(args, "timeout") };
      say({ id, ok: await operation(this.#objects, args, call) });
    } catch (error) {
      say({ id, error: errorOf(error) });
    }
  }
}

/** ERROR. */
function errorOf(error: unknown): object {
  if (error instanceof WorkspacedError) {
    return {
      kind: error.name === "WorkspacedError" ? error.name : error.name.replace(/Error$/, ""),
      code: error.code,
      reason: error.reason,
      message: error.message,
      metadata: error.metadata,
      retry_after: error.retryAfterMs === undefined ? null : error.retryAfterMs / 1000,
      violations: error.violations,
      request_id: error.requestId,
      ...(error instanceof CommandFailedError ? { result: runResult(error.result) } : {}),
      ...(error instanceof OutputLostError ? { start: error.start, end: error.end } : {}),
    };
  }
  const [kind, code] = kindOf(error);
  const message = error instanceof Error ? (kind === "DriverBug" ? String(error.stack) : error.message) : String(error);
  return { kind, code, reason: "", message, metadata: {}, retry_after: null, violations: [], request_id: "" };
}

function kindOf(error: unknown): [string, string] {
  if (error instanceof DriverBug) {
    return ["DriverBug", "UNKNOWN"];
  }
  if (error instanceof SourceFailed) {
    return ["SourceFailed", "UNKNOWN"];
  }
  if (error instanceof TypeError) {
    return / closed$/.test(error.message) ? ["Closed", "CANCELLED"] : ["InvalidArgument", "INVALID_ARGUMENT"];
  }
  if (error instanceof Error && error.name === "AbortError") {
    return ["Cancelled", "CANCELLED"];
  }
  if (error instanceof Error && "syscall" in error) {
    return ["OSError", "UNKNOWN"];
  }
  return ["DriverBug", "UNKNOWN"];
}

function say(answer: object): void {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

const driver = new Driver();
const lines = readline.createInterface({ input: process.stdin, crlfDelay: Infinity });
lines.on("line", (line) => driver.take(line));
lines.on("close", () => {
  void driver.close().then(() => process.exit(0));
});
