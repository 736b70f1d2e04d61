/** The output of a process as two streams of bytes. */

import { Notifier } from "./notifier.js";
import type { ProcessEvent } from "./process-info.js";

/** How much of one stream may be unread while the other is read. */
const UNREAD_BYTES = 2 << 20;

interface Half {
  stream: ReadableStream<Uint8Array>;
  controller: ReadableStreamDefaultController<Uint8Array>;
  unread: number;
}

/** Reads events as the streams are read, and puts each into its own. A stream that nobody takes is dropped. */
export class OutputStreams {
  readonly #next: () => Promise<ProcessEvent | undefined>;
  readonly #leave: () => Promise<void>;
  readonly #halves = new Map<"stdout" | "stderr", Half>();
  readonly #taken = new Notifier();
  #reading: Promise<void> | undefined;

  constructor(next: () => Promise<ProcessEvent | undefined>, leave: () => Promise<void>) {
    this.#next = next;
    this.#leave = leave;
  }

  get stdout(): ReadableStream<Uint8Array> {
    return this.#half("stdout").stream;
  }

  get stderr(): ReadableStream<Uint8Array> {
    return this.#half("stderr").stream;
  }

  #half(name: "stdout" | "stderr"): Half {
    const known = this.#known.get(name);
    if (known !== undefined) {
      return known;
    }
    let controller!: ReadableStreamDefaultController<Uint8Array>;
    const stream = new ReadableStream<Uint8Array>(
      {
        start: (given) => {
          controller = given;
        },
        pull: () => this.#pull(half),
        cancel: async () => {
          this.#halves.delete(name);
          this.#taken.notify();
          if (this.#halves.size === 0) {
            await this.#leave();
          }
        },
      },
      { highWaterMark: 0 },
    );
    const half: Half = { stream, controller, unread: 0 };
    this.#halves.set(name, half);
    this.#known.set(name, half);
    return half;
  }

  readonly #known = new Map<"stdout" | "stderr", Half>();

  /** Called when everything that was put into the stream has been read, and more is wanted. */
  async #pull(half: Half): Promise<void> {
    half.unread = 0;
    this.#taken.notify();
    while (half.unread === 0 && [...this.#halves.values()].includes(half)) {
      this.#reading ??= this.#read().finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
    }
  }

  /** One event, or the end. */
  async #read(): Promise<void> {
    while ([...this.#halves.values()].some(({ unread }) => unread >= UNREAD_BYTES)) {
      await this.#taken.wait();
    }
    let event: ProcessEvent | undefined;
    try {
      event = await this.#next();
    } catch (error) {
      for (const { controller } of this.#halves.values()) {
        controller.error(error);
      }
      this.#halves.clear();
      return;
    }
    if (event === undefined) {
      for (const { controller } of this.#halves.values()) {
        controller.close();
      }
      this.#halves.clear();
      return;
    }
    const half = this.#halves.get(event.stream === "stderr" ? "stderr" : "stdout");
    if (half !== undefined && event.data.length > 0) {
      half.unread += event.data.length;
      half.controller.enqueue(event.data);
    }
  }
}
