/** The skills of a workspace's agents. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import { stat } from "node:fs/promises";
import type { CallOptions, Connection } from "./connection.js";
import { DiscoveryService } from "./gen/workspaced/v1/discovery_pb.js";
import { ManagementService, type AddSkillRequestSchema } from "./gen/workspaced/v1/management_pb.js";
import type { Skill } from "./gen/workspaced/v1/skill_pb.js";
import { when } from "./info.js";
import type { JsonObject } from "./json.js";
import { collected } from "./paging.js";
import { send } from "./send.js";
import { fileSource, sourceOf, type Data, type Source } from "./source.js";
import { packed } from "./tar.js";
import { unsigned } from "./unsigned.js";
import { agent, type Who } from "./who.js";

/** A directory or an archive (zip, tar, tar.gz) by its path on this machine, or the bytes of an archive. */
export type SkillSource = string | Exclude<Data, string>;

/** A skill: what a model sees of it, and where it lies in the workspace. */
export interface SkillInfo {
  readonly name: string;
  /** When to use it, for a model. */
  readonly description: string;
  /** Its directory, absolute inside the workspace. */
  readonly path: string;
  /** When its `SKILL.md` was last changed. */
  readonly updateTime: Date | undefined;
  /** The SHA-256 of its `SKILL.md` in hexadecimal. */
  readonly sha256: string;
  /** The other keys of its front matter. */
  readonly metadata: JsonObject;
}

/** One file of a skill, by its path below the skill's directory. */
export interface SkillFile {
  readonly path: string;
  /** In bytes. */
  readonly size: number;
  readonly executable: boolean;
}

/** A skill with the text of its `SKILL.md` and its files. */
export interface SkillDetail extends SkillInfo {
  /** The text with its front matter. */
  readonly markdown: string;
  /** The first 1,000 of them. */
  readonly files: readonly SkillFile[];
  /** There are more. */
  readonly filesTruncated: boolean;
}

/** A directory that is no valid skill. */
export interface SkillProblem {
  readonly path: string;
  readonly reason: string;
  readonly message: string;
}

/** How a skill is installed. */
export interface AddSkillOptions extends CallOptions, Pick<Who, "agentId"> {
  /** Replace a skill of the same name, in one step. */
  replace?: boolean | undefined;
  /** The SHA-256, in hexadecimal, that the archive must have: `HashMismatchError`. */
  sha256?: string | undefined;
  /** The greatest expanded size in bytes; absent: the server's limit. */
  maxExpandedBytes?: number | undefined;
}

/** Whose skills are meant. */
export type Whose = Pick<Who, "agentId"> & CallOptions;
type Request = MessageInitShape<typeof AddSkillRequestSchema>;

/** Installs, lists and removes skills. They belong to an agent; without `agentId` to one that no id can name. */
export class Skills {
  readonly #connection: Connection;
  readonly #workspaceId: string;

  /** @internal */
  constructor(connection: Connection, workspaceId: string) {
    this.#connection = connection;
    this.#workspaceId = workspaceId;
  }

  /**
   * Installs a skill from a directory (which is packed here, links as links), an archive or its bytes.
   *
   * Identical content again is fine; another skill of the name is `SkillExistsError` unless `replace`. Rejects with
   * `SkillInvalidError`, `ArchiveInvalidError`, and the error of `node:fs` for the local side. A call that fails or is
   * cancelled leaves nothing. It is not repeated.
   */
  async add(source: SkillSource, options: AddSkillOptions = {}): Promise<SkillInfo> {
    const { replace = false, sha256 = "", maxExpandedBytes = 0, signal, timeoutMs } = options;
    const start = {
      workspaceId: this.#workspaceId,
      ...agent(options),
      replace,
      sha256,
      maxExpandedBytes: unsigned("maxExpandedBytes", maxExpandedBytes),
    };
    const first: Request = { part: { case: "start", value: start } };
    const chunk = (value: Uint8Array): Request => ({ part: { case: "chunk", value } });
    const content = typeof source === "string" ? await localSource(source) : sourceOf(source);
    const method = ManagementService.method.addSkill;
    return skillInfo((await send(this.#connection, method, { first, chunk, source: content }, { signal, timeoutMs })).skill);
  }

  /** The skills of an agent by name, as their files are now. */
  async list(options: Whose = {}): Promise<SkillInfo[]> {
    const request = { workspaceId: this.#workspaceId, ...agent(options), pageSize: 1000 };
    const method = DiscoveryService.method.listSkills;
    const page = (pageToken: string, call: CallOptions) => this.#connection.unary(method, { ...request, pageToken }, call);
    return await collected(page, options, ({ skills }) => skills.map(skillInfo));
  }

  /** The directories among an agent's skills that are none, with the reason. */
  async problems(options: Whose = {}): Promise<SkillProblem[]> {
    const request = { workspaceId: this.#workspaceId, ...agent(options), pageSize: 1 };
    const { problems } = await this.#connection.unary(DiscoveryService.method.listSkills, request, call(options));
    return problems.map(({ path, reason, message }) => ({ path, reason, message }));
  }

  /** A skill with its text and the names of its files. Rejects with `SkillNotFoundError`. */
  async get(name: string, options: Whose = {}): Promise<SkillDetail> {
    const request = { workspaceId: this.#workspaceId, ...agent(options), name };
    const found = await this.#connection.unary(DiscoveryService.method.getSkill, request, call(options));
    const files = found.files.map(({ path, sizeBytes, executable }) => ({ path, size: Number(sizeBytes), executable }));
    return { ...skillInfo(found.skill), markdown: found.markdown, files, filesTruncated: found.filesTruncated };
  }

  /** Removes a skill; whether there was one. `SkillNotFoundError` without `allowMissing`, with which it is idempotent,
   * and repeated. */
  async remove(name: string, options: { allowMissing?: boolean | undefined } & Whose = {}): Promise<boolean> {
    const { allowMissing = false } = options;
    const request = { workspaceId: this.#workspaceId, ...agent(options), name, allowMissing };
    const method = ManagementService.method.removeSkill;
    return (await this.#connection.unary(method, request, { ...call(options), repeatable: allowMissing })).removed;
  }
}

async function localSource(path: string): Promise<Source> {
  if (!(await stat(path)).isDirectory()) {
    return await fileSource(path);
  }
  return { repeatable: false, size: undefined, chunks: () => packed(path) };
}

function skillInfo(skill: Skill | undefined): SkillInfo {
  return {
    name: skill?.name ?? "",
    description: skill?.description ?? "",
    path: skill?.path ?? "",
    updateTime: when(skill?.updateTime),
    sha256: skill?.sha256 ?? "",
    metadata: skill?.metadata ?? {},
  };
}

function call({ signal, timeoutMs }: CallOptions): CallOptions {
  return { signal, timeoutMs };
}
