/** Clients and workspaces. */

import { readFile } from "node:fs/promises";
import { Client, connect, type InitializeOptions, type TlsOptions, type WorkspaceFilter } from "../../src/index.js";
import { flag, milliseconds, optionalText, register, scopes, text, type Args } from "./registry.js";

register({
  async connect(objects, args) {
    await Promise.resolve();
    const tokenFile = optionalText(args, "token_file");
    const client = connect({
      address: text(args, "address"),
      token: tokenFile === undefined ? optionalText(args, "token") : async () => (await readFile(tokenFile, "utf8")).trim(),
      tls: tls(args),
      insecure: flag(args, "insecure"),
      timeoutMs: milliseconds(args, "call_timeout"),
      retryTimeoutMs: milliseconds(args, "retry_timeout"),
      resumeTimeoutMs: milliseconds(args, "resume_timeout"),
      onWarning: (message) => objects.warnings.push(message),
    });
    objects.clients.add(client);
    objects.put(args, "client", client);
    return {};
  },

  async close_client(objects, args) {
    await objects.get(args, "client", Client).close();
    return {};
  },

  async server_info(objects, args, call) {
    const info = await objects.get(args, "client", Client).serverInfo(call);
    return {
      version: info.version,
      api_revision: info.apiRevision,
      backends: info.backends.filter(({ available }) => available).map(({ backend }) => backend).sort(),
      default_backend: info.defaultBackend,
      principal: info.principal,
      scopes: [...info.scopes].sort(),
    };
  },

  async warnings(objects) {
    await Promise.resolve();
    return { messages: objects.warnings };
  },

  async initialize(objects, args, call) {
    const resources = args["resources"] as Record<string, number> | undefined;
    const ws = await objects.get(args, "client", Client).initialize({
      ...call,
      backend: optionalText(args, "backend") as InitializeOptions["backend"],
      workspaceId: optionalText(args, "id"),
      image: optionalText(args, "image"),
      env: args["env"] as Record<string, string> | undefined,
      labels: args["labels"] as Record<string, string> | undefined,
      instructions: optionalText(args, "instructions"),
      idleTimeoutMs: milliseconds(args, "idle_timeout"),
      requestId: optionalText(args, "request_id"),
      template: optionalText(args, "template"),
      persistent: flag(args, "persistent"),
      workdir: optionalText(args, "workdir"),
      resources: resources && {
        cpuMillis: resources["cpu_millis"],
        memoryBytes: resources["memory_bytes"],
        diskBytes: resources["disk_bytes"],
        pids: resources["pids"],
      },
      wait: flag(args, "no_wait") !== true,
    });
    objects.put(args, "ws", ws);
    return { workspace_id: ws.id };
  },

  async workspace(objects, args) {
    await Promise.resolve();
    objects.put(args, "ws", objects.get(args, "client", Client).workspace(text(args, "id")));
    return {};
  },

  async ws_info(objects, args, call) {
    const info = await objects.workspace(args).info(call);
    return {
      workspace_id: info.workspaceId,
      state: info.state,
      backend: info.backend,
      labels: info.labels,
      image: info.image,
      workdir: info.workdir,
      state_reason: info.stateReason,
    };
  },

  async ws_close(objects, args, call) {
    return { state: (await objects.workspace(args).close({ ...call, graceMs: milliseconds(args, "grace") })).state };
  },

  async ws_reset(objects, args, call) {
    const options = { ...call, wipeFiles: flag(args, "wipe_files"), killProcesses: flag(args, "kill_processes") };
    return { state: (await objects.workspace(args).reset(options)).state };
  },

  async ws_delete(objects, args, call) {
    await objects.workspace(args).delete({ ...call, allowMissing: flag(args, "allow_missing") });
    return {};
  },

  async list_workspaces(objects, args, call) {
    const found = await objects.get(args, "client", Client).list({ ...filter(args), ...call });
    return { ids: found.map(({ workspaceId }) => workspaceId).sort() };
  },

  async watch_workspaces(objects, args, call) {
    const until = text(args, "until");
    const states: string[] = [];
    for await (const { state } of objects.get(args, "client", Client).watch({ ...filter(args), ...call })) {
      states.push(state);
      if (state === until) {
        break;
      }
    }
    return { states };
  },
});

scopes.set("watch_workspaces", (objects, args) => Promise.resolve(objects.get(args, "client", Client).watch()));

function tls(args: Args): TlsOptions | undefined {
  const options = {
    ca: optionalText(args, "ca"),
    cert: optionalText(args, "cert"),
    key: optionalText(args, "key"),
    serverName: optionalText(args, "server_name"),
  };
  return flag(args, "tls") === true || Object.values(options).some((value) => value !== undefined) ? options : undefined;
}

function filter(args: Args): WorkspaceFilter {
  return {
    labels: args["labels"] as WorkspaceFilter["labels"],
    states: args["states"] as WorkspaceFilter["states"],
    backends: args["backends"] as WorkspaceFilter["backends"],
    workspaceIds: args["ids"] as WorkspaceFilter["workspaceIds"],
  };
}
