// Failover under load over set (a): one anvil behind the fronts A (primary) and B. Not one read may be lost.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { openLoop } from './harness/load.mjs';
import { stand } from './harness/stand.mjs';
import { until } from './harness/wait.mjs';

const RATE = 500;
const SECOND = RATE;

/** Runs `steps` on a stand under load and gives what the load saw. */
async function underLoad(t, setup, steps) {
  const it = await stand(setup);
  try {
    const load = openLoop(it.url, RATE);
    /** Waits until `count` more reads were answered. */
    const answered = (count, what) => {
      const goal = load.settled() + count;
      return until(`${count} reads answered ${what}`, () => load.settled() >= goal, { deadline: 15_000 });
    };
    let report;
    try {
      await steps({ ...it, load, answered });
    } finally {
      report = await load.stop();
    }
    t.diagnostic(
      `${report.sent} reads, ${report.wrong.length} lost, slowest ${report.slowest_ms} ms; A ${it.a.calls}, B ${it.b.calls}`,
    );
    assert.deepEqual(report.wrong.slice(0, 5), [], `${report.wrong.length} of ${report.sent} reads lost`);
    return report;
  } finally {
    await it.close();
  }
}

/** Waits until B stays idle while A answers a second's worth of reads. */
async function backAtPrimary({ a, b }) {
  let [mark, quiet] = [a.calls, b.calls];
  await until(
    'all traffic back at A',
    () => {
      if (b.calls !== quiet) [mark, quiet] = [a.calls, b.calls];
      return a.calls - mark >= SECOND;
    },
    { deadline: 15_000 },
  );
}

describe('set (a): failover at 500 reads/s', () => {
  test('the primary is killed and comes back', async (t) => {
    await underLoad(t, {}, async ({ a, b, answered }) => {
      await answered(2 * SECOND, 'with A well');
      assert.equal(b.calls, 0, 'B is only the second choice');
      await a.kill();
      const before = b.calls;
      await answered(2 * SECOND, 'with A killed');
      assert.ok(b.calls - before >= SECOND, 'B has taken over');
      await a.revive();
      await backAtPrimary({ a, b });
    });
  });

  test('the primary hangs and recovers', async (t) => {
    const setup = { route: { attempt_timeout: '500ms' } };
    const report = await underLoad(t, setup, async ({ a, b, answered }) => {
      await answered(SECOND, 'with A well');
      a.freeze();
      const before = b.calls;
      await answered(2 * SECOND, 'with A frozen');
      assert.ok(b.calls - before >= SECOND, 'B has taken over');
      a.thaw();
      await backAtPrimary({ a, b });
    });
    // One timeout at A and one quick answer from B: an attempt may not cost more than its bound.
    assert.ok(report.slowest_ms < 3_000, `slowest read ${report.slowest_ms} ms`);
  });

  test('the secondary is killed and nobody notices', async (t) => {
    await underLoad(t, {}, async ({ a, b, answered }) => {
      await answered(SECOND / 2, 'with B well');
      await b.kill();
      await answered(SECOND, 'with B killed');
      assert.ok(a.calls >= SECOND);
    });
  });
});
