// Ports that stay ours while nobody listens on them.
//
// A port that the kernel hands out for "port 0" lies in the range from which outgoing connections take
// theirs. While a killed front does not listen there, such a connection may take the port, or even
// connect to itself, and the test would be about that. So the ports here lie below that range.

import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import net from 'node:net';

const LOWEST = 10_000;

function firstOutgoing() {
  try {
    return Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s+/)[0]);
  } catch {
    return 32_768;
  }
}

/** Binds a server made by `create()` to a free port on loopback; gives the server. */
export async function listen(create, port) {
  for (let tries = 0; ; tries += 1) {
    const server = create();
    const chosen = port ?? randomInt(LOWEST, Math.max(firstOutgoing(), LOWEST + 1_000));
    try {
      return await new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(chosen, '127.0.0.1', () => resolve(server));
      });
    } catch (error) {
      if (error.code !== 'EADDRINUSE' || port !== undefined || tries === 100) throw error;
    }
  }
}

/** `count` ports that were free a moment ago. */
export async function freePorts(count) {
  const servers = [];
  while (servers.length < count) servers.push(await listen(() => net.createServer()));
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
  return ports;
}
