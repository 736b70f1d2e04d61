/** One unbroken view of a process's journal and standard input, over as many calls as it takes. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { Backoff } from "./backoff.js";
import type { Connection } from "./connection.js";
import * as errors from "./errors.js";
import { ExecutionService, type ExecRequestSchema, type ProcessEvent as Event, type ProcessOutput, type ProcessStarted } from "./gen/workspaced/v1/execution_pb.js";
import { Stream, type ProcessSpecSchema } from "./gen/workspaced/v1/process_pb.js";
import { Notifier } from "./notifier.js";
import { exitInfo, processInfo, type Exit, type Output, type ProcessEvent, type ProcessInfo } from "./process-info.js";
import { Queue } from "./queue.js";
import { CHUNK_BYTES, StdinBuffer } from "./stdin-buffer.js";

const STREAMS: Readonly<Record<number, Output["stream"]>> = {
  [Stream.STDOUT]: "stdout",
  [Stream.STDERR]: "stderr",
  [Stream.PTY]: "pty",
};
/** Output that is read ahead of the program; then the stream waits, and in the end the process. */
const BUFFER_BYTES = 2 << 20;
/** The server sends a heartbeat after 10 s without output, so a stream silent for this long is dead. */
const SILENCE_MS = 25_000;

type Request = NonNullable<MessageInitShape<typeof ExecRequestSchema>["request"]>;

/** What an attachment is to. */
export interface AttachmentTarget {
  workspaceId: string;
  processId: string;
  /** Start it first; else it exists. */
  start: MessageInitShape<typeof ProcessSpecSchema> | undefined;
  offset: number;
  readOnly: boolean;
  /** Input that an earlier attachment of the same program took. */
  stdin?: StdinBuffer | undefined;
}

/**
 * Reads on its own until the process has ended, re-attaching when a connection breaks. Nothing runs before
 * {@link Attachment.open}; {@link Attachment.close} ends the call, which detaches from the process.
 */
export class Attachment {
  started: ProcessInfo | undefined;
  existing = false;
  exit: Exit | undefined;
  /** Offset of the next byte that `next` gives. */
  offset: number;
  readonly stdin: StdinBuffer;
  stdinClosed = false;
  readonly #connection: Connection;
  readonly #target: AttachmentTarget;
  readonly #changed = new Notifier();
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #error: unknown;
  #finished = false;
  // Output that was read and not yet taken.
  readonly #events = new Queue<ProcessEvent>();
  #buffered = 0;
  #nextRead: number;
  // Standard input and the terminal.
  #stdinBroken: errors.WorkspacedError | undefined;
  #size: { cols: number; rows: number } | undefined;
  readonly #wake = new Notifier();
  // The connection.
  #readingSince: number | undefined;
  #lostAt: number | undefined;
  #unreachableAt: number | undefined;
  readonly #backoff = new Backoff();

  constructor(connection: Connection, target: AttachmentTarget) {
    this.#connection = connection;
    this.#target = target;
    this.#nextRead = this.offset = target.offset;
    this.stdin = target.stdin ?? new StdinBuffer();
  }

  /** Attach, and wait until it stands. Rejects with what the server answered. An abort closes the attachment. */
  async open(signal?: AbortSignal): Promise<void> {
    this.#running ??= this.#run();
    try {
      while (this.started === undefined && !this.#finished) {
        await this.#changed.wait(signal);
      }
    } catch (error) {
      await this.close();
      throw error;
    }
    if (this.started === undefined) {
      throw this.#error;
    }
  }

  /** Detach. Idempotent. What was read and not taken is dropped; who waits for more gets the reason, if there is one. */
  async close(reason?: unknown): Promise<void> {
    if (!this.#stop.signal.aborted) {
      this.#error ??= reason;
      this.#stop.abort(reason ?? new errors.CancelledError("detached", { reason: "DETACHED" }));
      this.#events.clear();
      this.#finished = true;
      this.#changed.notify();
      this.#wake.notify();
    }
    await this.#running;
  }

  get closed(): boolean {
    return this.#stop.signal.aborted;
  }

  /** The next event; `undefined` when the process has ended or this was closed. An abort loses nothing. */
  async next(signal?: AbortSignal): Promise<ProcessEvent | undefined> {
    for (;;) {
      const event = this.#events.shift();
      if (event !== undefined) {
        this.offset = event.kind === "gap" ? event.end : event.offset + event.data.length;
        const full = this.#buffered >= BUFFER_BYTES;
        this.#buffered -= event.data.length;
        if (full && this.#buffered < BUFFER_BYTES) {
          this.#changed.notify();
        }
        return event;
      }
      if (this.#finished) {
        if (this.#error !== undefined) {
          throw this.#error;
        }
        return undefined;
      }
      await this.#changed.wait(signal);
    }
  }

  /** Wait for the exit; `undefined` when it cannot come because output that nobody takes is in its way. */
  async settle(signal?: AbortSignal): Promise<Exit | undefined> {
    while (!this.#finished && this.#buffered < BUFFER_BYTES) {
      await this.#changed.wait(signal);
    }
    if (this.exit === undefined && this.#error !== undefined) {
      throw this.#error;
    }
    return this.exit;
  }

  /** Take bytes for standard input, waiting while 1 MiB is on its way. `stdin.end` tells how many were taken. */
  async write(data: Uint8Array, signal?: AbortSignal): Promise<void> {
    if (this.#target.readOnly) {
      throw stdinClosed("the process was attached to only for reading");
    }
    let position = 0;
    for (;;) {
      this.#checkStdin();
      const size = Math.min(this.stdin.room, CHUNK_BYTES, data.length - position);
      if (size > 0) {
        this.stdin.append(data.subarray(position, position + size));
        position += size;
        this.#wake.notify();
      }
      if (position === data.length) {
        return;
      }
      if (this.stdin.room <= 0) {
        await this.#changed.wait(signal);
      }
    }
  }

  /** Close standard input after what was written. Idempotent. */
  closeStdin(): void {
    this.stdinClosed = true;
    this.#wake.notify();
  }

  /** Give the terminal this size; the last one counts. */
  resize(cols: number, rows: number): void {
    this.#size = { cols, rows };
    this.#wake.notify();
  }

  #checkStdin(): void {
    if (this.#stdinBroken !== undefined) {
      throw stdinClosed(this.#stdinBroken.message);
    }
    if (this.exit !== undefined) {
      throw stdinClosed("the process has ended");
    }
    if (this.#error !== undefined) {
      throw this.#error;
    }
    if (this.closed) {
      throw new errors.CancelledError("detached from the process", { reason: "DETACHED" });
    }
    if (this.stdinClosed) {
      throw stdinClosed("standard input is closed");
    }
  }

  // What runs beside the program; it never rejects.

  async #run(): Promise<void> {
    try {
      while (!(await this.#attachOnce())) {
        // the connection broke: once more
      }
    } catch (error) {
      if (!this.closed) {
        this.#error = error;
      }
    } finally {
      this.#finished = true;
      this.#changed.notify();
    }
  }

  /** One call, from its start to its end. True when there is no more to do; waits before it says false. */
  async #attachOnce(): Promise<boolean> {
    let failure: unknown;
    try {
      await this.#converse();
      failure = new errors.UnavailableError("the stream ended before the process did");
    } catch (error) {
      failure = error;
    }
    if (this.exit !== undefined || this.closed) {
      return true; // the exit is the last event: how the call ended after it means nothing
    }
    if (this.started !== undefined && failure instanceof errors.StdinClosedError) {
      // Nobody reads standard input any more, but the output goes on: attach without it.
      this.#stdinBroken = failure;
      this.stdin.clear();
      this.#changed.notify();
      return false;
    }
    await this.#pause(failure);
    return false;
  }

  /** Wait before the next attempt, or throw the error when there is none. */
  async #pause(failure: unknown): Promise<void> {
    if (!(failure instanceof errors.WorkspacedError)) {
      throw failure;
    }
    const now = performance.now();
    this.#lostAt ??= now;
    const limit = this.#connection.retryLimit(failure, this.#connection.resumeTimeoutMs);
    let since = this.#lostAt;
    if (failure instanceof errors.UnreachableError) {
      since = this.#unreachableAt ??= now;
    }
    const delay = this.#backoff.next(failure.retryAfterMs);
    if (limit === 0 || now + delay > since + limit) {
      throw failure;
    }
    await this.#connection.pause(delay, this.#stop.signal);
  }

  async #converse(): Promise<void> {
    const { workspaceId, processId, readOnly } = this.#target;
    const { exec, attachProcess } = ExecutionService.method;
    const options = { signal: this.#stop.signal };
    const offset = BigInt(this.#nextRead);
    const watchdog = { timer: undefined as NodeJS.Timeout | undefined };
    if (readOnly) {
      const call = this.#connection.call(attachProcess, options);
      call.sendLast({ workspaceId, processId, offset });
      this.#watch(call, watchdog);
      try {
        await this.#read(call);
      } finally {
        clearTimeout(watchdog.timer);
        call.cancel(undefined);
      }
      return;
    }
    const call = this.#connection.call(exec, options);
    let sending: Promise<void> | undefined;
    const send = (request: Request): Promise<boolean> => call.send({ request });
    this.#watch(call, watchdog);
    try {
      // The same start again when an answer was lost: the id is ours, so it attaches to what the first one started.
      const start = this.started === undefined ? this.#target.start : undefined;
      await send(
        start === undefined
          ? { case: "attach", value: { workspaceId, processId, offset } }
          : { case: "start", value: { workspaceId, processId, spec: start } },
      );
      await this.#read(call, () => {
        sending ??= this.#send(() => call.over, send);
      });
    } finally {
      clearTimeout(watchdog.timer);
      call.cancel(undefined);
      this.#wake.notify();
      await sending;
    }
  }

  async #read(call: { next(): Promise<IteratorResult<{ event?: Event | undefined }, undefined>> }, onStarted?: () => void): Promise<void> {
    for (;;) {
      this.#readingSince = performance.now();
      const { done, value } = await call.next();
      this.#readingSince = undefined;
      if (done === true) {
        return;
      }
      const { event } = value.event ?? {};
      switch (event?.case) {
        case "output":
          this.#onOutput(event.value);
          while (this.#buffered >= BUFFER_BYTES && !this.closed) {
            await this.#changed.wait(this.#stop.signal);
          }
          break;
        case "started":
          this.#onStarted(event.value);
          onStarted?.();
          break;
        case "stdinAck":
          if (this.stdin.acknowledge(Number(event.value.offset))) {
            this.#progress();
            this.#changed.notify();
          }
          break;
        case "gap":
          this.#onGap(Number(event.value.from), Number(event.value.to));
          break;
        case "heartbeat":
          this.#progress();
          break;
        case "exited":
          if (this.exit === undefined) {
            this.exit = exitInfo(event.value);
            this.#finished = true;
            this.#changed.notify();
          }
          break;
      }
    }
  }

  /** What goes to the process on one call: the size, input from the first unacknowledged byte, the close. */
  async #send(over: () => boolean, send: (request: Request) => Promise<boolean>): Promise<void> {
    let sent = this.stdin.acked;
    let closed = false;
    let size: { cols: number; rows: number } | undefined;
    while (!over()) {
      sent = Math.max(sent, this.stdin.acked);
      // The size goes before input that may have been written after it; for a terminal, to have it early is no harm.
      if (this.#size !== undefined && this.#size !== size) {
        size = this.#size;
        await send({ case: "resize", value: size });
      } else if (sent < this.stdin.end && this.#stdinBroken === undefined) {
        const data = this.stdin.chunk(sent);
        const offset = BigInt(sent);
        sent += data.length;
        await send({ case: "stdin", value: { offset, data } });
      } else if (this.stdinClosed && !closed && this.#stdinBroken === undefined) {
        closed = true;
        await send({ case: "closeStdin", value: { offset: BigInt(this.stdin.end) } });
      } else {
        await this.#wake.wait();
      }
    }
  }

  #watch(call: { cancel(error: unknown): void }, watchdog: { timer: NodeJS.Timeout | undefined }): void {
    const look = (): void => {
      if (this.#readingSince !== undefined && performance.now() - this.#readingSince > SILENCE_MS) {
        call.cancel(new errors.UnavailableError("the stream fell silent"));
        return;
      }
      watchdog.timer = setTimeout(look, SILENCE_MS / 4);
      watchdog.timer.unref();
    };
    look();
  }

  #progress(): void {
    this.#lostAt = this.#unreachableAt = undefined;
    this.#backoff.reset();
  }

  #onStarted({ process, existing }: ProcessStarted): void {
    if (process === undefined) {
      return;
    }
    const first = this.started === undefined;
    this.started = processInfo(process);
    this.#lostAt = this.#unreachableAt = undefined;
    if (first) {
      this.existing = existing;
      this.stdin.begin(this.started.stdinOffset);
    }
    this.stdin.acknowledge(this.started.stdinOffset);
    this.#changed.notify();
  }

  #onOutput(output: ProcessOutput): void {
    let { data } = output;
    let offset = Number(output.offset);
    const expected = this.#nextRead;
    if (offset > expected) {
      throw new errors.InternalError(`output at offset ${offset} where ${expected} was due`, { reason: "STREAM_DISORDERED" });
    }
    if (offset < expected) {
      data = data.subarray(expected - offset);
      offset = expected;
      if (data.length === 0) {
        return; // delivered before
      }
    }
    this.#nextRead = offset + data.length;
    if (this.#lostAt !== undefined || this.#unreachableAt !== undefined) {
      this.#progress();
    }
    this.#events.push({ kind: "output", stream: STREAMS[output.stream] ?? "stdout", data, offset });
    this.#buffered += data.length;
    this.#changed.notify();
  }

  #onGap(from: number, to: number): void {
    const start = Math.max(from, this.#nextRead);
    if (to > start) {
      this.#nextRead = to;
      this.#events.push({ kind: "gap", stream: "", data: new Uint8Array(), offset: start, start, end: to });
      this.#changed.notify();
    }
  }
}

function stdinClosed(message: string): errors.StdinClosedError {
  return new errors.StdinClosedError(message, { reason: "STDIN_CLOSED" });
}
