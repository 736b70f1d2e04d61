import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { connect } from "../src/index.js";
import { CuttingProxy } from "./cutting-proxy.js";
import { onServer, SERVER, sharedWorkspace } from "./fixture.js";

const MIB = 1 << 20;
const shared = sharedWorkspace();

test("output is one unbroken stream over broken connections", onServer, async () => {
  await using proxy = await CuttingProxy.listen(SERVER);
  await using client = connect({ address: proxy.address });
  await using process = await client.workspace(shared.ws.id).exec("seq 1 2000000");
  const digest = createHash("sha256");
  let next = 0;
  for await (const event of process) {
    assert.equal(event.offset, next);
    next += event.data.length;
    digest.update(event.data);
    if (proxy.cuts < 5 && next > (proxy.cuts + 1) * 2 * MIB) {
      proxy.cut();
    }
  }
  assert.ok(proxy.cuts >= 5);
  const expected = createHash("sha256");
  for (let number = 1; number <= 2_000_000; number += 1) {
    expected.update(`${number}\n`);
  }
  assert.equal(digest.digest("hex"), expected.digest("hex"));
  assert.equal((await process.wait()).ok, true);
});

test("input arrives once, whatever breaks", onServer, async () => {
  await using proxy = await CuttingProxy.listen(SERVER);
  await using client = connect({ address: proxy.address });
  await using process = await client.workspace(shared.ws.id).exec("sha256sum", { stdin: true });
  const digest = createHash("sha256");
  for (let round = 0; round < 64; round += 1) {
    const data = new Uint8Array(100_000).map((_, index) => (index * 7 + round) % 256);
    digest.update(data);
    await process.write(data);
    if (round % 12 === 11) {
      proxy.cut();
    }
  }
  await process.closeStdin();
  assert.equal((await process.wait()).ok, true);
  const event = await process.read();
  assert.match(Buffer.from(event?.data ?? []).toString(), new RegExp(`^${digest.digest("hex")}`));
});

test("a command whose answer is lost runs once", onServer, async () => {
  await using proxy = await CuttingProxy.listen(SERVER);
  await using client = connect({ address: proxy.address });
  const ws = client.workspace(shared.ws.id);
  await ws.info();
  const running = ws.run("echo run >> times; sleep 1; wc -l < times", { disconnectPolicy: "keep" });
  await shared.ws.run("while ! test -s times; do sleep 0.02; done");
  proxy.cut();
  assert.equal((await running).text.trim(), "1");
});
