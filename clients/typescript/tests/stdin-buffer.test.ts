import assert from "node:assert/strict";
import { test } from "node:test";
import { CHUNK_BYTES, StdinBuffer } from "../src/stdin-buffer.js";

const text = (data: Uint8Array): string => new TextDecoder().decode(data);
const bytes = (data: string): Uint8Array => new TextEncoder().encode(data);

test("bytes are kept by offset until they are acknowledged", () => {
  const buffer = new StdinBuffer();
  buffer.begin(10);
  buffer.append(bytes("abc"));
  buffer.append(bytes("def"));
  assert.equal(buffer.end, 16);
  assert.equal(text(buffer.chunk(10)), "abcdef");
  assert.equal(text(buffer.chunk(14)), "ef");
  assert.equal(buffer.acknowledge(12), true);
  assert.equal(buffer.acknowledge(11), false);
  assert.equal(text(buffer.chunk(buffer.acked)), "cdef");
  assert.equal(buffer.acknowledge(100), true);
  assert.equal(buffer.acked, 16);
  assert.equal(buffer.chunk(16).length, 0);
});

test("it takes 1 MiB, in any pieces, and gives chunks of bounded size", () => {
  const buffer = new StdinBuffer();
  let written = 0;
  let read = 0;
  for (let round = 0; round < 200; round += 1) {
    const piece = new Uint8Array(Math.min(buffer.room, 9973 * ((round % 7) + 1))).map((_, index) => (written + index) % 251);
    buffer.append(piece);
    written += piece.length;
    assert.ok(buffer.room >= 0);
    const chunk = buffer.chunk(read);
    assert.ok(chunk.length <= CHUNK_BYTES);
    assert.ok(chunk.every((byte, index) => byte === (read + index) % 251));
    read += chunk.length;
    buffer.acknowledge(read - 5000);
  }
  assert.equal(buffer.end, written);
});

test("what the writer changes afterwards is not sent", () => {
  const buffer = new StdinBuffer();
  const data = bytes("abc");
  buffer.append(data);
  data.fill(0);
  assert.equal(text(buffer.chunk(0)), "abc");
});

test("cleared, it keeps nothing and counts on", () => {
  const buffer = new StdinBuffer();
  buffer.append(bytes("abc"));
  buffer.clear();
  assert.equal(buffer.acked, 3);
  buffer.append(bytes("d"));
  assert.equal(text(buffer.chunk(3)), "d");
});
