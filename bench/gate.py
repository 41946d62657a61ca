"""What the gates of `bench` have in common: on what a count depends, a baseline, a report, and valgrind."""

import os
import pathlib
import platform
import re
import shutil
import subprocess

TOLERANCE = 0.03
END = "<!-- what follows is written by hand -->"
# Valgrind counts each byte of a `rep` instruction, the CPU none: libc copies and clears with vectors instead.
NO_REP = "glibc.cpu.x86_rep_movsb_threshold=4294967296:glibc.cpu.x86_rep_stosb_threshold=4294967296"


class Failure(Exception):
    """It can't go on; the text says why."""


def install():
    """callgrind, where it is missing and may be had."""
    if all(shutil.which(tool) for tool in ("valgrind", "vgdb", "callgrind_annotate")):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Failure("valgrind is missing")
    subprocess.run(["apt-get", "install", "-y", "-q", "valgrind"], check=True, stdout=subprocess.DEVNULL)


def cpu_class(flags, machine):
    """What of the CPU decides which code runs; valgrind hides what is above v3."""
    if machine != "x86_64":
        return machine
    levels = [("x86-64-v3", {"avx2", "bmi1", "bmi2", "fma", "movbe"}), ("x86-64-v2", {"sse4_2", "ssse3", "popcnt"})]
    return next((name for name, needed in levels if needed <= flags), "x86-64")


def conditions(binary):
    """What a count depends on besides the source."""
    rustc = re.search(rb"rustc version (\d[^\0]*)", pathlib.Path(binary).read_bytes())
    info = pathlib.Path("/proc/cpuinfo").read_text()
    flags = re.search(r"^flags\s*: (.*)$", info, re.MULTILINE)
    return {
        "rustc": rustc[1].decode() if rustc else "unknown",
        "cpu": cpu_class(set(flags[1].split()) if flags else set(), platform.machine()),
        "libc": " ".join(platform.libc_ver()),
        "valgrind": subprocess.run(["valgrind", "--version"], capture_output=True, text=True).stdout.strip(),
    }


def verdict(now, baseline, counts="paths", least=0):
    """Lines for people, and whether the gate lets it pass; what `least` instructions more cost is nothing."""
    if baseline is None:
        return ["no baseline yet: --write makes one"], True
    other = [key for key, value in baseline["conditions"].items() if now["conditions"].get(key) != value]
    if other:
        told = ", ".join(f"{key} {now['conditions'].get(key)} (baseline: {baseline['conditions'][key]})" for key in other)
        named = "compiler" if "rustc" in other else "machine"
        return [f"other {named}: compare only with a baseline of your own ({told})"], True
    lines, good = [], True
    for name, count in now[counts].items():
        before = baseline[counts].get(name)
        if before is None:
            lines.append(f"{name}: not in the baseline; --write takes it in")
            continue
        ratio = count["instructions"] / before["instructions"]
        told = f"{count['instructions']:,} instructions, baseline {before['instructions']:,}: {100 * (ratio - 1):+.1f} %"
        if ratio > 1 + TOLERANCE and count["instructions"] > before["instructions"] + least:
            good = False
            lines.append(f"FAILED {name}: {told}, more than {100 * TOLERANCE:.0f} % above")
        elif ratio < 1 - TOLERANCE:
            lines.append(f"{name}: {told}; --write keeps what was gained")
    return lines or [f"all within {100 * TOLERANCE:.0f} % of the baseline"], good


def in_place(text, begin, part):
    """The text with its generated part, which begins and ends with these lines, replaced; without one, in front."""
    if begin in text and END in text:
        return text[: text.index(begin)] + part + text[text.index(END) + len(END) :]
    return part + "\n" + text
