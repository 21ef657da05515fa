#!/usr/bin/env python3
"""What the documents name must exist: relative links, `paths/in/the/repository`, and tests by their names."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
QUOTED = re.compile(r"`((?:crates|tools|verify|docs|demo|scripts|tests|bench)/[\w./-]+)`")
# Test names are sentences: only names of metrics have as many words, and the pattern excludes those.
TEST = re.compile(r"`((?!standfast_)[a-z0-9]+(?:_[a-z0-9]+){4,})`")
SOURCES = [path for folder in ("crates", "tools", "verify") for path in ROOT.glob(f"{folder}/**/*.rs")]
TESTS = set(re.findall(r"fn (\w+)\(", "\n".join(path.read_text() for path in SOURCES)))


def dead_ends(document):
    text = document.read_text()
    for link in LINK.findall(text):
        if "://" not in link and not (document.parent / link).exists():
            yield link
    for path in QUOTED.findall(text):
        # Accept a path that is the prefix of an existing name: a name without its extension, or with its wildcard cut
        # off.
        if not (ROOT / path).exists() and not list(ROOT.glob(path.rstrip("*") + "*")):
            yield path
    yield from (name for name in TEST.findall(text) if name not in TESTS)


documents = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
found = [(document.relative_to(ROOT), end) for document in documents for end in dead_ends(document)]
for document, end in found:
    print(f"{document}: {end} does not exist")
print(f"{len(documents)} documents, {len(found)} dead ends")
sys.exit(1 if found else 0)
