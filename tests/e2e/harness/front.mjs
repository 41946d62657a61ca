// A TCP front before a node, for faults that a node does not make by itself: killed, frozen, slow,
// or dying between the forwarded request and its answer. It relays bytes as they are and only reads
// along, so that a test can count what arrived.

import net from 'node:net';
import { listen } from './ports.mjs';

/**
 * Follows the requests in a byte stream. Ringway frames every upstream request with an exact
 * Content-Length (DESIGN: one body with exact Content-Length), so anything else is a fault to report.
 */
class RequestReader {
  #bytes = Buffer.alloc(0);

  /** Adds bytes; calls `each(body)` for every request that is complete. */
  feed(bytes, each) {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    for (;;) {
      const end = this.#bytes.indexOf('\r\n\r\n');
      if (end < 0) return;
      const head = this.#bytes.toString('latin1', 0, end);
      const length = /\r\ncontent-length: *(\d+) *(?:\r\n|$)/i.exec(head);
      if (!length) throw new Error(`request without Content-Length: ${head.split('\r\n')[0]}`);
      const total = end + 4 + Number(length[1]);
      if (this.#bytes.length < total) return;
      const body = this.#bytes.toString('utf8', end + 4, total);
      this.#bytes = this.#bytes.subarray(total);
      each(body);
    }
  }
}

/** The method names in a request body, a batch's in order. */
const methodsIn = (body) => [JSON.parse(body)].flat().map((call) => call.method);

/**
 * Ends a connection with RST. A socket that is just shutting down cannot be reset: Node would mark it
 * destroyed, leave its handle open, and spin on it until the process ends.
 */
function reset(socket) {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

export class Front {
  #server = null;
  #pairs = new Set();
  #target;
  #frozen = false;
  #delay = 0;
  #unanswered = new Set();

  /** TCP connections accepted. */
  connections = 0;
  /** Method name -> Calls whose request arrived whole. */
  seen = new Map();
  /** Calls of all methods. */
  calls = 0;
  /** Requests that could not be read; a test ends with this empty. */
  faults = [];

  constructor(targetPort) {
    this.#target = targetPort;
  }

  /** A front on a port of its own. */
  static async before(targetPort) {
    const front = new Front(targetPort);
    await front.#listen();
    return front;
  }

  get url() {
    return `http://127.0.0.1:${this.port}/`;
  }

  /** Calls of `method` that arrived here. */
  count(method) {
    return this.seen.get(method) ?? 0;
  }

  async #listen(port) {
    const create = () => net.createServer({ noDelay: true }, (caller) => this.#accept(caller));
    this.#server = await listen(create, port);
    this.port = this.#server.address().port;
  }

  #accept(caller) {
    this.connections += 1;
    const pair = { caller, node: null, drop: false };
    this.#pairs.add(pair);
    caller.on('error', () => {});
    caller.on('close', () => {
      this.#pairs.delete(pair);
      pair.node?.destroy();
    });
    if (this.#frozen) caller.pause();
    else this.#join(pair);
  }

  #join(pair) {
    const { caller } = pair;
    const node = net.connect({ port: this.#target, host: '127.0.0.1', noDelay: true });
    pair.node = node;
    const reader = new RequestReader();
    caller.on('data', (bytes) => {
      try {
        reader.feed(bytes, (body) => this.#note(pair, body));
      } catch (error) {
        this.faults.push(error.message);
      }
      node.write(bytes);
    });
    caller.on('end', () => node.end());
    node.on('data', (bytes) => {
      // The first byte of the answer proves that the node has acted; that is when the front dies.
      if (pair.drop) return void reset(caller);
      if (this.#delay === 0) return void caller.write(bytes);
      setTimeout(() => caller.destroyed || caller.write(bytes), this.#delay);
    });
    node.on('error', () => reset(caller));
    node.on('close', () => caller.destroy());
  }

  #note(pair, body) {
    for (const method of methodsIn(body)) {
      this.calls += 1;
      this.seen.set(method, this.count(method) + 1);
      if (this.#unanswered.has(method)) pair.drop = true;
    }
  }

  #resetAll() {
    for (const { caller } of this.#pairs) reset(caller);
  }

  /** Closes the listener and resets every connection: the node's machine lost its process. */
  async kill() {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#resetAll();
    await closed;
    this.#server = null;
  }

  /** Listens again on the same port after `kill()`. */
  async revive() {
    await this.#listen(this.port);
  }

  /** Goes on accepting, reads nothing and forwards nothing: the node's machine hangs. */
  freeze() {
    this.#frozen = true;
    for (const { caller, node } of this.#pairs) {
      caller.pause();
      node?.pause();
    }
  }

  /** Ends `freeze()`; what was stuck is reset, as after a restart of the machine. */
  thaw() {
    this.#frozen = false;
    this.#resetAll();
  }

  /** Holds every answer back for `ms`. */
  delay(ms) {
    this.#delay = ms;
  }

  /** From now on requests with one of these methods are forwarded, and their connection is reset instead of answered. */
  leaveUnanswered(...methods) {
    this.#unanswered = new Set(methods);
  }

  async close() {
    if (this.#server) await this.kill();
  }
}
