/** The revision of the API that this client was generated from. */

import { getOption } from "@bufbuild/protobuf";
import { api_revision } from "./gen/workspaced/v1/options_pb.js";
import { file_workspaced_v1_server } from "./gen/workspaced/v1/server_pb.js";

/** The revision of the API that this library was made for; `ServerInfo.apiRevision` is the server's. */
export const apiRevision: number = getOption(file_workspaced_v1_server, api_revision);
