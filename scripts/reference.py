#!/usr/bin/env python3
"""Writes docs/reference from what the program says and the sources document, so that they cannot disagree.

    scripts/reference.py           writes cli.md, configuration.md and views.md
    scripts/reference.py --check   fails when they are not what it would write

The binary is taken from STANDFAST_BIN, else from target/release.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "release"
PROGRAM = Path(os.environ.get("STANDFAST_BIN") or TARGET) / "standfast"
CONFIG = ROOT / "crates" / "environment" / "src" / "config" / "settings.rs"
NOTE = "<!-- Written by scripts/reference.py; do not edit. -->"


def printed(*arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STANDFAST_")}
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.rstrip() + "\n"


def subcommands(help_text):
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", help_text, re.M)
    names = re.findall(r"^  (\S+)", listed.group(1), re.M) if listed else []
    return [name for name in names if name != "help"]


def command_line(path=()):
    text = printed(*path, "--help")
    yield f"{'##' if path else '#'} `{' '.join(['standfast', *path])}`\n\n```text\n{text}```\n"
    for name in subcommands(text):
        yield from command_line((*path, name))


def documented(body, pattern):
    """(match of the pattern, the documentation before it) of the lines of Rust source, in order."""
    words = []
    for line in map(str.strip, body.splitlines()):
        if line.startswith("///"):
            words.append(line[3:].strip())
        elif found := re.match(pattern, line):
            yield found, " ".join(words)
            words = []


def settings(source, structure):
    """(setting, its documentation) of one structure, in order."""
    body = re.search(rf"pub struct {structure} \{{\n(.*?)^\}}", source, re.S | re.M).group(1)
    return [(field.group(1), words) for field, words in documented(body, r"pub (\w+):")]


def default_in_words(source, setting):
    """The default of a destination's setting, as `DestinationConfig::new` gives it."""
    body = re.search(r"pub fn new\(.*?DestinationConfig \{\n\s+DestinationConfig \{\n(.*?)\n\s+\}\n", source, re.S).group(1)
    value = re.search(rf"^\s+{setting}: (.*),$", body, re.M).group(1)
    if function := re.fullmatch(r"(\w+)\(\)", value):
        value = re.search(rf"fn {function.group(1)}\(\) -> \w+ \{{\n\s*(.*?)\n", source).group(1)
    if value.endswith(".into()"):
        return "none"
    words = {"None": "", "ValidFor::default()": '["all_logfiles", "all_roles"]'}
    value = words.get(value, value.rsplit("::", 1)[-1].replace("_", ""))
    return value if value == "" else f"`{kebab(value)}`"


def kebab(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def configuration():
    # Some sections have a file of their own.
    files = [CONFIG, *(CONFIG.with_name(f"{name}_config.rs") for name in ["alert", "role_change", "fast_start_failover", "arbiter"])]
    source = "".join(file.read_text() for file in files)
    destinations = CONFIG.with_name("destination_config.rs").read_text()
    defaults = tomllib.loads(printed("config", "--defaults"))
    yield (
        "# Configuration\n\n`standfast.toml` in the instance directory. A setting that is not there has its default; one "
        "that is unknown is\nan error. `standfast config -D DIR` prints the settings in force. Changes count from the next "
        "start.\n"
    )
    for section, structure in re.findall(r"^/// `\[([\w.]+)\]`\n(?:#.*\n)*pub struct (\w+)", source, re.M):
        values = functools.reduce(dict.__getitem__, section.split("."), defaults)
        # A section in a section has a table of its own.
        is_section = {name: isinstance(value, dict) and value != {} for name, value in values.items()}
        rows = [(name, words) for name, words in settings(source, structure) if not is_section[name]]
        yield f"## `[{section}]`\n\n| setting | default | |\n|---|---|---|\n" + "".join(
            f"| `{name}` | `{shown(values[name])}` | {words} |\n" for name, words in rows
        )
    yield "## `[[destination]]`\n\n| setting | default | |\n|---|---|---|\n" + "".join(
        f"| `{name}` | {default_in_words(destinations, name)} | {words} |\n"
        for name, words in settings(destinations, "DestinationConfig")
    )


def views():
    all_views = json.loads(printed("sql", "--views", "--json"))
    yield (
        "# V$ views\n\nEvery view with its columns, in order. How to ask, what is not here and what differs: "
        "[views.md](../views.md). Any value\nmay be NULL: unknown, or without meaning in that row. Times are text, UTC.\n"
    )
    for view in all_views:
        yield f"## `{view['name']}`\n\n{view['about']}\n\n| column | type | |\n|---|---|---|\n" + "".join(
            f"| `{column['name']}` | {column['type']} | {column['about']} |\n" for column in view["columns"]
        )


def catalogue(source, macro):
    """(name, class or None, whether sessions wait, documentation) of a table of the instruments, in order."""
    body = re.search(rf"^{macro}! \{{\n(.*?)^\}}", source, re.S | re.M).group(1)
    for entry, words in documented(body, r'\w+, "([^"]+)"(?:, (\w+), (\w+))?;'):
        name, of_class, foreground = entry.groups()
        yield name, {"SystemIo": "System I/O"}.get(of_class, of_class), foreground == "true", words


def waits():
    instruments = ROOT / "crates" / "instruments" / "src"
    events = catalogue((instruments / "event.rs").read_text(), "events")
    statistics = catalogue((instruments / "statistic.rs").read_text(), "statistics")
    parts = variants((instruments / "anatomy.rs").read_text(), "CommitPart")
    yield (
        "# Wait events, statistics, parts of a commit\n\nAs `v$system_event`, `v$sysstat`, reports, metrics and "
        "`standfast observe` name them. All counts begin with the process\nof the instance and only grow.\n"
    )
    yield "## Wait events\n\n| event | class | |\n|---|---|---|\n" + "".join(
        f"| `{name}` | {of_class} | {words} |\n" for name, of_class, _, words in events
    )
    yield "## Statistics\n\n| statistic | |\n|---|---|\n" + "".join(
        f"| `{name}` | {words} |\n" for name, _, _, words in statistics
    )
    yield (
        "## Parts of a commit\n\nThe parts from `wake` on are those of `log file sync` and add up to it "
        "([0019](../decisions/0019-parts-of-a-commit.md)).\n\n| part | |\n|---|---|\n"
    ) + "".join(f"| `{name}` | {words} |\n" for name, words in parts)


def variants(source, name):
    """(variant in snake case, its documentation) of an enumeration, in order."""
    body = re.search(rf"pub enum {name} \{{\n(.*?)^\}}", source, re.S | re.M).group(1)
    return [(kebab(variant.group(1)).replace("-", "_"), words) for variant, words in documented(body, r"(\w+),")]


def shown(value):
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def main():
    pages = {"cli.md": command_line(), "configuration.md": configuration(), "views.md": views(), "waits.md": waits()}
    wrong = []
    for name, parts in pages.items():
        text = NOTE + "\n\n" + "\n".join(parts)
        path = FOLDER / name
        if sys.argv[1:] != ["--check"]:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            wrong.append(name)
    if wrong:
        sys.exit(f"docs/reference: {', '.join(wrong)} out of date; run scripts/reference.py")


main()
