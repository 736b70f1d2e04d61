import { create, toBinary } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, test } from "node:test";
import * as errors from "../src/errors.js";
import {
  BadRequestSchema, ErrorInfoSchema, RequestInfoSchema, RetryInfoSchema,
} from "../src/gen/google/rpc/error_details_pb.js";
import { StatusSchema } from "../src/gen/google/rpc/status_pb.js";
import { serviceConfig } from "../src/service-config.js";
import { fromHeaders } from "../src/status.js";

function trailers(code: number, reason: string, domain = "workspaced"): Record<string, string> {
  const details = [
    anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { reason, domain, metadata: { process_id: "p" } })),
    anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: { seconds: 1n, nanos: 500_000_000 } })),
    anyPack(BadRequestSchema, create(BadRequestSchema, { fieldViolations: [{ field: "spec.pids", description: "too many" }] })),
    anyPack(RequestInfoSchema, create(RequestInfoSchema, { requestId: "r1" })),
  ];
  const status = toBinary(StatusSchema, create(StatusSchema, { code, message: "m", details }));
  return {
    "grpc-status": String(code),
    "grpc-message": "50%25 \u00c3",
    "grpc-status-details-bin": Buffer.from(status).toString("base64"),
  };
}

describe("errors", () => {
  test("a status with details is the class of its reason, with everything that it tells", () => {
    const error = fromHeaders(trailers(5, "PROCESS_NOT_FOUND"));
    assert.ok(error instanceof errors.ProcessNotFoundError);
    assert.ok(error instanceof errors.NotFoundError);
    assert.equal(error.name, "ProcessNotFoundError");
    assert.equal(error.code, "NOT_FOUND");
    assert.equal(error.reason, "PROCESS_NOT_FOUND");
    assert.deepEqual(error.metadata, { process_id: "p" });
    assert.equal(error.retryAfterMs, 1500);
    assert.deepEqual(error.violations, [{ field: "spec.pids", description: "too many" }]);
    assert.equal(error.requestId, "r1");
    assert.match(error.message, /^50% /);
  });

  test("a reason that is not known is the class of the code", () => {
    assert.equal(fromHeaders(trailers(9, "OF_A_NEWER_SERVER"))?.constructor, errors.FailedPreconditionError);
    assert.equal(fromHeaders(trailers(9, "constructor"))?.constructor, errors.FailedPreconditionError);
  });

  test("a reason that has another code by now is the class of the code", () => {
    assert.equal(fromHeaders(trailers(3, "PROCESS_NOT_FOUND"))?.constructor, errors.InvalidArgumentError);
  });

  test("a reason of another domain says nothing", () => {
    const error = fromHeaders(trailers(5, "PROCESS_NOT_FOUND", "elsewhere.example"));
    assert.equal(error?.constructor, errors.NotFoundError);
    assert.equal(error?.reason, "");
  });

  test("a code that is not known is an internal error, and damaged details hide nothing", () => {
    assert.equal(fromHeaders({ "grpc-status": "99" })?.constructor, errors.InternalError);
    const damaged = fromHeaders({ "grpc-status": "14", "grpc-status-details-bin": "////" });
    assert.equal(damaged?.constructor, errors.UnavailableError);
  });

  test("an answer that is not gRPC is told by its HTTP status", () => {
    assert.equal(fromHeaders({ ":status": "503" })?.constructor, errors.UnavailableError);
    assert.equal(fromHeaders({ ":status": "401" })?.constructor, errors.UnauthenticatedError);
    assert.equal(fromHeaders({ "grpc-status": "0" }), undefined);
  });

  test("there is a class for every one of the Python client", async () => {
    const python = await readFile(new URL("../../../python/workspaced/errors.py", import.meta.url), "utf8");
    const names = [...python.matchAll(/^class (\w+)\((?!NamedTuple)\w+\):/gm)].map(([, name = ""]) => name);
    assert.ok(names.length > 50);
    for (const name of names) {
      const own = name === "WorkspacedError" ? name : `${name}Error`;
      assert.ok(own in errors, `${own} is missing`);
    }
  });

  test("every reason of the Python client is known here", async () => {
    const python = await readFile(new URL("../../../python/workspaced/errors.py", import.meta.url), "utf8");
    const table = /^_BY_REASON.*?^\}/ms.exec(python)?.[0] ?? "";
    const reasons = [...table.matchAll(/"(\w+)": (\w+),/g)];
    assert.ok(reasons.length > 30);
    const codes = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
      "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
      "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"];
    for (const [, reason = "", name = ""] of reasons) {
      const type = (errors as unknown as Record<string, typeof errors.WorkspacedError>)[`${name}Error`];
      assert.equal(fromHeaders(trailers(codes.indexOf(type?.defaultCode ?? ""), reason))?.constructor, type, reason);
    }
  });
});

test("the retry policy is the one of all clients", async () => {
  const shared = await readFile(new URL("../../../service_config.json", import.meta.url), "utf8");
  assert.deepEqual(JSON.parse(JSON.stringify(serviceConfig)), JSON.parse(shared));
});
