// What one unary call costs with node:http2 alone: no client, nothing encoded, nothing decoded.
// node bare_http2.mjs HOST:PORT METHOD REQUEST(hex); for each line of stdin, a count, the median seconds of so many calls.
import { connect } from "node:http2";
import { createInterface } from "node:readline";

const [address, method, hex] = process.argv.slice(2);
const body = Buffer.from(hex, "hex");
const message = Buffer.concat([Buffer.from([0, 0, 0, 0, 0]), body]);
message.writeUInt32BE(body.length, 1);
const headers = { ":method": "POST", ":path": method, "content-type": "application/grpc", te: "trailers" };
const session = connect(`http://${address}`);

const call = () =>
  new Promise((resolve, reject) => {
    const stream = session.request(headers);
    let status;
    stream.on("trailers", (trailers) => (status = trailers["grpc-status"]));
    stream.on("error", reject);
    stream.on("data", () => undefined);
    stream.on("end", () => (status === "0" ? resolve() : reject(new Error(`gRPC status ${status}`))));
    stream.end(message);
  });

for await (const count of createInterface({ input: process.stdin })) {
  const seconds = [];
  for (let index = 0; index < Number(count); index += 1) {
    const start = performance.now();
    await call();
    seconds.push((performance.now() - start) / 1000);
  }
  seconds.sort((one, other) => one - other);
  console.log(seconds[seconds.length >> 1]);
}
session.close();
