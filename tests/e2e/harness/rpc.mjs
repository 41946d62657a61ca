// A bare JSON-RPC caller over node:http: exact bytes out, exact bytes back, no retry, no library's opinion.

import http from 'node:http';

const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });

/** POSTs `body` as it is; gives `{status, headers, text}`. */
export function post(url, body, { timeout = 20_000, headers = {} } = {}) {
  return new Promise((resolve, reject) => {
    const bytes = Buffer.from(body);
    const request = http.request(
      url,
      {
        method: 'POST',
        agent,
        headers: { 'content-type': 'application/json', 'content-length': bytes.length, ...headers },
      },
      (response) => {
        const parts = [];
        response.on('data', (part) => parts.push(part));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode,
            headers: response.headers,
            text: Buffer.concat(parts).toString('utf8'),
          }),
        );
      },
    );
    request.setTimeout(timeout, () => request.destroy(new Error(`no answer within ${timeout} ms`)));
    request.on('error', reject);
    request.end(bytes);
  });
}

/** GETs `url`; gives `{status, text}`. */
export function get(url, { timeout = 5_000 } = {}) {
  return new Promise((resolve, reject) => {
    const request = http.get(url, { agent: false }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('error', reject);
      response.on('end', () =>
        resolve({ status: response.statusCode, text: Buffer.concat(parts).toString('utf8') }),
      );
    });
    request.setTimeout(timeout, () => request.destroy(new Error(`no answer within ${timeout} ms`)));
    request.on('error', reject);
  });
}

let nextId = 0;

/** One Call; gives the whole answer object. */
export async function call(url, method, params = [], options) {
  const id = ++nextId;
  const { status, headers, text } = await post(
    url,
    JSON.stringify({ jsonrpc: '2.0', id, method, params }),
    options,
  );
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(`${method}: HTTP ${status}, not JSON: ${text.slice(0, 200)}`);
  }
  if (answer.id !== id) throw new Error(`${method}: asked with id ${id}, got ${text.slice(0, 200)}`);
  return Object.assign(answer, { http: { status, headers } });
}

/** One Call; gives its result, or throws the error object's message with its code. */
export async function ask(url, method, params = [], options) {
  const answer = await call(url, method, params, options);
  if ('error' in answer) {
    const error = new Error(`${method}: ${answer.error.code} ${answer.error.message}`);
    throw Object.assign(error, { rpc: answer.error });
  }
  return answer.result;
}
