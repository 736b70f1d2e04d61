/** The DATA of the vectors: bytes that are named, not carried. */

import { createHash } from "node:crypto";
import { DriverBug } from "./registry.js";

const MIB = 1 << 20;
const SHOWN_BYTES = 65536;
const blocks = new Map<string, Uint8Array>();

/** The bytes of a DATA in pieces of at most 1 MiB, but for those that a request carries. */
export function* chunksOf(data: unknown): Generator<Uint8Array, void, undefined> {
  if (typeof data === "string") {
    yield new TextEncoder().encode(data);
    return;
  }
  const { base64, pattern, size } = (data ?? {}) as { base64?: string; pattern?: string | number; size?: number };
  if (base64 !== undefined) {
    yield new Uint8Array(Buffer.from(base64, "base64"));
    return;
  }
  if (pattern === undefined || size === undefined) {
    throw new DriverBug(`${JSON.stringify(data)} is no DATA`);
  }
  const block = blockOf(String(pattern));
  for (let number = 0, left = size; left > 0; number += 1) {
    const turn = number % MIB;
    const piece = new Uint8Array(MIB);
    piece.set(block.subarray(turn));
    piece.set(block.subarray(0, turn), MIB - turn);
    yield piece.subarray(0, left);
    left -= MIB;
  }
}

/** The bytes of a DATA in memory. */
export function bytesOf(data: unknown): Uint8Array {
  return new Uint8Array(Buffer.concat([...chunksOf(data)]));
}

/** Takes bytes as they come and tells of them as a result does: size, hash, and what is short in full. */
export class Sink {
  size = 0;
  readonly #digest = createHash("sha256");
  #kept: Uint8Array[] | undefined = [];

  /** Take some bytes. */
  add(data: Uint8Array): void {
    this.size += data.length;
    this.#digest.update(data);
    if (this.size > SHOWN_BYTES) {
      this.#kept = undefined;
    } else {
      this.#kept?.push(data);
    }
  }

  /** DATA, as a result has it. */
  result(): { size: number; sha256: string; base64?: string } {
    const shown = this.#kept === undefined ? {} : { base64: Buffer.concat(this.#kept).toString("base64") };
    return { size: this.size, sha256: this.#digest.copy().digest("hex"), ...shown };
  }
}

/** DATA, as a result has it. */
export function resultOf(data: Uint8Array): object {
  const sink = new Sink();
  sink.add(data);
  return sink.result();
}

function blockOf(seed: string): Uint8Array {
  let block = blocks.get(seed);
  if (block === undefined) {
    block = new Uint8Array(MIB);
    for (let k = 0; k < MIB / 32; k += 1) {
      block.set(createHash("sha256").update(`${seed}:${k}`).digest(), k * 32);
    }
    blocks.set(seed, block);
  }
  return block;
}
