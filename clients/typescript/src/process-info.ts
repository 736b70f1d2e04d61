/** What is known of a process: its record, its end, and the events of its output. */

import { EXIT_REASONS, PROCESS_STATES, type ExitReason, type ProcessState } from "./enums.js";
import type { Process, ProcessExit, ProcessSpec } from "./gen/workspaced/v1/process_pb.js";
import { milliseconds, when } from "./info.js";

/** Bytes that a process wrote. */
export interface Output {
  readonly kind: "output";
  readonly stream: "stdout" | "stderr" | "pty";
  readonly data: Uint8Array;
  /** Offset of the first byte in the journal, which counts the bytes of all streams. */
  readonly offset: number;
}

/**
 * Bytes from `start` to before `end` of the journal are no longer kept. Has what {@link Output} has, without a byte in
 * it, so that who only wants the bytes that are left reads both alike.
 */
export interface Gap {
  readonly kind: "gap";
  readonly stream: "";
  readonly data: Uint8Array;
  readonly offset: number;
  readonly start: number;
  readonly end: number;
}

/** What iterating over a process gives. */
export type ProcessEvent = Output | Gap;

/** What a process and its reaped children used. */
export interface ResourceUsage {
  readonly userMs: number;
  readonly systemMs: number;
  /** Peak resident memory of the largest process. */
  readonly maxRssBytes: number;
}

/** How a process ended. At most one of `exitCode` and `signal` is set; neither with reason LOST. */
export interface Exit {
  readonly reason: ExitReason;
  readonly exitCode: number | undefined;
  /** Name without SIG, for example `KILL`. */
  readonly signal: string | undefined;
  readonly usage: ResourceUsage | undefined;
  /** Some output was or may have been lost. */
  readonly outputIncomplete: boolean;
  /** Another process still held the output open when the exit was reported. */
  readonly drained: boolean;
  readonly exitTime: Date | undefined;
  /** Whether it ended by itself with code 0. */
  readonly ok: boolean;
}

/** A process as its workspace knows it. */
export interface ProcessInfo {
  readonly processId: string;
  readonly pid: number;
  readonly state: ProcessState;
  /** A shell's command line, or a program and its arguments. */
  readonly command: string | readonly string[];
  readonly startTime: Date | undefined;
  /** Offset of the oldest byte of output that is still kept. */
  readonly firstOffset: number;
  /** Length of all output so far. */
  readonly nextOffset: number;
  /** How many bytes of standard input were accepted. */
  readonly stdinOffset: number;
  readonly stdinOpen: boolean;
  readonly exit: Exit | undefined;
  /** Its whole spec, with secrets redacted. */
  readonly spec: ProcessSpec | undefined;
}

/** How it ended, in words. */
export function describe(exit: Exit): string {
  const status = exit.exitCode !== undefined ? `exit code ${exit.exitCode}` : `signal ${exit.signal ?? "unknown"}`;
  if (exit.reason === "EXITED" || exit.reason === "SIGNALED") {
    return status;
  }
  return `${exit.reason.toLowerCase().replaceAll("_", " ")} (${status})`;
}

/** From the message. */
export function exitInfo(proto: ProcessExit): Exit {
  const { status, usage } = proto;
  const reason = EXIT_REASONS.name(proto.reason);
  const exitCode = status.case === "exitCode" ? status.value : undefined;
  return {
    reason,
    exitCode,
    signal: status.case === "signal" ? status.value : undefined,
    usage: usage && {
      userMs: milliseconds(usage.userTime),
      systemMs: milliseconds(usage.systemTime),
      maxRssBytes: Number(usage.maxRssBytes),
    },
    outputIncomplete: proto.outputIncomplete,
    drained: proto.drained,
    exitTime: when(proto.exitTime),
    ok: reason === "EXITED" && exitCode === 0,
  };
}

/** From the message. */
export function processInfo(proto: Process): ProcessInfo {
  const command = proto.spec?.command;
  return {
    processId: proto.processId,
    pid: proto.pid,
    state: PROCESS_STATES.name(proto.state),
    command: command?.case === "argv" ? command.value.args : (command?.value ?? ""),
    startTime: when(proto.startTime),
    firstOffset: Number(proto.firstOffset),
    nextOffset: Number(proto.nextOffset),
    stdinOffset: Number(proto.stdinOffset),
    stdinOpen: proto.stdinOpen,
    exit: proto.exit && exitInfo(proto.exit),
    spec: proto.spec,
  };
}
