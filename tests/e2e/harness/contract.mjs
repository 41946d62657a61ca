// A contract small enough to be written by hand: one stored number, one event, one custom error.
//
//   function set(uint256 value)            stores it, emits Stored(value)
//   function get() returns (uint256)
//   function refuse(uint256 value)         reverts with Refused(value)

import { encodeAbiParameters, parseAbi, toEventSelector, toFunctionSelector } from 'viem';

export const abi = compiled(parseAbi([
  'function set(uint256 value)',
  'function get() view returns (uint256)',
  'function refuse(uint256 value) view',
  'event Stored(uint256 value)',
  'error Refused(uint256 value)',
]));

/** As a compiler writes it: web3.py needs `anonymous` on events and `indexed` on their inputs. */
function compiled(parsed) {
  return parsed.map((item) =>
    item.type === 'event'
      ? { ...item, anonymous: false, inputs: item.inputs.map((input) => ({ indexed: false, ...input })) }
      : item,
  );
}

const OPS = {
  STOP: 0x00, EQ: 0x14, SHL: 0x1b, SHR: 0x1c, CALLDATALOAD: 0x35, CODECOPY: 0x39, MSTORE: 0x52,
  SLOAD: 0x54, SSTORE: 0x55, JUMPI: 0x57, JUMPDEST: 0x5b, DUP1: 0x80, LOG1: 0xa1, RETURN: 0xf3,
  REVERT: 0xfd,
};

/** Hex of a program: names are opcodes, `0x..` is pushed, `:name` places a label, `@name` pushes it. */
function assemble(source) {
  const labels = new Map();
  const parts = [];
  let at = 0;
  for (const word of source.split(/\s+/).filter(Boolean)) {
    if (word.startsWith(':')) {
      labels.set(word.slice(1), at);
      continue;
    }
    const part = word.startsWith('@')
      ? () => `60${labels.get(word.slice(1)).toString(16).padStart(2, '0')}`
      : word.startsWith('0x')
        ? () => (0x5f + word.length / 2 - 1).toString(16) + word.slice(2)
        : () => OPS[word].toString(16).padStart(2, '0');
    at += word.startsWith('@') ? 2 : word.startsWith('0x') ? word.length / 2 : 1;
    parts.push(part);
  }
  return parts.map((part) => part()).join('');
}

const refused = toFunctionSelector('function Refused(uint256)');
const runtime = assemble(`
  0x00 CALLDATALOAD 0xe0 SHR
  DUP1 ${toFunctionSelector('function set(uint256)')} EQ @set JUMPI
  DUP1 ${toFunctionSelector('function get()')} EQ @get JUMPI
  DUP1 ${toFunctionSelector('function refuse(uint256)')} EQ @refuse JUMPI
  0x00 DUP1 REVERT
  :set JUMPDEST
    0x04 CALLDATALOAD DUP1 0x00 SSTORE
    0x00 MSTORE ${toEventSelector('event Stored(uint256)')} 0x20 0x00 LOG1 STOP
  :get JUMPDEST
    0x00 SLOAD 0x00 MSTORE 0x20 0x00 RETURN
  :refuse JUMPDEST
    ${refused} 0xe0 SHL 0x00 MSTORE
    0x04 CALLDATALOAD 0x04 MSTORE 0x24 0x00 REVERT
`);

const size = `0x${(runtime.length / 2).toString(16).padStart(2, '0')}`;
// Eleven bytes of init code come before the runtime: copy it to memory, return it.
const init = assemble(`${size} DUP1 0x0b 0x00 CODECOPY 0x00 RETURN`);

/** What a deployment sends. */
export const bytecode = `0x${init}${runtime}`;

/** Call data of `refuse(value)`, and the revert data that must come back. */
export const refuseCall = (value) =>
  toFunctionSelector('function refuse(uint256)') + encodeAbiParameters([{ type: 'uint256' }], [value]).slice(2);
export const refusedData = (value) =>
  refused + encodeAbiParameters([{ type: 'uint256' }], [value]).slice(2);
