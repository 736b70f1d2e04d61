"""An MCP server with one tool, of the standard library alone. It starts at once, so that its start hides nothing."""

import json
import sys

ABOUT = {"capabilities": {"tools": {}}, "serverInfo": {"name": "light", "version": "1"}}
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            answer["result"] = {**ABOUT, "protocolVersion": message["params"]["protocolVersion"]}
        case "tools/list":
            answer["result"] = {"tools": [TOOL]}
        case method:
            answer["error"] = {"code": -32601, "message": f"there is no {method}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
