// The gateway under test: a configuration written for one test, and the real binary that serves it.

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { outFile, start } from './child.mjs';
import { freePorts } from './ports.mjs';
import { get } from './rpc.mjs';
import { until } from './wait.mjs';

const BINARY =
  process.env.RINGWAY_BIN ?? fileURLToPath(new URL('../../../target/release/ringway', import.meta.url));
export const DRIVER = process.env.E2E_DRIVER ?? 'io_uring';

const toml = (value) =>
  Array.isArray(value)
    ? `[${value.map(toml).join(', ')}]`
    : value !== null && typeof value === 'object'
      ? `{ ${pairs(value).join(', ')} }`
      : JSON.stringify(value);
const pairs = (table) => Object.entries(table).map(([key, value]) => `${key} = ${toml(value)}`);
const table = (head, body) => [head, ...pairs(body), ''].join('\n');

/** The configuration: `endpoints` is {id: url} or {id: {url, …}}; `route`, `gateway` and `network` overlay the defaults. */
function configuration([port, admin], { endpoints, route = {}, gateway = {}, circuit = {}, network = {} }) {
  const place = { chain: 'ethereum', network: 'dev' };
  return [
    table('[server]', {
      listen: [`127.0.0.1:${port}`],
      admin: `127.0.0.1:${admin}`,
      shards: 2,
      driver: DRIVER,
      shutdown_grace: '5s',
    }),
    table('[circuit]', { consecutive_failures: 3, cooldown: '500ms', max_cooldown: '1s', ...circuit }),
    table('[[network]]', { ...place, ...network }),
    ...Object.entries(endpoints).map(([id, of]) =>
      table('[[endpoint]]', { id, ...place, ...(typeof of === 'string' ? { url: of } : of) }),
    ),
    table('[[gateway]]', { id: 'eth', path: '/eth', ...place, ...gateway }),
    table('[[gateway.route]]', {
      id: 'default',
      strategy: 'priority',
      targets: Object.keys(endpoints),
      max_attempts: 3,
      attempt_timeout: '2s',
      ...route,
    }),
  ].join('\n');
}

/** Serves `setup`; `url` is the Gateway, `metric(name, labels)` reads one sample, `stop()` ends it. */
export async function startRingway(setup) {
  const [port, admin] = await freePorts(2);
  const file = outFile('ringway', 'toml');
  writeFileSync(file, configuration([port, admin], setup));
  const child = start('ringway', BINARY, ['serve', '--config', file]);
  const adminUrl = `http://127.0.0.1:${admin}`;
  let ended;
  child.ended.then(
    ({ code, signal }) => (ended = `it ended with code ${code}, signal ${signal}`),
    (error) => (ended = error.message),
  );
  await until(
    `ringway ready (${file}, ${child.log})`,
    async () => ended ?? (await get(`${adminUrl}/readyz`)).status === 200,
  );
  if (ended) throw new Error(`ringway: ${ended}, see ${child.log}`);
  return {
    url: `http://127.0.0.1:${port}/eth`,
    admin: adminUrl,
    log: child.log,
    /** The sum of a metric's samples whose line holds every one of `labels`. */
    async metric(name, ...labels) {
      const { text } = await get(`${adminUrl}/metrics`);
      return text
        .split('\n')
        .filter((line) => line.startsWith(name) && /^[{ ]/.test(line.slice(name.length)))
        .filter((line) => labels.every((label) => line.includes(label)))
        .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0);
    },
    /** SIGTERM, as an operator ends it: it must go in time and say that all went well. */
    async stop() {
      const { code, signal } = await child.stop();
      if (code !== 0) throw new Error(`ringway ended with code ${code}, signal ${signal}, see ${child.log}`);
    },
  };
}
