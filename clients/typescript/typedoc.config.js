import { OptionDefaults } from "typedoc";

/** @type {Partial<import("typedoc").TypeDocOptions>} */
export default {
  entryPoints: ["src/index.ts", "src/ai.ts"],
  out: "docs",
  // What the generator of the messages writes.
  blockTags: [...OptionDefaults.blockTags, "@generated"],
  excludeInternal: true,
  excludePrivate: true,
  disableSources: true,
  // Messages of the API, which its own reference describes.
  intentionallyNotExported: [
    ...["DaytonaOptions", "DockerOptions", "E2bOptions", "KubernetesOptions", "LocalOptions", "OpensandboxOptions"].map(workspace),
    workspace("WorkspaceSpec"),
    "src/gen/workspaced/v1/content_pb.ts:ContentBlock",
    "src/gen/workspaced/v1/mcp_pb.ts:Mcp",
    "src/gen/workspaced/v1/process_pb.ts:ProcessSpec",
  ],
  treatWarningsAsErrors: true,
};

function workspace(name) {
  return `src/gen/workspaced/v1/workspace_pb.ts:${name}`;
}
