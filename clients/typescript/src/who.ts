/** Whose tools, MCP servers, skills and sessions are meant. */

import { duration } from "./info.js";

/** An agent in a session. Each is optional: without an id it is one of its own, which no id can name. */
export interface Who {
  agentId?: string | undefined;
  sessionId?: string | undefined;
}

/** The ids that are given, for a request. */
export function who({ agentId, sessionId }: Who): { agentId?: string; sessionId?: string } {
  return { ...agent({ agentId }), ...(sessionId !== undefined && { sessionId }) };
}

/** The agent's id when it is given, for a request. */
export function agent({ agentId }: Pick<Who, "agentId">): { agentId?: string } {
  return { ...(agentId !== undefined && { agentId }) };
}

/** A duration that may be absent, for a request. */
export function optionalDuration<K extends string>(field: K, ms: number | undefined) {
  return (ms === undefined ? {} : { [field]: duration(ms) }) as { [P in K]?: ReturnType<typeof duration> };
}
