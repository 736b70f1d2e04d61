/** Scopes that are left early, leaks, and load. */

import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Command, Process } from "../../src/index.js";
import { DriverBug, flag, number, register, scopes, text, type Args, type Objects } from "./registry.js";

const SETTLE_MS = 2_000;
const LOOK_MS = 50;

/** How a user's own error leaves a scope. */
class Leave extends Error {}

/** What keeps this program running by itself: its standard streams, which are made when they are first looked at. */
void [process.stdin, process.stdout];
const own = process.getActiveResourcesInfo().length;

register({
  async scope(objects, args) {
    const open = scopes.get(text(args, "what"));
    if (open === undefined) {
      throw new DriverBug(`no scope of ${text(args, "what")}`);
    }
    try {
      const items = await open(objects, args);
      await using _ = { [Symbol.asyncDispose]: async () => void (await items[Symbol.asyncDispose]?.()) };
      for await (const _item of items) {
        if (args["how"] === "error") {
          throw new Leave();
        }
        break;
      }
    } catch (error) {
      if (!(error instanceof Leave)) {
        throw error;
      }
    }
    return {};
  },

  async live(objects) {
    const until = performance.now() + SETTLE_MS;
    for (;;) {
      const calls = [...objects.clients].reduce((sum, client) => sum + client.openCalls, 0);
      const tasks = Math.max(0, process.getActiveResourcesInfo().length - own);
      if ((calls === 0 && tasks === 0) || performance.now() > until) {
        return { calls, tasks };
      }
      await sleep(LOOK_MS);
    }
  },

  async rss() {
    await Promise.resolve();
    return { bytes: process.memoryUsage.rss() };
  },

  async bench_run(objects, args) {
    const ws = objects.workspace(args);
    const seconds: number[] = [];
    for (let index = 0; index < number(args, "count"); index += 1) {
      const start = performance.now();
      await ws.run(command(args));
      seconds.push((performance.now() - start) / 1000);
    }
    seconds.sort((one, other) => one - other);
    return {
      p50: seconds[Math.floor(seconds.length / 2)],
      p90: seconds[Math.floor((seconds.length * 9) / 10)],
      max: seconds.at(-1),
    };
  },

  async bench_stdout(objects, args) {
    const start = performance.now();
    let bytes = 0;
    await using running = await objects.workspace(args).exec(command(args));
    for await (const { data } of running) {
      bytes += data.length;
    }
    return { bytes, seconds: (performance.now() - start) / 1000 };
  },

  async spawn_many(objects, args) {
    const indexes = Array.from({ length: number(args, "count") }, (_, index) => index);
    if (flag(args, "hold") === true) {
      objects.held.push(...(await Promise.all(indexes.map((index) => spawn(objects, args, index)))));
      return { count: indexes.length };
    }
    const ends = await Promise.all(indexes.map((index) => readAll(objects, args, index)));
    return {
      outputs: ends.map(({ output }) => output),
      exit_codes: [...new Set(ends.map(({ exitCode }) => exitCode))].sort(),
    };
  },

  async release_many(objects) {
    await Promise.all(objects.held.splice(0).map((held) => held[Symbol.asyncDispose]()));
    return {};
  },
});

function spawn(objects: Objects, args: Args, index: number): Promise<Process> {
  return objects.workspace(args).exec(command(args), { env: { INDEX: String(index) }, disconnectPolicy: "kill" });
}

async function readAll(objects: Objects, args: Args, index: number): Promise<{ output: string; exitCode: string }> {
  const digest = createHash("sha256");
  await using running = await spawn(objects, args, index);
  for await (const { data } of running) {
    digest.update(data);
  }
  return { output: digest.digest("hex"), exitCode: String((await running.wait()).exitCode) };
}

function command(args: Args): Command {
  return args["command"] as Command;
}
