"""A Standfast instance on one of the hosts of `hosts.py`."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path

from hosts import DemoError

READY_SECONDS = 20
STOP_SECONDS = 10


class Instance:
    """One Standfast instance on one host."""

    def __init__(self, name, host, work, programs):
        self.standfast = str(programs / "standfast")
        self.name = name
        self.host = host
        self.listen = f"{host.address}:{host.free_port()}"
        self.directory = work / name
        self.log = work / f"{name}.log"
        self.process = None

    def command(self, *arguments):
        """Runs `standfast VERB -D DIRECTORY ...`."""
        verb, *rest = arguments
        verbs = verb.split()
        return self.host.run([self.standfast, *verbs, "-D", str(self.directory), *map(str, rest)])

    def start(self):
        """Starts the instance and returns when it says READY=1."""
        notify = self.directory.parent / f"{self.name}.notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, open(self.log, "ab") as log:
            ready.bind(str(notify))
            ready.settimeout(0.1)
            self.process = self.host.spawn(
                [self.standfast, "start", "-D", str(self.directory)],
                stdout=log, stderr=log, env={**os.environ, "NOTIFY_SOCKET": str(notify)},
            )
            end = time.monotonic() + READY_SECONDS
            while True:
                try:
                    if b"READY=1" in ready.recv(4096):
                        break
                except TimeoutError:
                    if self.process.poll() is not None:
                        raise DemoError(f"instance {self.name} ended at its start:\n{self.said()}") from None
                    if time.monotonic() > end:
                        raise DemoError(f"instance {self.name} is not ready:\n{self.said()}") from None
        notify.unlink()

    def status(self):
        return json.loads(self.command("status", "--json"))

    def said(self):
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:]) if self.log.exists() else "(no log)"

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                raise DemoError(f"instance {self.name} did not stop on SIGTERM:\n{self.said()}") from None

    def remove_shared_memory(self):
        """Shared memory outlives its instance on purpose: applications keep their place while it restarts."""
        try:
            body = (self.directory / "control").read_text().split("\n", 1)[1]
            for end in ("", ".published"):
                Path(f"/dev/shm/standfast-{json.loads(body)['instance']}{end}").unlink(missing_ok=True)
        except (OSError, ValueError, KeyError, IndexError):
            pass
