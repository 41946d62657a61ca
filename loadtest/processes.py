"""Processes of a comparison: started on a core, ended with the script; and what they run on."""

import http.client
import os
import pathlib
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys

import tls

ROOT = pathlib.Path(__file__).resolve().parent.parent
STOP_S = 5


class Failure(Exception):
    """The comparison can't go on; the text says why."""


class Children:
    """Processes that end with this script, however it ends."""

    def __init__(self, log_dir):
        self.log_dir = log_dir
        self.running = []
        setpriv = shutil.which("setpriv")
        self.prefix = [setpriv, "--pdeathsig", "TERM"] if setpriv else []

    def start(self, name, command, core, stdout=None):
        """Starts `command` pinned to `core`; what it says goes to a log."""
        log = open(self.log_dir / f"{name}.log", "ab")
        pinned = self.prefix + ["taskset", "-c", str(core)] + [str(word) for word in command]
        child = subprocess.Popen(pinned, stdin=subprocess.DEVNULL, stdout=stdout or log, stderr=log)
        log.close()
        self.running.append(child)
        return child

    def start_listening(self, name, command, core):
        """Starts what tells its address on one line; says the process and the port."""
        child = self.start(name, command, core, stdout=subprocess.PIPE)
        line = child.stdout.readline().decode().strip()
        if not line:
            raise Failure(f"{name} did not start: {self.log_tail(name)}")
        return child, int(line.rsplit(":", 1)[1])

    def log_tail(self, name):
        text = (self.log_dir / f"{name}.log").read_text(errors="replace")
        return text[-2000:]

    def stop(self, child):
        """Ends a process and its children: politely, then not."""
        family = with_children(child.pid) if child.poll() is None else []
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            for pid in family:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            child.wait()
        if child.stdout:
            child.stdout.close()
        self.running.remove(child)

    def stop_all(self):
        for child in list(self.running):
            self.stop(child)


def with_children(pid):
    """The process and, for a master with workers, its children."""
    family = [pid]
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        if int(stat.rsplit(")", 1)[1].split()[1]) == pid:
            family.append(int(entry.name))
    return family


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def dead_port():
    """A port that refuses connections for as long as the socket returned beside it lives: bound, never listening."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    return holder.getsockname()[1], holder


def raise_open_files():
    """As many open files as this user may have, for this process and all that it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def find(name):
    """A rival's program; installed if that's possible and it is missing."""
    places = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
    found = shutil.which(name, path=places)
    if found:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"{name} is missing: installing the Debian package", file=sys.stderr)
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        for step in (["update"], ["install", "-y", "--no-install-recommends", name]):
            subprocess.run(["apt-get", "-q", *step], env=environment, stdout=sys.stderr, timeout=600, check=False)
        found = shutil.which(name, path=places)
    if not found:
        raise Failure(f"{name} was not found: install it, or leave it out with --only")
    return found


def version(name, program):
    """What the program says of itself, on one line."""
    if name.startswith("relay"):
        return "the load tool's byte relay" if name == "relay" else "the load tool's sharing relay"
    flag = "--version" if name.startswith("ringway") else "-v"
    said = subprocess.run([program, flag], capture_output=True, text=True, timeout=10, check=False)
    lines = (said.stdout + said.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"


def answers(port, certificates=None):
    """A Call at the port gets a result."""
    body = '{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0x00","data":"0x00"},"latest"]}'
    if certificates:
        connection = http.client.HTTPSConnection(tls.NAME, port, timeout=2, context=certificates.context())
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("POST", "/eth", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status == 200 and b'"result"' in response.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit():
    said = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False,
    )
    return said.stdout.strip() or "unknown"


def without_folder(word):
    """An argument as it may stand in a file that others read: folders outside the repository are nobody's business."""
    option, equals, value = word.rpartition("=")
    value = value.replace(f"{ROOT}/", "")
    return option + equals + (f".../{pathlib.Path(value).name}" if value.startswith("/") else value)
