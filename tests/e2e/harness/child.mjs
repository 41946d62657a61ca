// Child processes that never outlive the test process, with their output kept for the post-mortem.

import { spawn } from 'node:child_process';
import { createWriteStream, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { within } from './wait.mjs';

/** Where logs, reports and generated configurations go. */
export const OUT = process.env.E2E_OUT ?? fileURLToPath(new URL('../.out/dev', import.meta.url));
mkdirSync(OUT, { recursive: true });

const running = new Set();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

let serial = 0;

/** A name for a file in OUT that no other process of this run uses. */
export const outFile = (stem, extension) =>
  join(OUT, `${stem}-${process.pid}-${++serial}.${extension}`);

/**
 * Starts `command` with its output in a log file. `line(text)` sees every line of stdout;
 * `ended` resolves to `{code, signal}`.
 */
export function start(name, command, args, { line } = {}) {
  const log = outFile(name, 'log');
  const sink = createWriteStream(log);
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  running.add(child);
  let rest = '';
  child.stdout.on('data', (bytes) => {
    sink.write(bytes);
    if (!line) return;
    const lines = (rest + bytes).split('\n');
    rest = lines.pop();
    for (const text of lines) line(text);
  });
  child.stderr.on('data', (bytes) => sink.write(bytes));
  const ended = new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code, signal) => {
      running.delete(child);
      resolve({ code, signal });
    });
  });
  ended.catch(() => running.delete(child));
  return {
    log,
    ended,
    get over() {
      return child.exitCode !== null || child.signalCode !== null;
    },
    /** Asks it to end with `signal`; one that does not obey is killed, and that is an error. */
    async stop(signal = 'SIGTERM', ms = 10_000) {
      child.kill(signal);
      try {
        return await within(`${name} ending after ${signal}`, ms, ended);
      } catch (error) {
        child.kill('SIGKILL');
        throw error;
      }
    },
  };
}
