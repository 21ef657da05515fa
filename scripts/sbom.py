#!/usr/bin/env python3
"""The software bill of materials of what is installed, as CycloneDX 1.5 JSON on standard output.

scripts/sbom.py [PACKAGE...]   the crates of the workspace whose dependencies are listed; those that are packaged by default

It lists what is compiled in or runs during the build, from Cargo.lock by way of `cargo metadata`; dependencies of tests
are omitted. SQLite is compiled into libsqlite3-sys and listed as a component of its own, because its advisories name it.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGED = ["standfast-cli", "standfast-sqlite-ext", "standfast-preload"]
TARGET = "x86_64-unknown-linux-gnu"


def metadata():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def reachable(nodes, roots):
    """The packages that the roots need, without those for tests only."""
    found, waiting = set(), list(roots)
    while waiting:
        package = waiting.pop()
        if package in found:
            continue
        found.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
                waiting.append(dependency["pkg"])
    return found


def component(package, checksums):
    own = package["source"] is None
    entry = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "scope": "required",
        "purl": f"pkg:cargo/{package['name']}@{package['version']}",
    }
    if package["license"]:
        # The older notation "MIT/Apache-2.0" means the expression "MIT OR Apache-2.0".
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if not own:
        checksum = checksums.get((package["name"], package["version"]))
        if checksum:
            entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


def reference(package):
    return f"{package['name']}@{package['version']}"


def lock_checksums():
    """Checksums of the sources, by name and version."""
    found = {}
    pattern = re.compile(r'name = "([^"]+)"\nversion = "([^"]+)"\n(?:source = "[^"]+"\n)?checksum = "([0-9a-f]{64})"')
    for name, version, checksum in pattern.findall((ROOT / "Cargo.lock").read_text()):
        found[name, version] = checksum
    return found


def sqlite(package):
    """SQLite itself, as libsqlite3-sys has it in its source."""
    source = Path(package["manifest_path"]).parent / "sqlite3" / "sqlite3.h"
    version = re.search(r'#define SQLITE_VERSION\s+"([\d.]+)"', source.read_text())
    if not version:
        sys.exit(f"sbom: {source} does not say its version")
    version = version[1]
    return {
        "type": "library",
        "bom-ref": f"sqlite@{version}",
        "name": "sqlite",
        "version": version,
        "scope": "required",
        "licenses": [{"license": {"name": "Public Domain"}}],
        "cpe": f"cpe:2.3:a:sqlite:sqlite:{version}:*:*:*:*:*:*:*",
        "purl": f"pkg:generic/sqlite@{version}",
    }


def main(names):
    data = metadata()
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    members = {packages[member]["name"]: member for member in data["workspace_members"]}
    unknown = [name for name in names if name not in members]
    if unknown:
        sys.exit(f"sbom: not in the workspace: {', '.join(unknown)}")
    needed = reachable(nodes, [members[name] for name in names])
    listed = sorted((packages[package] for package in needed), key=reference)
    checksums = lock_checksums()
    components = [component(package, checksums) for package in listed]
    dependencies = []
    for package in listed:
        on = {reference(packages[dependency["pkg"]]) for dependency in nodes[package["id"]]["deps"]
              if dependency["pkg"] in needed and any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])}
        if package["name"] == "libsqlite3-sys":
            own = sqlite(package)
            components.append(own)
            on.add(own["bom-ref"])
        dependencies.append({"ref": reference(package), "dependsOn": sorted(on)})
    version = packages[members[names[0]]]["version"]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "standfast", "name": "standfast", "version": version}},
        "components": components,
        "dependencies": [{"ref": "standfast", "dependsOn": [reference(packages[members[name]]) for name in names]},
                         *dependencies],
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:] or PACKAGED)
