#!/usr/bin/env python3
"""Checks the directions of the structure: no circle of files within a product crate, no import from a lower part of a
crate to a higher one, no dependency of a lower crate on a higher one, none of the product on what verifies it.

With crates as arguments only these are checked for circles. --arrows prints all imports between files."""

import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("crates", "tools", "verify")
# Lowest first: a crate may depend on those before it.
PRODUCT = (
    "types documents arbitration io stores session instruments format views sqlite-vfs sqlite-ext preload sqlite-wal log tls transport apply live page "
    "reports environment primary standby observer instance"
).split()
# `bench` is below the binary, which contains `standfast bench`.
TOOLS = "net wan top bench cli".split()
VERIFY = "testkit voices simulation campaign fuzz".split()
# The parts of a crate, lowest first: folders of its source.
PARTS = {
    "environment": "config state security context ship".split(),
    "primary": "commit checkpoint ship open".split(),
    "instance": "role observe server".split(),
}


def without_comments(text):
    """Returns the text without line comments and without the module of unit tests at its end."""
    text = re.sub(r"//[^\n]*", "", text)
    tests = re.search(r"^#\[cfg\((?:all\()?test\b[^\n]*\]\n(?:#\[[^\n]*\]\n)*(?:pub(?:\([a-z]+\))? )?mod \w+ \{", text, re.M)
    return text[: tests.start()] if tests else text


def expand(tree):
    """Yields the paths of a use tree: a::{b, c::d} gives a::b and a::c::d."""
    tree = re.sub(r"\s+as\s+\w+", "", tree)
    brace = tree.find("{")
    if brace < 0:
        yield re.sub(r"\s+", "", tree)
        return
    prefix, body = tree[:brace], tree[brace + 1 : tree.rindex("}")]
    depth, part = 0, ""
    for char in body + ",":
        if char == "," and depth == 0:
            if part.strip():
                yield from expand(prefix + part.strip())
            part = ""
            continue
        depth += (char == "{") - (char == "}")
        part += char


class Crate:
    """The modules of a crate by their paths, and what each imports."""

    def __init__(self, name):
        self.source = next(ROOT / folder / name / "src" for folder in FOLDERS if (ROOT / folder / name).is_dir())
        self.texts = {}
        for file in self.source.rglob("*.rs"):
            path = list(file.relative_to(self.source).with_suffix("").parts)
            if path[-1] in ("lib", "main", "mod"):
                path.pop()
            if path and path[-1] == "tests":
                continue
            self.texts["::".join(path)] = without_comments(file.read_text())
        self.exports = {}
        for module, text in self.texts.items():
            for used in re.findall(r"\bpub(?:\([a-z]+\))?\s+use\s+([^;]+);", text):
                for path in expand(used):
                    self.exports[module, path.split("::")[-1]] = (module, path)

    def absolute(self, module, path):
        """Returns the path from the root of the crate; None for what another crate defines."""
        parts, here = path.split("::"), module.split("::") if module else []
        if parts[0] == "crate":
            return parts[1:]
        if parts[0] in ("self", "super"):
            while parts and parts[0] in ("self", "super"):
                if parts[0] == "super":
                    here = here[:-1]
                parts = parts[1:]
            return here + parts
        child = "::".join([*here, parts[0]])
        return here + parts if child in self.texts else None

    def defines(self, module, path, depth=0):
        """Returns the module that defines what `path` in `module` names: re-exports are followed."""
        parts = self.absolute(module, path)
        if parts is None:
            return None
        for length in range(len(parts), -1, -1):
            found = "::".join(parts[:length])
            if found in self.texts:
                rest = parts[length:]
                if rest and depth < 8 and (found, rest[0]) in self.exports:
                    return self.defines(*self.exports[found, rest[0]], depth + 1) or found
                return found
        return None

    def imports(self):
        """Returns for each module those that it imports from, with the names."""
        arrows = defaultdict(lambda: defaultdict(set))
        for module, text in self.texts.items():
            paths = []
            for visible, used in re.findall(r"\b(pub(?:\([a-z]+\))?\s+)?use\s+([^;]+);", text):
                if not visible:
                    paths += expand(used)
            rest = re.sub(r"\buse\s+[^;]+;", "", text)
            paths += re.findall(r"(?<![\w:])(?:crate|self|super)(?:::\w+)+", rest)
            here = module + "::" if module else ""
            for child in self.texts:
                if child.startswith(here) and child != module and "::" not in child[len(here) :]:
                    paths += re.findall(r"(?<![\w:])" + child[len(here) :] + r"(?:::\w+)+", rest)
            for path in paths:
                target = self.defines(module, path)
                if target is not None and target != module:
                    arrows[module][target].add(path.split("::")[-1])
        return arrows


def circles(arrows):
    """Returns the strongly connected sets of more than one module."""
    index, low, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in arrows.get(module, ()):
            if target not in index:
                visit(target)
            if target in stack:
                low[module] = min(low[module], low[target])
        if low[module] == index[module]:
            at = stack.index(module)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for module in list(arrows):
        if module not in index:
            visit(module)
    return found


def check_imports(name, problems, show):
    arrows = Crate(name).imports()
    if show:
        for module in sorted(arrows):
            for target, names in sorted(arrows[module].items()):
                print(f"{name}: {module or '(root)'} -> {target or '(root)'}: {' '.join(sorted(names))}")
    for group in circles(arrows):
        problems.append(f"{name}: circle of {len(group)} files")
        for module in group:
            for target, names in sorted(arrows[module].items()):
                if target in group:
                    problems.append(f"    {module or '(root)'} -> {target or '(root)'}: {' '.join(sorted(names))}")
    parts = PARTS.get(name, [])
    for module in arrows:
        for target, names in arrows[module].items():
            here, there = module.split("::")[0], target.split("::")[0]
            if here in parts and there in parts and parts.index(there) > parts.index(here):
                problems.append(f"{name}: {module} imports {' '.join(sorted(names))} from the higher {target}")


# What runs inside applications: all that a crate may depend on.
ONLY = {
    "session": {"libc"},
    "views": set(),
    "sqlite-vfs": {"libc", "session", "types", "views"},
    "sqlite-ext": {"sqlite-vfs"},
    "preload": {"libc", "sqlite-vfs"},
}

INSTANCE = "types documents stores io instruments format sqlite-wal log tls transport apply live reports environment primary standby instance".split()
MACHINES = (
    "destination destination_config destination_set event gap gap/pace gap/units identity packing protection receiver/agreement "
    "receiver/claims receiver/fetch_stream receiver/outgoing receiver/stream redo release resolve rights selection "
    "sender/ack_stream sender/archiver_stream sender/batch sender/failure sender/feeding sender/gaps sender/greeting sender/sender_core wait wire"
).split()
# What only some files may name, or none: the files looked through, the pattern, the files that may, and why.
WORDS = (
    (
        [f"crates/{name}/src/**/*.rs" for name in INSTANCE],
        r"\bstderr\(\)|\be?print(?:ln)?!",
        {"crates/environment/src/state/alert.rs"},
        "only the threads of the alert log write to stderr",
    ),
    (
        [f"crates/{name}/src/**/*.rs" for name in ("sqlite-vfs", "sqlite-ext", "preload")],
        r"#\[link\b|extern \"C\" \{|std::net|\bTcp(?:Stream|Listener)\b",
        set(),
        "the shim links against no SQLite and ships nothing",
    ),
    (
        [f"crates/{name}/src/**/*.rs" for name in INSTANCE if name != "io"],
        r"\bTcpStream::connect|\bsys::connect\(",
        {"crates/transport/src/link/dial.rs", "crates/instance/src/observe/http.rs"},
        "only dial.rs opens connections to other instances",
    ),
    (
        ["crates/transport/src/**/*.rs"],
        r"\bLink::plain\(",
        {"crates/transport/src/link/dial.rs", "crates/transport/src/receiver.rs"},
        "only dial.rs decides which connection is plain TCP; receiver.rs hands it what it accepts",
    ),
    (
        [f"crates/transport/src/{name}.rs" for name in MACHINES],
        r"\bstd::net\b|\bTcp\w+|\bthread::|\bInstant::now\b|\bSystemTime\b|\bCondvar\b",
        set(),
        "the machines have no thread, socket or clock",
    ),
    (
        ["crates/primary/src/commit/primary.rs", "crates/primary/src/commit/primary/*.rs"],
        r"\.connection\(\)|\bbusy_timeout\b|\.(?:execute|query_row|prepare)\w*\(",
        set(),
        "the log writer's thread waits for no database",
    ),
    (
        [f"crates/{name}/**/*.rs" for name in ("apply/src", "primary/src", "sqlite-wal/src", "environment/src/context", "environment/src/ship")],
        r"\bfs::(?:remove_|rename|write|copy|hard_link|create_dir)|\bFile::(?:open|create|options)|\bOpenOptions::new",
        # The first opens with O_NOFOLLOW, to start writeback of what others have written; the second is for tests.
        {"crates/sqlite-wal/src/write_back.rs", "crates/sqlite-wal/src/scene.rs"},
        "files beside databases are reached through `outside`",
    ),
)

# Where the bans of clippy.toml are in force.
BANS = {
    "crates/log/src/lib.rs": "methods",
    "crates/standby/src/lib.rs": "methods",
    "crates/apply/src/journal.rs": "methods",
    "crates/environment/src/state/control/storage.rs": "methods",
    "crates/live/src/lib.rs": "methods, clippy::disallowed_types",
}


def check_words(problems):
    for name, banned in BANS.items():
        if f"deny(clippy::disallowed_{banned})" not in (ROOT / name).read_text():
            problems.append(f"{name}: does not deny clippy::disallowed_{banned}")
    for globs, pattern, may, why in WORDS:
        missing = [each for each in [*globs, *may] if not any(ROOT.glob(each))]
        problems += [f"{each}: no such file: {why}" for each in missing]
        for path in (path for each in globs for path in ROOT.glob(each)):
            name = str(path.relative_to(ROOT))
            if name in may or path.stem == "tests":
                continue
            for found in re.findall(pattern, without_comments(path.read_text())):
                problems.append(f"{name}: {found!r}: {why}")


def check_dependencies(problems):
    manifests = {path.parent.name: tomllib.loads(path.read_text()) for path in ROOT.glob("*/*/Cargo.toml") if path.parent.parent.name in FOLDERS}
    for name in manifests:
        if name not in PRODUCT + TOOLS + VERIFY:
            problems.append(f"{name}: this crate has no place in the order of scripts/check-structure.py")
    for name, only in ONLY.items():
        for dependency in set(manifests[name].get("dependencies", {})):
            if dependency.removeprefix("standfast-") not in only:
                problems.append(f"{name}: depends on {dependency}, and runs inside applications")
    for rank, name in enumerate(PRODUCT + TOOLS):
        below = (PRODUCT + TOOLS)[:rank]
        for dependency in manifests.get(name, {}).get("dependencies", {}):
            used = dependency.removeprefix("standfast-")
            if used != dependency and used not in below:
                problems.append(f"{name}: depends on {used}, which is not below it")


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--arrows"]
    problems = []
    check_dependencies(problems)
    check_words(problems)
    for name in arguments or [name for name in PRODUCT + TOOLS if name != "bench"]:
        check_imports(name, problems, "--arrows" in sys.argv)
    print("\n".join(problems) if problems else "structure: one direction")
    sys.exit(bool(problems))


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    main()
