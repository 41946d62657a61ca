// Waiting for events with a deadline: the only place where a test may lose time.

/** Resolves after `ms`; used between two looks at a condition and to pace an open loop. */
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Looks at `condition` until it gives something truthy, and returns that.
 * An exception counts as "not yet"; the last one is named when the deadline passes.
 */
export async function until(what, condition, { deadline = 10_000, every = 10 } = {}) {
  const end = performance.now() + deadline;
  let last = 'never true';
  for (;;) {
    try {
      const value = await condition();
      if (value) return value;
    } catch (error) {
      last = String(error?.message ?? error);
    }
    if (performance.now() >= end) throw new Error(`${what}: not within ${deadline} ms (${last})`);
    await pause(every);
  }
}

/** `promise`, or an error that names `what` once `ms` have passed. */
export function within(what, ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}
