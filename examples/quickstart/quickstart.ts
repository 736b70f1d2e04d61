import { connect } from "@workspaced/client";

await using client = connect({ address: process.argv[2] ?? "127.0.0.1:7420" });
const ws = await client.initialize({ backend: "local" });
await ws.files.write("count.sh", "for n in 1 2 3; do echo $n; sleep 0.1; done\n");
const program = await ws.exec("sh count.sh");
for await (const chunk of program.stdout) {
  process.stdout.write(chunk); // as it comes
}
console.log("exit code", (await program.wait()).exitCode);
for (const tool of (await ws.tools.list()).tools) {
  console.log(tool.name); // for a model, with tool.description and tool.inputSchema
}
const input = { command: "wc -l count.sh" }; // what a model might ask for
const result = await ws.tools.call("Bash", input);
console.log(result.text);
await ws.delete();
