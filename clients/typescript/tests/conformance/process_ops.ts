/** Programs: run to their end, or live. */

import { Process, type Command, type ExecOptions, type Exit, type ProcessEvent, type ProcessOptions, type Result } from "../../src/index.js";
import { bytesOf, chunksOf, resultOf, Sink } from "./data.js";
import { flag, milliseconds, number, optionalNumber, optionalText, register, scopes, text, type Args, type Objects } from "./registry.js";

/** A process, and what a read that did not come to its end has taken. */
class Handle {
  pending: ProcessEvent[] = [];

  constructor(readonly process: Process) {}
}

register({
  async run(objects, args, call) {
    const result = await objects.workspace(args).run(command(args), {
      ...call,
      ...spec(args),
      stdin: args["stdin"] === undefined ? undefined : bytesOf(args["stdin"]),
      maxOutputBytes: optionalNumber(args, "max_output_bytes"),
      disconnectPolicy: optionalText(args, "disconnect_policy") as "keep" | "kill" | undefined,
      check: flag(args, "check"),
    });
    return runResult(result);
  },

  async exec(objects, args, call) {
    const process = await objects.workspace(args).exec(command(args), {
      ...call,
      ...spec(args),
      ...stream(args),
      disconnectPolicy: optionalText(args, "disconnect_policy") as "keep" | "kill" | undefined,
    });
    objects.put(args, "process", new Handle(process));
    return standing(process);
  },

  async start(objects, args, call) {
    const process = await objects.workspace(args).start(command(args), { ...call, ...spec(args), ...stream(args) });
    objects.put(args, "process", new Handle(process));
    return { process_id: process.processId };
  },

  async attach(objects, args, call) {
    const process = await objects.workspace(args).attach(text(args, "process_id"), {
      ...call,
      offset: optionalNumber(args, "offset"),
      readOnly: flag(args, "read_only"),
      gaps: gaps(args),
    });
    objects.put(args, "process", new Handle(process));
    return standing(process);
  },

  async process(objects, args) {
    await Promise.resolve();
    objects.put(args, "process", new Handle(objects.workspace(args).process(text(args, "process_id"))));
    return {};
  },

  async processes(objects, args, call) {
    const state = optionalText(args, "state") as "running" | "exited" | undefined;
    const found = await objects.workspace(args).processes({ ...call, state });
    return { ids: found.map(({ processId }) => processId).sort() };
  },

  async process_info(objects, args, call) {
    const info = await handle(objects, args).process.info(call);
    return {
      process_id: info.processId,
      state: info.state,
      first_offset: info.firstOffset,
      next_offset: info.nextOffset,
      stdin_offset: info.stdinOffset,
      stdin_open: info.stdinOpen,
      command: info.command,
      exit: info.exit === undefined ? null : exitOf(info.exit),
    };
  },

  async write(objects, args, call) {
    const { process } = handle(objects, args);
    for (const chunk of chunksOf(args["data"])) {
      await process.write(chunk, call);
    }
    return { stdin_offset: process.stdinOffset };
  },

  async close_stdin(objects, args, call) {
    await handle(objects, args).process.closeStdin(call);
    return {};
  },

  async resize(objects, args, call) {
    await handle(objects, args).process.resize(number(args, "cols"), number(args, "rows"), call);
    return {};
  },

  async signal(objects, args, call) {
    const options = { ...call, leaderOnly: flag(args, "leader_only") };
    return { signaled: await handle(objects, args).process.signal(text(args, "signal"), options) };
  },

  async read(objects, args, call) {
    const read = handle(objects, args);
    const taken = new Taken(optionalText(args, "until"), optionalNumber(args, "bytes"));
    const kept = read.pending;
    read.pending = [];
    let end = false;
    try {
      kept.forEach((event) => taken.add(event));
      while (!taken.enough) {
        const event = await read.process.read(call);
        if (event === undefined) {
          end = true;
          break;
        }
        kept.push(event);
        taken.add(event);
      }
    } catch (error) {
      read.pending = kept;
      throw error;
    }
    return { ...taken.result(), offset: read.process.offset, end };
  },

  async wait(objects, args, call) {
    return exitOf(await handle(objects, args).process.wait(call));
  },

  async detach(objects, args) {
    await handle(objects, args).process.close();
    return {};
  },

  async leave(objects, args) {
    await handle(objects, args).process[Symbol.asyncDispose]();
    return {};
  },
});

scopes.set("exec", (objects, args) => objects.workspace(args).exec(command(args)));
scopes.set("attach", (objects, args) => objects.workspace(args).attach(text(args, "process_id")));

/** What one `read` has taken, and whether that is enough. */
class Taken {
  enough: boolean;
  readonly #until: Buffer;
  readonly #size: number | undefined;
  readonly #sinks = { stdout: new Sink(), stderr: new Sink(), pty: new Sink() };
  readonly #tails = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), pty: Buffer.alloc(0) };
  readonly #order: { stream: string; offset: number; size: number }[] = [];
  readonly #gaps: [number, number][] = [];
  #total = 0;

  constructor(until: string | undefined, size: number | undefined) {
    this.#until = Buffer.from(until ?? "");
    this.#size = size;
    this.enough = size === 0;
  }

  add(event: ProcessEvent): void {
    if (event.kind === "gap") {
      this.#gaps.push([event.start, event.end]);
      return;
    }
    const { stream, offset, data } = event;
    this.#sinks[stream].add(data);
    const last = this.#order.at(-1);
    if (last?.stream === stream && last.offset + last.size === offset) {
      last.size += data.length;
    } else {
      this.#order.push({ stream, offset, size: data.length });
    }
    this.#total += data.length;
    this.enough ||= this.#size !== undefined && this.#total >= this.#size;
    if (this.#until.length > 0) {
      const seen = Buffer.concat([this.#tails[stream], data]);
      this.enough ||= seen.includes(this.#until);
      this.#tails[stream] = seen.subarray(-this.#until.length);
    }
  }

  result(): object {
    return {
      stdout: this.#sinks.stdout.result(),
      stderr: this.#sinks.stderr.result(),
      pty: this.#sinks.pty.result(),
      order: this.#order.map(({ stream, offset, size }) => [stream, offset, size]),
      gaps: this.#gaps,
    };
  }
}

/** The result of `run`. */
export function runResult(result: Result): object {
  return {
    process_id: result.processId,
    exit_code: result.exitCode ?? null,
    signal: result.signal ?? null,
    reason: result.reason,
    stdout: resultOf(result.stdout),
    stderr: resultOf(result.stderr),
    truncated: result.truncated,
  };
}

function exitOf(exit: Exit): object {
  return {
    exit_code: exit.exitCode ?? null,
    signal: exit.signal ?? null,
    reason: exit.reason,
    output_incomplete: exit.outputIncomplete,
  };
}

function standing(process: Process): object {
  return {
    process_id: process.processId,
    pid: process.pid,
    existing: process.existing,
    stdin_offset: process.stdinOffset,
  };
}

function handle(objects: Objects, args: Args): Handle {
  return objects.get(args, "process", Handle);
}

function command(args: Args): Command {
  return args["command"] as Command;
}

function gaps(args: Args): "throw" | "yield" | undefined {
  const value = optionalText(args, "gaps");
  return value === "raise" ? "throw" : (value as "yield" | undefined);
}

function spec(args: Args): ProcessOptions {
  const pty = args["pty"] as [number, number] | undefined;
  return {
    env: args["env"] as Record<string, string> | undefined,
    cwd: optionalText(args, "cwd"),
    user: optionalText(args, "user"),
    processId: optionalText(args, "process_id"),
    processTimeoutMs: milliseconds(args, "process_timeout"),
    killGraceMs: milliseconds(args, "kill_grace"),
    pty: pty && { cols: pty[0], rows: pty[1] },
  };
}

function stream(args: Args): Pick<ExecOptions, "stdin" | "overflowPolicy" | "journalLimitBytes" | "gaps"> {
  return {
    stdin: flag(args, "stdin"),
    overflowPolicy: optionalText(args, "overflow_policy") as ExecOptions["overflowPolicy"],
    journalLimitBytes: optionalNumber(args, "journal_limit_bytes"),
    gaps: gaps(args),
  };
}
