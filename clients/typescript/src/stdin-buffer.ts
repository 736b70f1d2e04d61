/** Standard input on its way: kept until the guest has it, so that a broken connection loses and doubles nothing. */

const LIMIT_BYTES = 1 << 20;
const FIRST_BYTES = 4 << 10;
/** The most that goes into one message. */
export const CHUNK_BYTES = 256 << 10;

/** The bytes between what was acknowledged and what was written, by offset. */
export class StdinBuffer {
  #data = new Uint8Array(0);
  /** Offset of the first byte of `#data`. */
  #base = 0;
  #acked = 0;
  #end = 0;

  /** Offset of the first byte that is kept. */
  get acked(): number {
    return this.#acked;
  }

  /** Offset of the next byte to be written. */
  get end(): number {
    return this.#end;
  }

  /** How many bytes may be appended now. */
  get room(): number {
    return LIMIT_BYTES - (this.#end - this.#acked);
  }

  /** Set the offset of the first byte; nothing while bytes are kept. */
  begin(offset: number): void {
    if (this.#end === this.#acked) {
      this.#acked = this.#end = this.#base = offset;
    }
  }

  /** Keep a copy of these bytes as the next. */
  append(data: Uint8Array): void {
    if (this.#end - this.#base + data.length > this.#data.length) {
      const kept = this.#data.subarray(this.#acked - this.#base, this.#end - this.#base);
      const size = Math.max(FIRST_BYTES, 2 * (kept.length + data.length));
      const larger = size > this.#data.length ? new Uint8Array(size) : this.#data;
      larger.set(kept);
      this.#data = larger;
      this.#base = this.#acked;
    }
    this.#data.set(data, this.#end - this.#base);
    this.#end += data.length;
  }

  /** Forget what is below an offset; returns whether that was anything. No offset is beyond the end. */
  acknowledge(offset: number): boolean {
    const acked = Math.min(offset, this.#end);
    if (acked <= this.#acked) {
      return false;
    }
    this.#acked = acked;
    return true;
  }

  /** What is kept from an offset on, at most {@link CHUNK_BYTES}; valid until something is appended. */
  chunk(offset: number): Uint8Array {
    const start = offset - this.#base;
    return this.#data.subarray(start, Math.min(start + CHUNK_BYTES, this.#end - this.#base));
  }

  /** Forget everything: nobody will read it. */
  clear(): void {
    this.#acked = this.#end;
  }
}
