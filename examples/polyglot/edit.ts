// The second: fetches from the web server through a tunnel, edits what it serves with a tool, and fetches again.
import { get, type Agent, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { connect, type AcquireOptions } from "@workspaced/client";

const { WORKSPACED_SERVER = "127.0.0.1:7420", BACKEND = "local", IMAGE = "", PORT = "8000" } = process.env;

await using client = connect({ address: WORKSPACED_SERVER });
const who = { agentId: "web", sessionId: "polyglot" };
const backend = BACKEND as NonNullable<AcquireOptions["backend"]>;
await using ws = await client.acquire({ policy: "per_session", userId: "ada", ...who, backend, image: IMAGE });

const agent = ws.httpAgent(Number(PORT));
console.log("before:", await page(agent));
await ws.tools.call("Read", { file_path: "index.html" }, who); // nothing is edited that was not read
const change = { file_path: "index.html", old_string: "Go", new_string: "TypeScript" };
const result = await ws.tools.call("Edit", change, who);
console.log(result.text);
console.log("after:", await page(agent));
agent.destroy();

async function page(agent: Agent): Promise<string> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    get("http://dev-server/", { agent }, resolve).on("error", reject);
  });
  return (await text(response)).trim();
}
