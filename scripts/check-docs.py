#!/usr/bin/env python3
"""What the documents name must exist: relative links, `paths/in/the/repository`, and tests by their names. Every
invariant of docs/ARCHITECTURE.md names what checks it: a file of rules, a test, or a function with an assertion. Every
decision is in the list of decisions."""

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


INVARIANT = re.compile(r"\*Architecture Invariant:\*(.*?)(?=\n\n|\*Architecture Invariant:|\Z)", re.S)
RULES = {"clippy.toml", "deny.toml", "scripts/check-structure.py"}


def is_check(text, name):
    """Whether the function is a test, or asserts something, in this source."""
    found = re.search(rf"((?:^ *#\[.*\]\n)*)^( *)(?:pub(?:\([a-z]+\))? )?fn {name}\b.*?^\2\}}$", text, re.M | re.S)
    return found is not None and ("#[test]" in found[1] or "assert" in found[0])


def unchecked(invariant):
    _, _, checks = " ".join(invariant.split()).partition("Checked by:")
    file, has_name = None, True
    for word in [*re.findall(r"`([^`]+)`", checks), None]:
        if word is None or "." in word:
            if not has_name:
                yield f"no test or function in {file} is named"
            file, has_name = word, word is None or word in RULES
            if word and not (ROOT / word).is_file():
                yield f"{word} does not exist"
                has_name = True
        else:
            has_name = True
            if file is None or not (ROOT / file).is_file() or not is_check((ROOT / file).read_text(), word):
                yield f"{word} is no test and no function with an assertion in {file}"
    if "`" not in checks:
        yield "nothing checks it"


def invariants(document):
    for invariant in INVARIANT.findall(document.read_text()):
        yield from (f"{' '.join(invariant.split())[:60]}...: {why}" for why in unchecked(invariant))


def unlisted(decisions):
    listed = set(LINK.findall((decisions / "README.md").read_text()))
    for decision in sorted(decisions.glob("0*.md")):
        if decision.name not in listed:
            yield f"{decision.name} is not in the list of decisions"


documents = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
found = [(document.relative_to(ROOT), f"{end} does not exist") for document in documents for end in dead_ends(document)]
architecture = ROOT / "docs/ARCHITECTURE.md"
found += [(architecture.relative_to(ROOT), why) for why in invariants(architecture)]
decisions = ROOT / "docs/decisions"
found += [((decisions / "README.md").relative_to(ROOT), why) for why in unlisted(decisions)]
for document, why in found:
    print(f"{document}: {why}")
print(f"{len(documents)} documents, {len(found)} dead ends")
sys.exit(1 if found else 0)
