import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, test } from "node:test";
import {
  CancelledError, CommandFailedError, DeadlineExceededError, OutOfRangeError, ProcessExistsError, ProcessNotFoundError,
  ProcessStartFailedError, StdinClosedError, type Process, type ProcessEvent,
} from "../src/index.js";
import { idle, onServer, sharedWorkspace } from "./fixture.js";

const MIB = 1 << 20;
const shared = sharedWorkspace();

async function output(events: AsyncIterable<ProcessEvent>): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const { data } of events) {
    parts.push(data);
  }
  return Buffer.concat(parts).toString();
}

async function until(process: Process, text: string): Promise<string> {
  let seen = "";
  while (!seen.includes(text)) {
    const event = await process.read();
    assert.ok(event, `it ended after ${JSON.stringify(seen)}`);
    seen += Buffer.from(event.data).toString();
  }
  return seen;
}

describe("run", () => {
  test("gives what a command wrote and how it ended", onServer, async () => {
    const result = await shared.ws.run("echo out; echo err >&2; exit 3", { env: { A: "1" }, cwd: "/" });
    assert.equal(result.text, "out\n");
    assert.equal(Buffer.from(result.stderr).toString(), "err\n");
    assert.equal(result.exitCode, 3);
    assert.equal(result.reason, "EXITED");
    assert.equal(result.ok, false);
    assert.throws(() => result.check(), (error) => error instanceof CommandFailedError && error.result === result);
    assert.equal((await shared.ws.run(["printf", "%s", "a b"])).check().text, "a b");
    await assert.rejects(shared.ws.run("exit 1", { check: true }), CommandFailedError);
    await assert.rejects(shared.ws.run(["/no/such/program"]), ProcessStartFailedError);
  });

  test("takes input and gives output of any size", onServer, async () => {
    const stdin = new Uint8Array(3 * MIB).map((_, index) => index % 253);
    const result = await shared.ws.run("cat", { stdin });
    assert.deepEqual(result.stdout, stdin);
    assert.equal(result.truncated, false);
    const short = await shared.ws.run("cat", { stdin, maxOutputBytes: 2 * MIB });
    assert.equal(short.stdout.length, 2 * MIB);
    assert.equal(short.truncated, true);
    assert.equal((await shared.ws.run("head -c 10", { stdin })).stdout.length, 10);
  });

  test("ends the process tree with an abort and with its own time limit", onServer, async () => {
    const stop = new AbortController();
    const running = shared.ws.run("sleep 60", { signal: stop.signal, processId: "aborted" });
    const reason = new Error("enough");
    while ((await shared.ws.processes({ state: "running" })).every(({ processId }) => processId !== "aborted")) {
      await sleep(10);
    }
    stop.abort(reason);
    await assert.rejects(running, (error) => error instanceof CancelledError && error.cause === reason);
    assert.equal((await shared.ws.process("aborted").wait()).signal, "TERM");
    const limited = await shared.ws.run("echo begun; sleep 60", { processTimeoutMs: 300, killGraceMs: 100 });
    assert.equal(limited.reason, "TIMED_OUT");
    assert.equal(limited.text, "begun\n");
    await assert.rejects(shared.ws.run("sleep 60", { timeoutMs: 200 }), DeadlineExceededError);
  });
});

describe("exec", () => {
  test("carries input and output in their order, and an exit", onServer, async () => {
    await using process = await shared.ws.exec(["cat"], { stdin: true });
    assert.ok((process.pid ?? 0) > 0);
    await process.write("one\n");
    assert.equal(await until(process, "one\n"), "one\n");
    await process.write(new TextEncoder().encode("two\n"));
    await process.closeStdin();
    await process.closeStdin();
    assert.equal(await output(process), "two\n");
    assert.equal(process.offset, 8);
    const exit = await process.wait();
    assert.deepEqual([exit.exitCode, exit.signal, exit.reason, exit.ok], [0, undefined, "EXITED", true]);
    await assert.rejects(process.write("three"), StdinClosedError);
  });

  test("the streams of the web", onServer, async () => {
    await using process = await shared.ws.exec("cat; echo error >&2", { stdin: true });
    const { stdout, stderr } = process;
    const writing = new Blob(["x".repeat(2 * MIB)]).stream().pipeTo(process.stdin);
    const [out, err] = await Promise.all([new Response(stdout).text(), new Response(stderr).text(), writing]);
    assert.equal(out.length, 2 * MIB);
    assert.equal(err, "error\n");
  });

  test("a stream that is cancelled leaves the other, and both cancelled detach", onServer, async () => {
    await using process = await shared.ws.exec("echo error >&2; while echo out; do sleep 0.02; done");
    const { stdout, stderr } = process;
    await stdout.cancel();
    const reader = stderr.getReader();
    assert.equal(Buffer.from((await reader.read()).value ?? []).toString(), "error\n");
    await reader.cancel();
    await idle(shared.client);
    await process.signal("KILL");
  });

  test("leaving a loop detaches, and another loop goes on at the next byte", onServer, async () => {
    const process = await shared.ws.exec("for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done");
    for await (const event of process) {
      assert.equal(event.offset, 0);
      break;
    }
    await idle(shared.client);
    const first = process.offset;
    assert.equal(await output(process), "1\n2\n3\n4\n5\n6\n".slice(first));
    await process.close();
    await idle(shared.client);
    await assert.rejects(process.write("x"), TypeError);
  });

  test("input that was taken before a loop was left arrives", onServer, async () => {
    await using process = await shared.ws.exec("echo ready; cat", { stdin: true });
    for await (const event of process) {
      assert.equal(Buffer.from(event.data).toString(), "ready\n");
      await process.write("a".repeat(MIB));
      break;
    }
    await process.write("b");
    await process.closeStdin();
    assert.equal((await output(process)).length, MIB + 1);
  });

  test("leaving the scope detaches, or kills when the policy says so", onServer, async () => {
    const ids: string[] = [];
    for (const disconnectPolicy of ["keep", "kill"] as const) {
      await using process = await shared.ws.exec(["sleep", "60"], { disconnectPolicy });
      ids.push(process.processId);
    }
    const [kept = "", killed = ""] = ids;
    assert.equal((await shared.ws.process(killed).wait()).signal, "KILL");
    assert.equal((await shared.ws.process(kept).info()).state, "RUNNING");
    assert.equal(await shared.ws.process(kept).signal("TERM"), 1);
    await idle(shared.client);
  });

  test("an abort detaches and rejects what waits; one before that starts nothing", onServer, async () => {
    const stop = new AbortController();
    const process = await shared.ws.exec("sleep 60", { signal: stop.signal });
    const reading = process.read();
    stop.abort(new Error("enough"));
    await assert.rejects(reading, CancelledError);
    await idle(shared.client);
    assert.equal((await process.info()).state, "RUNNING");
    await process.signal("KILL");
    await assert.rejects(shared.ws.exec("sleep 60", { signal: stop.signal, processId: "never" }), CancelledError);
    await assert.rejects(shared.ws.process("never").info(), ProcessNotFoundError);
  });

  test("a read that is aborted or timed out loses nothing", onServer, async () => {
    await using process = await shared.ws.exec(["cat"], { stdin: true });
    await assert.rejects(process.read({ timeoutMs: 50 }), DeadlineExceededError);
    await assert.rejects(process.read({ signal: AbortSignal.timeout(20) }), CancelledError);
    await process.write("kept");
    assert.equal(await until(process, "kept"), "kept");
    await assert.rejects(process.wait({ timeoutMs: 50 }), DeadlineExceededError);
    await process.closeStdin();
    assert.equal((await process.wait()).ok, true);
  });

  test("a terminal", onServer, async () => {
    await using process = await shared.ws.exec(["sh"], { pty: { cols: 80, rows: 24 } });
    await process.resize(100, 30);
    await process.write("stty size; exit\n");
    assert.match(await output(process), /30 100/);
  });

  test("errors of starting and attaching", onServer, async () => {
    await assert.rejects(shared.ws.exec(["/no/such/program"]), ProcessStartFailedError);
    const process = await shared.ws.start("echo hello", { processId: "same" });
    await process.wait();
    await assert.rejects(shared.ws.exec("echo other", { processId: "same" }), ProcessExistsError);
    await assert.rejects(shared.ws.attach("none"), ProcessNotFoundError);
    await assert.rejects(shared.ws.attach("same", { offset: 1000 }), OutOfRangeError);
    assert.throws(() => shared.ws.exec("true", { gaps: "drop" as never }), TypeError);
    await using reading = await shared.ws.attach("same", { offset: 2, readOnly: true });
    assert.equal(await output(reading), "llo\n");
    await assert.rejects(reading.write("x"), StdinClosedError);
  });

  test("output that is no longer kept is an error after which reading goes on, or an event", onServer, async () => {
    const process = await shared.ws.start("head -c 1000000 /dev/zero", { journalLimitBytes: 65536 });
    await process.wait();
    await assert.rejects(process.read(), { name: "OutputLostError", start: 0 });
    assert.equal((await output(process)).length, 1_000_000 - (await process.info()).firstOffset);
    await using again = await shared.ws.attach(process.processId, { gaps: "yield" });
    assert.equal((await again.read())?.kind, "gap");
  });
});
