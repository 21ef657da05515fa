"""Two hosts on one machine for the demo: network namespaces when root, else loopback. No process and no namespace
outlives the driver: every child asks the kernel to be killed with it, and a namespace lives as long as its holder.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
# Documentation addresses (RFC 5737), used only inside the two namespaces.
ADDRESSES = ["192.0.2.1", "192.0.2.2"]
COMMAND_SECONDS = 30


class DemoError(Exception):
    """Something the demo cannot continue from; the text is for the user."""


def _die_with_driver():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Host:
    """One of the two machines: commands run in its network namespace, if it has one."""

    def __init__(self, address, holder=None):
        self.address = address
        self.holder = holder
        self.children = []

    def _inside(self, command):
        if self.holder is None:
            return command
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--", *command]

    def free_port(self):
        """A namespace of its own has all ports free; on loopback one is asked for."""
        if self.holder is not None:
            return 7411
        with socket.create_server((self.address, 0)) as server:
            return server.getsockname()[1]

    def spawn(self, command, **options):
        # A separate session: Ctrl-C reaches only the driver, which then ends its children in order.
        child = subprocess.Popen(
            self._inside(command), preexec_fn=_die_with_driver, start_new_session=True,
            stdin=subprocess.DEVNULL, **options,
        )
        self.children.append(child)
        return child

    def run(self, command):
        """Runs a command to its end and returns its standard output; its failure ends the demo."""
        try:
            done = subprocess.run(
                self._inside(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=COMMAND_SECONDS, start_new_session=True, preexec_fn=_die_with_driver,
            )
        except subprocess.TimeoutExpired as expired:
            raise DemoError(f"`{' '.join(command)}` did not end within {COMMAND_SECONDS} s") from expired
        # Exit code 6 of a failover: it is not known whether the primary acknowledged more commits after it was cut off.
        if done.returncode != 0 and not (done.returncode == 6 and "failover" in command):
            said = (done.stderr or done.stdout).strip()
            raise DemoError(f"`{' '.join(command)}` ended with exit code {done.returncode}:\n{said}")
        return done.stdout

    def unplug(self):
        """Cuts the link to the other host."""
        if self.holder is None:
            raise DemoError("the link can be cut only between network namespaces: run as root")
        self.run(["ip", "link", "set", "veth0", "down"])

    def close(self):
        for child in [*self.children, *([self.holder] if self.holder else [])]:
            if child.poll() is None:
                child.kill()
            child.wait()


def make_hosts():
    """Two hosts, and a line that says what they are."""
    if os.geteuid() != 0:
        return _loopback("not root")
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return _loopback(f"{' and '.join(missing)} not installed (packages iproute2, util-linux)")
    holders = []
    try:
        holders = [_hold_namespace(), _hold_namespace()]
        _join(*holders)
    except (DemoError, OSError) as error:
        for holder in holders:
            holder.kill()
            holder.wait()
        return _loopback(f"no network namespaces here: {str(error).splitlines()[-1]}")
    hosts = [Host(address, holder) for address, holder in zip(ADDRESSES, holders)]
    return hosts, f"two network namespaces, {ADDRESSES[0]} and {ADDRESSES[1]}, joined by a veth pair"


def _loopback(why):
    return [Host("127.0.0.1"), Host("127.0.0.1")], f"both on loopback ({why})"


def _hold_namespace():
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"], preexec_fn=_die_with_driver,
        start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    if holder.stdout.readline() != "ready\n":
        holder.kill()
        raise DemoError(f"unshare --net failed\n{holder.stderr.read().strip()}")
    return holder


def _join(first, second):
    _ip("link", "add", "veth0", "netns", str(first.pid), "type", "veth", "peer", "veth0", "netns", str(second.pid))
    for holder, address in zip((first, second), ADDRESSES):
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]
        _ip("address", "add", f"{address}/30", "dev", "veth0", inside=inside)
        for link in ("lo", "veth0"):
            _ip("link", "set", link, "up", inside=inside)


def _ip(*arguments, inside=()):
    done = subprocess.run([*inside, "ip", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise DemoError(f"ip {' '.join(arguments)} failed\n{done.stderr.strip()}")
