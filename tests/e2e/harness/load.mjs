// Open-loop load: reads leave at their own times, whether or not earlier ones have come back.

import { post } from './rpc.mjs';
import { pause } from './wait.mjs';

const IDENTITY = '0x0000000000000000000000000000000000000004';
let serial = 0;

/** One read whose right answer is known and belongs to it alone; gives undefined, or what was wrong. */
export async function read(url) {
  const n = ++serial;
  const data = `0x${n.toString(16).padStart(64, '0')}`;
  const body = `{"jsonrpc":"2.0","id":${n},"method":"eth_call","params":[{"to":"${IDENTITY}","data":"${data}"},"latest"]}`;
  try {
    const { status, text } = await post(url, body);
    const answer = JSON.parse(text);
    if (status === 200 && answer.id === n && answer.result === data) return undefined;
    return `read ${n}: HTTP ${status} ${text.slice(0, 300)}`;
  } catch (error) {
    return `read ${n}: ${error.message}`;
  }
}

/**
 * Sends `rate` reads a second until `stop()`, which waits for the last answer and gives
 * `{sent, wrong, slowest_ms}`. `settled()` is the number answered so far.
 */
export function openLoop(url, rate) {
  const began = performance.now();
  const wrong = [];
  const pending = new Set();
  let sent = 0;
  let settled = 0;
  let slowest = 0;
  let going = true;
  const one = async () => {
    const at = performance.now();
    const fault = await read(url);
    slowest = Math.max(slowest, performance.now() - at);
    settled += 1;
    if (fault) wrong.push(fault);
  };
  const pacer = (async () => {
    while (going) {
      const due = Math.floor(((performance.now() - began) / 1000) * rate);
      while (sent < due) {
        sent += 1;
        const read = one().finally(() => pending.delete(read));
        pending.add(read);
      }
      await pause(2);
    }
  })();
  return {
    settled: () => settled,
    sent: () => sent,
    async stop() {
      going = false;
      await pacer;
      await Promise.all(pending);
      return { sent, wrong, slowest_ms: Math.round(slowest) };
    },
  };
}
