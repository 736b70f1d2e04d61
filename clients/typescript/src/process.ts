/** A process in a workspace. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Attachment } from "./attachment.js";
import { cancelled } from "./backoff.js";
import type { CallOptions, Connection } from "./connection.js";
import { OutputLostError, WorkspacedError } from "./errors.js";
import { ExecutionService, SignalScope } from "./gen/workspaced/v1/execution_pb.js";
import { DisconnectPolicy, type ProcessSpecSchema } from "./gen/workspaced/v1/process_pb.js";
import { duration } from "./info.js";
import { listen } from "./listen.js";
import { bounded } from "./notifier.js";
import { exitInfo, processInfo, type Exit, type ProcessEvent, type ProcessInfo } from "./process-info.js";
import { OutputStreams } from "./process-streams.js";

/** Signals of which two are as good as one, so that they are sent again when an answer is lost. */
const REPEATABLE = new Set(["KILL", "TERM", "STOP", "CONT", "WINCH"]);
const WAIT_SLICE_MS = 30_000;
const KILL_MS = 5_000;

/** @internal What a handle is to. */
export interface ProcessTarget {
  start?: MessageInitShape<typeof ProcessSpecSchema> | undefined;
  offset?: number | undefined;
  gaps?: "throw" | "yield" | undefined;
  readOnly?: boolean | undefined;
}

/**
 * A process, running or ended, made by `Workspace.exec`, `start`, `attach` and `process`.
 *
 * Iterate over it for its output, or read {@link Process.stdout} and {@link Process.stderr}: bytes come in the order in
 * which the process wrote, each once, also over broken connections and a restart of the server. Iteration ends when the
 * process has ended. Leaving the loop early detaches, as `await using` and {@link Process.close} do; another loop, or a
 * write, attaches again at the next byte.
 *
 * A process goes on when nothing is attached, unless it was started by `exec` with `disconnectPolicy: "kill"`: then
 * leaving the scope kills its whole tree. Output that nobody takes is buffered up to 2 MiB, then kept by the workspace.
 */
export class Process implements AsyncIterable<ProcessEvent>, AsyncDisposable {
  readonly workspaceId: string;
  readonly processId: string;
  readonly #connection: Connection;
  readonly #kill: boolean;
  readonly #gaps: "throw" | "yield";
  readonly #readOnly: boolean;
  #attachment: Attachment;
  #exit: Exit | undefined;
  #closed = false;
  #streams: OutputStreams | undefined;
  #stdin: WritableStream<Uint8Array> | undefined;
  #forget: (() => void) | undefined;

  /** @internal */
  constructor(connection: Connection, workspaceId: string, processId: string, target: ProcessTarget = {}) {
    const { gaps = "throw", offset = 0, readOnly = false, start } = target;
    if (gaps !== "throw" && gaps !== "yield") {
      throw new TypeError(`gaps is "throw" or "yield", not ${JSON.stringify(gaps)}`);
    }
    if (!Number.isSafeInteger(offset) || offset < 0) {
      throw new TypeError("an offset is a whole number and not negative");
    }
    this.#connection = connection;
    this.workspaceId = workspaceId;
    this.processId = processId;
    this.#kill = start?.disconnectPolicy === DisconnectPolicy.KILL;
    this.#gaps = gaps;
    this.#readOnly = readOnly;
    this.#attachment = new Attachment(connection, { workspaceId, processId, start, offset, readOnly });
  }

  /** @internal Attach now; the signal detaches later, too. */
  async open({ signal, timeoutMs }: CallOptions): Promise<this> {
    try {
      await bounded({ signal, timeoutMs }, (limit) => this.#attachment.open(limit));
    } catch (error) {
      this.#closed = true;
      throw error;
    }
    if (signal !== undefined) {
      const abort = (): void => void this.#detach(cancelled(signal));
      listen(signal, abort);
      this.#forget = () => signal.removeEventListener("abort", abort);
      if (signal.aborted) {
        abort(); // between the answer and here
      }
    }
    return this;
  }

  /** Offset of the next byte that iteration gives: where `Workspace.attach` goes on. */
  get offset(): number {
    return this.#attachment.offset;
  }

  /** Its pid inside the sandbox, once attached; for people, since pids are used again. */
  get pid(): number | undefined {
    return this.#attachment.started?.pid;
  }

  /** Whether the process existed before this handle started or attached to it. */
  get existing(): boolean {
    return this.#attachment.existing;
  }

  /** How it ended, as far as this handle has seen. */
  get exit(): Exit | undefined {
    return this.#attachment.exit ?? this.#exit;
  }

  /** How many bytes of standard input were taken by {@link Process.write} and accepted before. */
  get stdinOffset(): number {
    return this.#attachment.stdin.end;
  }

  /** Standard output, or the terminal's. Take both streams before reading; what is not taken is dropped, until 2 MiB of the other are unread. */
  get stdout(): ReadableStream<Uint8Array> {
    return this.#output().stdout;
  }

  /** Standard error. */
  get stderr(): ReadableStream<Uint8Array> {
    return this.#output().stderr;
  }

  /** Standard input: {@link Process.write} and {@link Process.closeStdin} as a stream. Aborting it closes it, too. */
  get stdin(): WritableStream<Uint8Array> {
    this.#stdin ??= new WritableStream<Uint8Array>({
      write: (chunk) => this.write(chunk),
      close: () => this.closeStdin(),
      abort: () => this.closeStdin(),
    });
    return this.#stdin;
  }

  /**
   * Its output, once. Rejects with `OutputLostError` for output that is no longer kept, after which iteration can go on,
   * unless `gaps` is `"yield"`. Leaving a loop early detaches.
   */
  [Symbol.asyncIterator](): AsyncIterableIterator<ProcessEvent, undefined> {
    const iterator: AsyncIterableIterator<ProcessEvent, undefined> = {
      next: async () => {
        const value = await this.read();
        return value === undefined ? { done: true, value } : { done: false, value };
      },
      return: async () => {
        await this.#detach();
        return { done: true, value: undefined };
      },
      [Symbol.asyncIterator]: () => iterator,
    };
    return iterator;
  }

  /**
   * The next event; `undefined` when the process has ended. For reading up to some point without detaching, as leaving a
   * loop does. An abort and `timeoutMs` lose nothing.
   */
  async read(options: CallOptions = {}): Promise<ProcessEvent | undefined> {
    const attachment = this.#closed ? this.#attachment : await this.#attached(options);
    const event = await bounded(options, (signal) => attachment.next(signal));
    if (event?.kind === "gap" && this.#gaps === "throw") {
      throw new OutputLostError(event.start, event.end);
    }
    return event;
  }

  /**
   * Write to standard input; needs `stdin: true` or a pty. A string is sent as UTF-8.
   *
   * Resolves when the bytes are taken: at most 1 MiB is on its way, else it waits for the process to read. Each byte
   * arrives exactly once, also over broken connections. Rejects with `StdinClosedError`. After an abort `stdinOffset`
   * tells how much was taken.
   */
  async write(data: Uint8Array | string, options: CallOptions = {}): Promise<void> {
    const attachment = await this.#attached(options);
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    await bounded(options, (signal) => attachment.write(bytes, signal));
  }

  /** Close standard input after what was written. Idempotent. */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    (await this.#attached(options)).closeStdin();
  }

  /** Give the process's terminal this size, in characters. */
  async resize(cols: number, rows: number, options: CallOptions = {}): Promise<void> {
    (await this.#attached(options)).resize(cols, rows);
  }

  /**
   * Send a signal, such as `"TERM"`, to the whole tree or to the leader alone; resolves with how many got it.
   *
   * Rejects with `ProcessExitedError`. KILL, TERM, STOP, CONT and WINCH are sent again when the answer is lost; any other
   * signal is then `UnavailableError`, and may have been sent.
   */
  async signal(name: string, options: { leaderOnly?: boolean | undefined } & CallOptions = {}): Promise<number> {
    const response = await this.#connection.unary(
      ExecutionService.method.signalProcess,
      {
        workspaceId: this.workspaceId,
        processId: this.processId,
        signal: name,
        scope: options.leaderOnly === true ? SignalScope.LEADER : SignalScope.TREE,
      },
      {
        signal: options.signal,
        timeoutMs: options.timeoutMs,
        repeatable: REPEATABLE.has(name.toUpperCase().replace(/^SIG/, "")),
      },
    );
    return response.signaled;
  }

  /** What the workspace knows of it now. Rejects with `ProcessNotFoundError`. */
  async info(options: CallOptions = {}): Promise<ProcessInfo> {
    const { workspaceId, processId } = this;
    const { process } = await this.#connection.unary(ExecutionService.method.getProcess, { workspaceId, processId }, options);
    if (process === undefined) {
      throw new WorkspacedError("the answer has no process");
    }
    return processInfo(process);
  }

  /**
   * Wait for its end, whether or not its output is read; output that was not read can be read afterwards.
   *
   * A process that has filled its journal waits for a reader, though, so such output has to be read. `timeoutMs` bounds
   * the waiting, not the process: `DeadlineExceededError`. An abort changes nothing.
   */
  async wait(options: CallOptions = {}): Promise<Exit> {
    return await bounded(options, (signal) => this.#wait(signal));
  }

  /** Detach. Idempotent; the process goes on as its `disconnectPolicy` says. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#detach();
  }

  /** Detach; with `disconnectPolicy: "kill"` its tree is killed. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      if (this.#kill && this.exit === undefined && this.#attachment.started !== undefined) {
        await this.signal("KILL", { timeoutMs: KILL_MS });
      }
    } catch (error) {
      if (!(error instanceof WorkspacedError)) {
        throw error;
      } // already ended, or not to be reached: the server kills it 10 s after the attachment is gone
    } finally {
      await this.close();
    }
  }

  async #wait(signal: AbortSignal | undefined): Promise<Exit> {
    const { workspaceId, processId } = this;
    if (this.exit === undefined && this.#attachment.started !== undefined && !this.#attachment.closed) {
      await this.#attachment.settle(signal);
    }
    while (this.exit === undefined) {
      const { exit } = await this.#connection.unary(
        ExecutionService.method.waitProcess,
        { workspaceId, processId, timeout: duration(WAIT_SLICE_MS) },
        {
          signal,
          timeoutMs: WAIT_SLICE_MS + this.#connection.resumeTimeoutMs,
          retryTimeoutMs: this.#connection.resumeTimeoutMs,
        },
      );
      this.#exit = exit && exitInfo(exit);
    }
    return this.exit;
  }

  /** The attachment, which stands: the first one, or another after a loop was left. */
  async #attached(options: CallOptions): Promise<Attachment> {
    if (this.#closed) {
      throw new TypeError("the process handle is closed");
    }
    const last = this.#attachment;
    if (last.closed) {
      const { workspaceId, processId } = this;
      const { offset, stdin } = last;
      const start = undefined;
      this.#attachment = new Attachment(this.#connection, { workspaceId, processId, start, offset, readOnly: this.#readOnly, stdin });
      this.#attachment.existing = last.existing;
      if (last.stdinClosed) {
        this.#attachment.closeStdin();
      }
    }
    const attachment = this.#attachment;
    if (attachment.started === undefined) {
      await bounded(options, (signal) => attachment.open(signal));
    }
    return attachment;
  }

  async #detach(reason?: Error): Promise<void> {
    this.#forget?.();
    this.#forget = undefined;
    if (reason !== undefined) {
      this.#closed = true;
    }
    await this.#attachment.close(reason);
  }

  #output(): OutputStreams {
    this.#streams ??= new OutputStreams(
      () => this.read(),
      () => this.#detach(),
    );
    return this.#streams;
  }
}
