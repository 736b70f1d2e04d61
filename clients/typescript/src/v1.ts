/**
 * The messages and services of the API, as they are generated: what `@workspaced/client/connect` takes, and in
 * `google.rpc` the details of errors.
 *
 * @module v1
 */

export * from "./gen/google/rpc/error_details_pb.js";
export * from "./gen/workspaced/v1/content_pb.js";
export * from "./gen/workspaced/v1/discovery_pb.js";
export * from "./gen/workspaced/v1/execution_pb.js";
export * from "./gen/workspaced/v1/file_pb.js";
export * from "./gen/workspaced/v1/lifecycle_pb.js";
export * from "./gen/workspaced/v1/management_pb.js";
export * from "./gen/workspaced/v1/mcp_pb.js";
export * from "./gen/workspaced/v1/offload_pb.js";
export * from "./gen/workspaced/v1/options_pb.js";
export * from "./gen/workspaced/v1/port_pb.js";
export * from "./gen/workspaced/v1/process_pb.js";
export * from "./gen/workspaced/v1/server_pb.js";
export * from "./gen/workspaced/v1/skill_pb.js";
export * from "./gen/workspaced/v1/tool_pb.js";
export * from "./gen/workspaced/v1/workspace_pb.js";
