/** Where a server is, and how to speak to it. */

import { readFileSync } from "node:fs";
import * as net from "node:net";
import type { SecureClientSessionOptions } from "node:http2";

/** How to speak TLS. Paths are PEM files, read when the connection is made; a `Uint8Array` is the content of one. */
export interface TlsOptions {
  /** The authorities to trust; absent: the built-in ones. */
  ca?: string | Uint8Array | undefined;
  /** The certificate of this client (mutual TLS); needs `key`. */
  cert?: string | Uint8Array | undefined;
  /** The private key of this client. */
  key?: string | Uint8Array | undefined;
  /** The name to expect in the server's certificate, when it is not the address's host. */
  serverName?: string | undefined;
}

/** Whether an address stays on this machine. */
export function isLoopback(address: string): boolean {
  if (address.startsWith("unix:")) {
    return true;
  }
  const { hostname } = authority(address, false);
  const host = hostname.replace(/^\[|\]$/g, "");
  if (host === "localhost" || host === "::1") {
    return true;
  }
  return net.isIPv4(host) && host.startsWith("127.");
}

/** The URL of an address: `host:port`, `[::1]:port` or `unix:///path`. Throws `TypeError`. */
export function authority(address: string, secure: boolean): URL {
  const scheme = secure ? "https" : "http";
  if (address.startsWith("unix:")) {
    return new URL(`${scheme}://localhost`);
  }
  const bare = address.replace(/^(dns:\/{0,3}|https?:\/\/)/, "");
  let url: URL;
  try {
    url = new URL(`${scheme}://${bare}`);
  } catch (cause) {
    throw new TypeError(`${JSON.stringify(address)} is no address: host:port or unix:///path`, { cause });
  }
  if (url.pathname !== "/" || url.search !== "" || url.username !== "") {
    throw new TypeError(`${JSON.stringify(address)} is no address: host:port or unix:///path`);
  }
  return url;
}

/** The path of the socket of a `unix:` address. */
export function socketPath(address: string): string | undefined {
  return address.startsWith("unix:") ? address.replace(/^unix:(\/\/)?/, "") : undefined;
}

/** TLS as Node wants it. Throws what reading a file throws. */
export function secureOptions(tls: TlsOptions): SecureClientSessionOptions {
  const options: SecureClientSessionOptions = {};
  if (tls.ca !== undefined) options.ca = pem(tls.ca);
  if (tls.cert !== undefined) options.cert = pem(tls.cert);
  if (tls.key !== undefined) options.key = pem(tls.key);
  if (tls.serverName !== undefined) options.servername = tls.serverName;
  return options;
}

function pem(source: string | Uint8Array): Buffer {
  return typeof source === "string" ? readFileSync(source) : Buffer.from(source);
}
