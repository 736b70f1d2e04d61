/** Running a command to its end. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Backoff } from "./backoff.js";
import type { CallOptions, Connection } from "./connection.js";
import { CommandFailedError, InternalError, OutputLostError, StdinClosedError, WorkspacedError } from "./errors.js";
import type { ExitReason } from "./enums.js";
import { ExecutionService, type RunProcessRequestSchema, type RunProcessResponse } from "./gen/workspaced/v1/execution_pb.js";
import { DisconnectPolicy, StdinMode, type ProcessSpecSchema } from "./gen/workspaced/v1/process_pb.js";
import { bounded } from "./notifier.js";
import { describe, exitInfo, type Exit, type ResourceUsage } from "./process-info.js";
import { Process } from "./process.js";

/** What RunProcess takes as standard input, and gives of each stream, at most. */
const ANSWER_BYTES = 1 << 20;
const ERROR_TAIL_BYTES = 2000;
const TERMINATE_MS = 5_000;

/** How a command ended, and what it wrote. */
export class Result {
  readonly processId: string;
  readonly exit: Exit;
  /** Standard output; with a pty, all output. */
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  /** Whether `stdout` or `stderr` is only the beginning; `Workspace.attach(processId)` reads all of it. */
  readonly truncated: boolean;

  /** @internal */
  constructor(processId: string, exit: Exit, stdout: Uint8Array, stderr: Uint8Array, truncated: boolean) {
    this.processId = processId;
    this.exit = exit;
    this.stdout = stdout;
    this.stderr = stderr;
    this.truncated = truncated;
  }

  /** Its exit code; `undefined` when a signal ended it or its end was not seen. */
  get exitCode(): number | undefined {
    return this.exit.exitCode;
  }

  /** The signal that ended it, without SIG. */
  get signal(): string | undefined {
    return this.exit.signal;
  }

  /** Why it ended. */
  get reason(): ExitReason {
    return this.exit.reason;
  }

  /** What it used, where that is known. */
  get usage(): ResourceUsage | undefined {
    return this.exit.usage;
  }

  /** Whether it exited with 0. */
  get ok(): boolean {
    return this.exit.ok;
  }

  /** Standard output as UTF-8. */
  get text(): string {
    return new TextDecoder().decode(this.stdout);
  }

  /** This result. Throws `CommandFailedError` when the command did not exit with 0. */
  check(): this {
    if (!this.ok) {
      const tail = new TextDecoder().decode(this.stderr.subarray(-ERROR_TAIL_BYTES)).trim();
      throw new CommandFailedError(describe(this.exit) + (tail === "" ? "" : `: ${tail}`), this);
    }
    return this;
  }
}

/** What to run. */
export interface Run {
  workspaceId: string;
  processId: string;
  spec: MessageInitShape<typeof ProcessSpecSchema>;
  stdin: Uint8Array;
  maxOutputBytes: number;
}

/** Run a process to its end; see `Workspace.run`. */
export async function runProcess(connection: Connection, run: Run, options: CallOptions): Promise<Result> {
  if (!(run.maxOutputBytes >= 1)) {
    throw new TypeError("maxOutputBytes is at least 1");
  }
  const way = run.stdin.length > ANSWER_BYTES ? feed : ask;
  return await bounded(options, (signal) => way(connection, run, signal));
}

async function ask(connection: Connection, run: Run, signal: AbortSignal | undefined): Promise<Result> {
  const { workspaceId, processId, spec, stdin, maxOutputBytes } = run;
  const request = { workspaceId, processId, spec, stdin, maxOutputBytes: Math.min(maxOutputBytes, ANSWER_BYTES) };
  const { process, stdout, stderr, truncated } = await persist(connection, request, signal).catch((error: unknown) => {
    if (signal?.aborted === true && spec.disconnectPolicy !== DisconnectPolicy.KEEP) {
      connection.tidy(terminate(connection, workspaceId, processId));
    }
    throw error;
  });
  if (process?.exit === undefined) {
    throw new InternalError("the answer has no exit");
  }
  const result = new Result(process.processId, exitInfo(process.exit), stdout, stderr, truncated);
  return truncated && maxOutputBytes > ANSWER_BYTES ? readAll(connection, run, result, signal) : result;
}

/**
 * Asks the process tree of a call that was given up to end. What does not hear of it, or does not care, the server kills
 * 10 s after the call.
 */
async function terminate(connection: Connection, workspaceId: string, processId: string): Promise<void> {
  try {
    await new Process(connection, workspaceId, processId, {}).signal("TERM", { timeoutMs: TERMINATE_MS });
  } catch (error) {
    if (!(error instanceof WorkspacedError)) {
      throw error;
    }
  }
}

/** Repeated as it is: the same id and spec attach to the process that the first attempt started. */
async function persist(
  connection: Connection,
  request: MessageInitShape<typeof RunProcessRequestSchema>,
  signal: AbortSignal | undefined,
): Promise<RunProcessResponse> {
  const backoff = new Backoff();
  let lostAt: number | undefined;
  for (;;) {
    const began = performance.now();
    try {
      return await connection.once(ExecutionService.method.runProcess, request, { signal, timeoutMs: Infinity });
    } catch (error) {
      if (!(error instanceof WorkspacedError)) {
        throw error;
      }
      const now = performance.now();
      const limit = connection.retryLimit(error, connection.resumeTimeoutMs);
      if (lostAt === undefined || now - began > limit) {
        lostAt = now; // this attempt stood for a while: the time without a connection begins anew
      }
      const delay = backoff.next(error.retryAfterMs);
      if (limit === 0 || now + delay > lostAt + limit) {
        throw error;
      }
      await connection.pause(delay, signal);
    }
  }
}

/** All that was asked for, when it is more than one answer holds. */
async function readAll(connection: Connection, run: Run, short: Result, signal: AbortSignal | undefined): Promise<Result> {
  const capture = new Capture(run.maxOutputBytes);
  await using process = new Process(connection, run.workspaceId, short.processId, { readOnly: true, gaps: "yield" });
  await process.open({ signal });
  for await (const event of process) {
    if (event.kind === "gap") {
      return short; // its beginning is no longer kept; what the answer held is
    }
    capture.add(event.stream, event.data);
    if (capture.full) {
      break;
    }
  }
  return capture.result(short.processId, short.exit);
}

/** With more input than one request holds. */
async function feed(connection: Connection, run: Run, signal: AbortSignal | undefined): Promise<Result> {
  const capture = new Capture(run.maxOutputBytes);
  const disconnectPolicy = run.spec.disconnectPolicy || DisconnectPolicy.KILL; // as RunProcess has it
  const start = { ...run.spec, stdin: StdinMode.OPEN, disconnectPolicy };
  await using process = new Process(connection, run.workspaceId, run.processId, { start });
  await process.open({ signal });
  const feeding = write(process, run.stdin);
  for await (const event of process) {
    if (event.kind === "gap") {
      throw new OutputLostError(event.start, event.end);
    }
    capture.add(event.stream, event.data);
  }
  const problem = await feeding;
  if (problem !== undefined) {
    throw problem;
  }
  return capture.result(run.processId, await process.wait({ signal }));
}

/** A command need not read all of its input. Never rejects. */
async function write(process: Process, stdin: Uint8Array): Promise<Error | undefined> {
  try {
    await process.write(stdin);
    await process.closeStdin();
  } catch (error) {
    if (!(error instanceof StdinClosedError)) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }
  return undefined;
}

/** Output of both streams, the first `limit` bytes of each. */
class Capture {
  readonly #limit: number;
  readonly #parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  readonly #sizes = { stdout: 0, stderr: 0 };
  #truncated = false;

  constructor(limit: number) {
    this.#limit = limit;
  }

  add(stream: string, data: Uint8Array): void {
    const name = stream === "stderr" ? "stderr" : "stdout";
    const room = this.#limit - this.#sizes[name];
    this.#truncated ||= data.length > room;
    const kept = data.subarray(0, room);
    this.#parts[name].push(kept);
    this.#sizes[name] += kept.length;
  }

  get full(): boolean {
    return this.#truncated && this.#sizes.stdout >= this.#limit && this.#sizes.stderr >= this.#limit;
  }

  result(processId: string, exit: Exit): Result {
    return new Result(processId, exit, joined(this.#parts.stdout), joined(this.#parts.stderr), this.#truncated);
  }
}

function joined(parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
