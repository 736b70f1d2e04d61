import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { connect, LeaseNotFoundError, UnavailableError, WorkspacedError, type LeasedWorkspace } from "../src/index.js";
import { LifecycleService } from "../src/gen/workspaced/v1/lifecycle_pb.js";
import { newId } from "../src/spec.js";
import { CuttingProxy } from "./cutting-proxy.js";
import { onServer, SERVER } from "./fixture.js";

const backend = "local";
const leaseDurationMs = 1_500;

/** Waits until what a lease shows has changed. */
async function changed<T>(look: () => T): Promise<T> {
  const before = look();
  while (look() === before) {
    await sleep(10);
  }
  return look();
}

async function ended(lease: LeasedWorkspace): Promise<WorkspacedError> {
  while (!lease.lost.aborted) {
    await sleep(10); // what renews it keeps no program running, so that something else has to
  }
  assert.ok(lease.lost.reason instanceof WorkspacedError);
  return lease.lost.reason;
}

describe("leases", onServer, () => {
  test("a lease is renewed until it is released, and the workspace stays the same", async () => {
    await using client = connect({ address: SERVER });
    const whose = { policy: "per_session", userId: newId(), agentId: "a", sessionId: "s", backend } as const;
    const first = await client.acquire({ ...whose, leaseDurationMs });
    assert.equal(first.created, true);
    await first.files.write("kept", "kept");
    const expires = first.leaseExpireTime.getTime();
    for (let renewed = 0; renewed < 4; renewed += 1) {
      await changed(() => first.leaseExpireTime);
    }
    assert.ok(first.leaseExpireTime.getTime() >= expires + leaseDurationMs);
    assert.equal(first.lost.aborted, false);
    await first.release();
    await first.release();
    assert.equal(first.lost.aborted, false);
    const method = LifecycleService.method.renewLease;
    await assert.rejects(client.connection.unary(method, { leaseId: first.leaseId }), LeaseNotFoundError);

    const second = await client.acquire(whose);
    assert.deepEqual([second.created, second.id], [false, first.id]);
    assert.equal(await second.files.readText("kept"), "kept");
    await second[Symbol.asyncDispose]();
    await second.delete();
    await assert.rejects(client.acquire({ ...whose, policy: "nobody" as never }), TypeError);
  });

  test("a lease that is gone is acquired again, and that is told", async () => {
    await using client = connect({ address: SERVER });
    const lease = await client.acquire({ policy: "per_user", userId: newId(), backend, leaseDurationMs });
    await client.connection.unary(LifecycleService.method.releaseWorkspace, { leaseId: lease.leaseId });
    await changed(() => lease.leaseId);
    assert.ok((await ended(lease)) instanceof LeaseNotFoundError);
    assert.equal((await lease.info()).state, "READY");
    await lease.release();
    await lease.delete();
  });

  test("a lease that cannot be renewed is lost when it ends; releasing it then fails nobody", async () => {
    const warnings: string[] = [];
    const proxy = await CuttingProxy.listen(SERVER);
    await using client = connect({ address: proxy.address, onWarning: (message) => warnings.push(message) });
    const lease = await client.acquire({ policy: "per_user", userId: newId(), backend, leaseDurationMs });
    const start = performance.now();
    await proxy[Symbol.asyncDispose]();
    assert.ok((await ended(lease)) instanceof UnavailableError);
    assert.ok(performance.now() - start > leaseDurationMs / 2);
    await lease.release();
    assert.ok(warnings.some((message) => message.includes("not renewed")));
    assert.ok(warnings.some((message) => message.includes("not released")));
    await using direct = connect({ address: SERVER });
    await direct.workspace(lease.id).delete();
  });

  test("a program that holds a lease ends when it has nothing else to do", async () => {
    const library = new URL("../src/index.js", import.meta.url).href;
    const program = `
      import { connect } from ${JSON.stringify(library)};
      const client = connect({ address: ${JSON.stringify(SERVER)} });
      const ws = await client.acquire({ policy: "per_user", userId: "${newId()}", backend: "local" });
      console.log(ws.id);`;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { timeout: 20_000 });
    await using client = connect({ address: SERVER });
    await client.workspace(stdout.trim()).delete();
  });
});
