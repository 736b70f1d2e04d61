/** Ports inside a workspace. */

import { Tunnel } from "../../src/index.js";
import { chunksOf, Sink } from "./data.js";
import { abortable, number, optionalNumber, optionalText, register, type Args, type Objects } from "./registry.js";

/** A tunnel, with the locks on its two streams. */
class Ends {
  readonly reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly writer: WritableStreamDefaultWriter<Uint8Array>;

  constructor(readonly tunnel: Tunnel) {
    this.reader = tunnel.readable.getReader();
    this.writer = tunnel.writable.getWriter();
    // Each use of the ends is told what went wrong.
    this.reader.closed.catch(() => undefined);
    this.writer.closed.catch(() => undefined);
    this.writer.ready.catch(() => undefined);
  }
}

register({
  async list_ports(objects, args, call) {
    const found = await objects.workspace(args).listPorts(call);
    return { ports: found.map(({ port }) => port).sort((one, other) => one - other) };
  },

  async tunnel(objects, args, call) {
    const options = { ...call, host: optionalText(args, "host") };
    objects.put(args, "tunnel", new Ends(await objects.workspace(args).tunnel(number(args, "port"), options)));
    return {};
  },

  async tunnel_send(objects, args, { signal }) {
    const { writer } = ends(objects, args);
    for (const chunk of chunksOf(args["data"])) {
      await abortable(writer.write(chunk), signal);
    }
    return {};
  },

  async tunnel_close_write(objects, args, { signal }) {
    await abortable(ends(objects, args).writer.close(), signal);
    return {};
  },

  async tunnel_recv(objects, args, { signal }) {
    const { reader } = ends(objects, args);
    const enough = optionalNumber(args, "bytes") ?? Infinity;
    const sink = new Sink();
    let end = false;
    while (sink.size < enough && !end) {
      const { done, value } = await abortable(reader.read(), signal);
      end = done;
      if (value !== undefined) {
        sink.add(value);
      }
    }
    return { ...sink.result(), end };
  },

  async tunnel_close(objects, args) {
    await ends(objects, args).tunnel.close();
    return {};
  },
});

function ends(objects: Objects, args: Args): Ends {
  return objects.get(args, "tunnel", Ends);
}
