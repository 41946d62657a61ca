// Node set (b): anvils in lockstep. They start from the same timestamp, mine only when told, get the
// same transactions and the same block times, so that they are two nodes of one chain.

import { startAnvil } from './anvil.mjs';
import { ask } from './rpc.mjs';

const GENESIS_TIME = 1_700_000_000;
const BLOCK_TIME = 12;

/** Starts `count` anvils; `nodes`, `mine(raws)`, `stop()`. */
export async function lockstep(count) {
  const nodes = await Promise.all(
    Array.from({ length: count }, () =>
      startAnvil(['--timestamp', String(GENESIS_TIME), '--no-mining']),
    ),
  );
  const everywhere = (method, params) =>
    Promise.all(nodes.map((node) => ask(node.url, method, params)));
  let time = GENESIS_TIME;
  return {
    nodes,
    /** The answers of all nodes to one question. */
    everywhere,
    /** Gives the signed transactions to every node and mines one block everywhere; the hashes, node by node. */
    async mine(raws = []) {
      for (const raw of raws) await everywhere('eth_sendRawTransaction', [raw]);
      time += BLOCK_TIME;
      await everywhere('evm_setNextBlockTimestamp', [time]);
      await everywhere('evm_mine', []);
      return (await everywhere('eth_getBlockByNumber', ['latest', false])).map((block) => block.hash);
    },
    stop: () => Promise.all(nodes.map((node) => node.stop())),
  };
}
