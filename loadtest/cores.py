"""Whole cores: how busy one is, interrupts included, and what the hypervisor took.

/proc/stat counts in ticks of 10 ms. A core's idle time is exact apart from that, so what is not idle is the window's
length less the idle ticks; the other fields are sampled by the kernel at its timer and only their steal is used.
"""

import os
import pathlib
import time

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
CONTROL_S = 2.0
# A round that lost more than this share of a core to the hypervisor is left out of the medians.
STEAL_MAX = 0.01
# A core that is busier than this while nothing is measured has other work, which may change from round to round.
QUIET_MAX = 0.05


def read(core, text=None):
    """The ticks of a core so far, by field."""
    text = pathlib.Path("/proc/stat").read_text() if text is None else text
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == f"cpu{core}":
            return dict(zip(FIELDS, map(int, words[1:1 + len(FIELDS)])))
    raise ValueError(f"/proc/stat has no core {core}")


def busy_s(ticks, window_s):
    """Seconds in which the core was neither idle nor taken away."""
    away = ticks["idle"] + ticks["iowait"] + ticks["steal"]
    return max(0.0, window_s - away * TICK_S)


def control(core, seconds=CONTROL_S):
    """The share of the core that is busy while nothing is measured."""
    before, begun = read(core), time.monotonic()
    time.sleep(seconds)
    after, passed = read(core), time.monotonic() - begun
    return busy_s({field: after[field] - before[field] for field in FIELDS}, passed) / passed


def steal(ticks, window_s):
    """The share of the window that the hypervisor took."""
    return ticks["steal"] * TICK_S / window_s


def judged(row, proxy_core, load_core, idle):
    """What a round's row gains: steal, and the proxy core's time for each answer, less what it spends idle.

    Without a figure where less than that was left: other work ran before the rounds and ended.
    """
    ticks = {one["core"]: one for one in row["cores"]}
    window_s, answers = row["window_s"], row["window_answers"]
    busy = busy_s(ticks[proxy_core], window_s) - idle * window_s
    return {
        "idle_busy_share": round(idle, 4),
        "core_us_per_answer": round(busy / answers * 1e6, 3) if answers and busy > 0 else None,
        "steal": {
            "proxy": round(steal(ticks[proxy_core], window_s), 4), "load": round(steal(ticks[load_core], window_s), 4),
        },
    }


def stolen(rows):
    """The numbers of the rounds in which any proxy's window lost too much of either core."""
    return sorted({row["round"] for row in rows if max(row.get("steal", {"none": 0}).values()) > STEAL_MAX})
