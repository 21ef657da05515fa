#!/usr/bin/env python3
"""Breaks one rule of the product at a time, in a copy of the source, and counts the seeds of the power campaign, or of
that of arbitration, until one fails: shows that the simulator finds such faults. Exit code 1 when a fault is not found within COUNT seeds.

    scripts/planted-faults.py [--count 2000] [NAME...]
    scripts/planted-faults.py --check      # only that each fault still fits the source; a part of `make test`
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BATCH = 50
ARBITRATION = "crates/arbitration/src/"

# Name; file, the text of the product, the text with the fault; and the same again where two checks guard one rule. Those
# in ARBITRATION are for that campaign.
FAULTS = [
    (
        "acknowledged before hardened",
        "crates/transport/src/receiver/stream.rs",
        "self.held_until(log, self.position));\n        let applied",
        "self.held_until(log, received));\n        let applied",
    ),
    (
        "applied beyond confirmed",
        "crates/standby/src/applier.rs",
        "let confirmed = self.shared.confirmed();\n        let delay_us",
        "let confirmed = self.shared.hardened();\n        let delay_us",
    ),
    (
        "redo that overlaps held redo is not compared",
        "crates/transport/src/receiver/stream.rs",
        "if same < compared {",
        "if compared > isize::MAX as usize {",
    ),
    (
        "epoch of a WAL reused",
        "crates/session/src/publish.rs",
        "let next = epoch.wrapping_add(1);",
        "let next = epoch.max(1);",
    ),
    (
        "stale member trusted",
        "crates/log/src/open.rs",
        "let distrusted = distrusted.contains(&path);",
        "let distrusted = distrusted.contains(&path) && path.as_os_str().is_empty();",
    ),
    (
        "arbiter asked before the target is required",
        ARBITRATION + "primary.rs",
        "match standing.target().filter(|target| !self.required.has(target)) {",
        "match standing.target().filter(|target| target.is_empty()) {",
    ),
    (
        "target let go before the arbiter has agreed",
        ARBITRATION + "primary.rs",
        "Answer::Nothing => self.observed = Observed::No,",
        "Answer::Nothing => (self.observed, self.permitted) = (Observed::No, Some(Required::default())),",
    ),
    (
        "target that lacks what was acknowledged",
        ARBITRATION + "primary.rs",
        "candidate.in_step && candidate.hardened >= self.acknowledged;",
        "candidate.in_step && candidate.hardened >= Scn(0);",
        ARBITRATION + "target.rs",
        "let lacks_redo = view.end < record.acknowledged;",
        "let lacks_redo = view.end < Scn(0);",
    ),
    (
        "started primary trusts its own place",
        ARBITRATION + "primary.rs",
        "is_confirmed: !has_started || required.is_named && !required.members.is_empty(),",
        "is_confirmed: !has_started || required.members.len() < 99,",
    ),
    (
        "record replaced although it is another version",
        ARBITRATION + "register.rs",
        "may_decide && *expected == self.version() && self",
        "may_decide && self",
    ),
    (
        "observer trusts its file",
        ARBITRATION + "register.rs",
        "let (Some(record), Some(required)) = (&self.record, &self.required) else { return false };",
        "let (Some(record), Some(required)) = (&self.record, &Some(Vec::<String>::new())) else { return false };",
    ),
    (
        "place of the primary given twice",
        ARBITRATION + "target.rs",
        "let may_be_ordered = record.standing == Standing::Unsynchronized && view.is_ordered();",
        "let may_be_ordered = view.is_ordered();",
        ARBITRATION + "register.rs",
        "let is_free = is_target || old.standing == Standing::Unsynchronized;",
        "let is_free = is_target || !old.standing.is_given();",
    ),
    (
        "standby of another incarnation takes over",
        ARBITRATION + "target.rs",
        "self.record().filter(|record| record.incarnation == view.incarnation)?;",
        "self.record().filter(|record| record.incarnation.number <= view.incarnation.number)?;",
    ),
    (
        "member that the record may not name any more stands for it",
        ARBITRATION + "primary.rs",
        "return Order::Require(Required { is_named: false, ..self.required.clone() });",
        "self.required.is_named = false;",
    ),
    (
        "observer confirms what it may have forgotten",
        ARBITRATION + "register.rs",
        "if *confirms && !self.may_confirm(record) {",
        "if *confirms && !self.may_confirm(record) && expected.is_some() && self.replaced > 1_000 {",
    ),
]


def edits(fault):
    """Lists file, old and new text."""
    return [fault[i : i + 3] for i in range(1, len(fault), 3)]


def check():
    """Lists the faults whose text does not occur exactly once."""
    return [
        f"{fault[0]}: its text occurs {count} times in {file}"
        for fault in FAULTS
        for file, old, _ in edits(fault)
        if (count := (ROOT / file).read_text().count(old)) != 1
    ]


def copy_source(to):
    """Copies the tracked files, as they are now, to a directory that builds on its own."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    for file in files:
        destination = to / file
        destination.parent.mkdir(parents=True, exist_ok=True)
        # A file that has not changed keeps its time, so that nothing is compiled again because of the copy.
        content = (ROOT / file).read_bytes()
        if not destination.exists() or destination.read_bytes() != content:
            destination.write_bytes(content)


def first_failing_seed(source, file, count):
    """Builds the campaign for this file and returns the first seed that fails, or None, with the first line on it."""
    campaign = "arbitration" if file.startswith(ARBITRATION) else "power"
    target = TARGET / "planted-target"
    build = ["cargo", "build", "--quiet", "--locked", "--profile", "tested", "-p", "standfast-campaign"]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target), CARGO_INCREMENTAL="0")
    subprocess.run(build, cwd=source, env=environment, check=True)
    for seed in range(1, count + 1, BATCH):
        seeds = min(BATCH, count + 1 - seed)
        command = [target / "tested/standfast-campaign", campaign, "--quiet", "--json"]
        run = subprocess.run([*command, "--seed", str(seed), "--seeds", str(seeds)], capture_output=True, text=True)
        if run.returncode != 0:
            report = json.loads(run.stdout)
            return min(report["failed_seeds"]), report["notes"][0]
    return None, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="seeds to try for each fault")
    parser.add_argument("--check", action="store_true", help="only check that each fault fits the source")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only the faults whose names contain this")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.names if not any(part in name for name, *_ in FAULTS)]
    if unknown:
        parser.error(f"no fault is called {unknown[0]!r}; there are: {', '.join(name for name, *_ in FAULTS)}")
    misfits = check()
    for misfit in misfits:
        print(misfit, file=sys.stderr)
    if misfits or arguments.check:
        return 1 if misfits else 0
    source = TARGET / "planted"
    missed = 0
    for fault in FAULTS:
        name, file = fault[:2]
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        copy_source(source)
        for edited, old, new in edits(fault):
            path = source / edited
            path.write_text(path.read_text().replace(old, new))
        seed, note = first_failing_seed(source, file, arguments.count)
        missed += seed is None
        found = f"found by seed {seed} ({note})" if seed else f"NOT found within {arguments.count} seeds"
        print(f"{name}: {found}", flush=True)
    shutil.rmtree(source)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
